package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// load works on a cluster through the nodes it is told to use, and remembers what was acknowledged:
// keepers register one instance each and keep it alive; churners register new ids all the time and
// cancel every second one.
type load struct {
	lease   int // duration of kept instances, seconds; they are renewed five times in it
	nodes   atomic.Pointer[[]*Node]
	cancel  context.CancelFunc
	workers sync.WaitGroup

	mu       sync.Mutex
	fates    map[string]fate
	failures []string
	counts   map[string]int
	lastDone time.Time
	gap      time.Duration // the longest time without an acknowledgement
}

// fate is what must hold for an id at the end.
type fate int

const (
	open    fate = iota // some outcome is unknown: anything may hold
	present             // registered for certain, never asked to go
	absent              // cancelled for certain
)

const (
	retryAfter = 200 * time.Millisecond
	churnEvery = 20 * time.Millisecond
)

// startLoad starts a load whose kept instances have leases of so many seconds, and waits until all
// of them are registered. It ends with the test at the latest.
func startLoad(t *testing.T, lease, keepers, churners int, nodes []*Node) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{lease: lease, cancel: cancel, fates: map[string]fate{}, counts: map[string]int{}}
	t.Cleanup(l.stop)
	l.use(nodes)
	for i := range keepers {
		l.workers.Go(func() { l.keep(ctx, fmt.Sprintf("kept-%d", i)) })
	}
	for i := range churners {
		l.workers.Go(func() { l.churn(ctx, fmt.Sprintf("churn-%d", i)) })
	}
	Eventually(t, ReadyLimit, "kept instances are registered", func() error {
		return notYet(l.settled("kept-"), keepers)
	})
	return l
}

// use says which nodes the load goes through from now on.
func (l *load) use(nodes []*Node) { l.nodes.Store(&nodes) }

// stop ends the load and waits until nobody has a call open.
func (l *load) stop() {
	l.cancel()
	l.workers.Wait()
}

func (l *load) node() *Node {
	nodes := *l.nodes.Load()
	return nodes[rand.IntN(len(nodes))]
}

func (l *load) count(what string, outcome Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[what+" "+outcome.String()]++
	if outcome != Done {
		return
	}
	now := time.Now()
	if !l.lastDone.IsZero() {
		l.gap = max(l.gap, now.Sub(l.lastDone))
	}
	l.lastDone = now
}

func (l *load) decide(id string, f fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fates[id] = f
}

// settled counts the ids with a prefix whose fate is decided.
func (l *load) settled(prefix string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for id := range l.fates {
		if strings.HasPrefix(id, prefix) {
			n++
		}
	}
	return n
}

// awaitProgress waits until the churners have registered some more, so that faults hit a cluster at
// work and not one that still recovers.
func (l *load) awaitProgress(t *testing.T) {
	t.Helper()
	const some = 150
	goal := l.settled("churn-") + some
	Eventually(t, ReadyLimit, "the load makes progress", func() error { return notYet(l.settled("churn-"), goal) })
}

func (l *load) fail(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = append(l.failures, fmt.Sprintf(format, args...))
}

// keep registers one instance and renews it. From its first acknowledged registration on it must
// never be told that it is gone.
func (l *load) keep(ctx context.Context, id string) {
	for pause(ctx, 0) {
		outcome := l.node().Register(Instance{App: "KEPT", ID: id, Duration: l.lease}).Outcome()
		l.count("keeper's register", outcome)
		if outcome == Done {
			break
		}
		pause(ctx, retryAfter)
	}
	if ctx.Err() != nil {
		return
	}
	l.decide(id, present)
	renewEvery := time.Duration(l.lease) * time.Second / 5
	for wait := renewEvery; pause(ctx, wait); {
		node := l.node()
		answer := node.Renew("KEPT", id)
		l.count("renew", answer.Outcome())
		switch answer.Outcome() {
		case Done:
			wait = renewEvery
		case NotFound:
			l.fail("%s was evicted though it was kept alive: a renewal through %s was answered %v", id, node.Name, answer)
			return
		default:
			wait = retryAfter
		}
	}
}

// churn registers ids of its own, each once, and cancels every second one.
func (l *load) churn(ctx context.Context, name string) {
	for i := 0; pause(ctx, churnEvery); i++ {
		id := fmt.Sprintf("%s-%d", name, i)
		outcome := l.node().Register(Instance{App: "CHURN", ID: id, Duration: 24 * 3600}).Outcome()
		l.count("register", outcome)
		if outcome != Done {
			continue
		}
		l.decide(id, present)
		if i%2 == 1 {
			l.cancelOne(ctx, id)
		}
	}
}

// cancelOne cancels an id whose registration was acknowledged, until the outcome is known or can
// no longer be.
func (l *load) cancelOne(ctx context.Context, id string) {
	for {
		answer := l.node().Cancel("CHURN", id)
		outcome := answer.Outcome()
		l.count("cancel", outcome)
		switch outcome {
		case Done:
			l.decide(id, absent)
			return
		case NotFound:
			l.fail("%s was acknowledged, and its first cancel answered %v", id, answer)
			return
		case Unknown:
			l.decide(id, open)
			return
		case Refused:
			if !pause(ctx, retryAfter) {
				return
			}
		}
	}
}

// pause waits and says whether to go on.
func pause(ctx context.Context, d time.Duration) bool {
	if d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// check compares every node with what was acknowledged.
func (l *load) check(t *testing.T, nodes []*Node) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	t.Logf("outcomes: %v; longest time without an acknowledgement: %v", l.counts, l.gap)
	for _, failure := range l.failures {
		t.Error(failure)
	}
	for _, n := range nodes {
		listing, err := n.Listing()
		if err != nil {
			t.Error(err)
			continue
		}
		for id, fate := range l.fates {
			_, listed := listing[id]
			switch {
			case fate == present && !listed:
				t.Errorf("node %s: %s was acknowledged and is not there", n.Name, id)
			case fate == absent && listed:
				t.Errorf("node %s: the cancel of %s was acknowledged and it is there", n.Name, id)
			}
		}
	}
}
