package sim

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
)

var errNoSpace = syscall.ENOSPC

// load is what clients do beside the faults of a schedule. What they learn is judged at once, or in the end.
type load struct {
	w     *World
	d     *drawn
	kept  []*Instance // renewed on time
	tasks []func()    // end what works until it is nearly calm
	ends  []func()    // end what works until the end

	mu      sync.Mutex
	r       *rand.Rand
	counts  map[string]map[Outcome]int // of calls, by kind
	dead    []*Instance                // not renewed; the time of their registration does not change
	written map[string]written         // registrations by id; each is tried once
	holds   []*hold                    // of the lock, by when they began
	reads   reads
}

// written is the registration of an instance that stays.
type written struct {
	node    string
	at      time.Time // of the response
	outcome Outcome
}

// longLease outlasts the run; shortLease is for instances that come and go.
const (
	longLease  = time.Hour
	shortLease = 12 * time.Second
)

// newLoad prepares clients that draw by a seed.
func newLoad(w *World, d *drawn, seed uint64) *load {
	return &load{w: w, d: d, r: rand.New(rand.NewPCG(seed, 58)), counts: map[string]map[Outcome]int{}, written: map[string]written{},
		reads: reads{newest: map[string]uint64{}, stale: map[string]uint64{}}}
}

// start has clients work.
func (l *load) start() {
	cp := l.w.Mode() == config.CP
	for k := range 3 {
		l.kept = append(l.kept, l.w.keep(fmt.Sprintf("LIVE/i%d", k), 3*shortLease, false))
	}
	number := 0
	l.task(8*time.Second, func() {
		number++
		l.die(l.w.newInstance(fmt.Sprintf("DEAD/i%d", number), shortLease))
	})
	last := 0
	l.task(700*time.Millisecond, func() {
		last++
		l.register(l.w.newInstance(fmt.Sprintf("ONCE/i%d", last), longLease))
	})
	if !cp {
		return
	}
	l.task(700*time.Millisecond, l.look)
	l.startHistories()
	l.startReads()
	if l.d.permits.l != nil {
		l.task(900*time.Millisecond, l.d.permits.trespass)
	}
}

// task works until it is nearly calm.
func (l *load) task(every time.Duration, do func()) { l.tasks = append(l.tasks, l.w.beside(every, do)) }

// endTasks ends what works until it is nearly calm.
func (l *load) endTasks() {
	for _, end := range l.tasks {
		end()
	}
}

// node draws one of the first datacenter.
func (l *load) node() string { return l.w.nodes[l.draw(l.w.cluster.Nodes)].Name }

func (l *load) draw(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.IntN(n)
}

func (l *load) count(kind string, o Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts[kind] == nil {
		l.counts[kind] = map[Outcome]int{}
	}
	l.counts[kind][o]++
}

// Bounds of responses, by docs/understand/consistency.md and docs/reference/protocol/coordination.md.
const (
	refusedWithin = time.Second     // that nothing was done: store.NoLeaderWait, and the way
	certainWithin = 4 * time.Second // that nobody knows: store.ResultWait, and the way
	leaderWithin  = 7 * time.Second // Consul's API waits so long for a leader, and then makes its last try
	unknownTakes  = time.Second     // after the response a write of unknown outcome takes effect no more
	callPatience  = 2 * (leaderWithin + certainWithin)

	quickAttempt, maxAttempt = 300 * time.Millisecond, 2 * time.Second // of a call between nodes (package port)
)

// ask makes a call whose response must come within its bounds.
func (l *load) ask(kind, node, method, path, body string, headers ...string) Reply {
	asked := time.Now()
	r := l.w.call(node, callPatience, method, path, body, headers...)
	trip := 2 * l.d.latency()
	late := func(bound time.Duration) { // which grows where nodes are far from each other, see port.Nodes.Stretch
		bound = bound*min(maxAttempt, quickAttempt+3*trip)/quickAttempt + 2*trip + 10*time.Millisecond
		if r.Took > bound && l.d.stayed(node, asked) {
			l.w.Errorf("I10 prompt: %s %s at %s at %v: %v after %v, want %v at most", method, path, node, asked.Sub(began), r, r.Took, bound)
		}
	}
	consul := strings.HasPrefix(path, "/v1/") && !strings.HasPrefix(path, "/v1/rollcall/")
	switch {
	case r.Status == 0 && r.Took >= callPatience:
		if l.d.stayed(node, asked) {
			l.w.Errorf("I12 bounded: %s has not answered %s %s of %v within %v", node, method, path, asked.Sub(began), callPatience)
		}
	case r.Status == http.StatusServiceUnavailable:
		late(refusedWithin)
	case consul:
		late(leaderWithin + certainWithin)
	case r.Status == http.StatusGatewayTimeout:
		late(certainWithin)
	}
	if r.Status == http.StatusUnauthorized || r.Status == http.StatusForbidden {
		l.w.Errorf("I13 allowed: %s refuses the operator's %s %s at %v: %v", node, method, path, asked.Sub(began), r)
	}
	return r
}

// register registers an instance that stays, once.
func (l *load) register(i *Instance) {
	node := l.node()
	o := l.ask("register", node, "POST", "/eureka/apps/"+i.App, i.document()).Outcome()
	l.count("register", o)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written[i.ID] = written{node, time.Now(), o}
}

// die registers an instance that nobody renews.
func (l *load) die(i *Instance) {
	if l.w.send(i, "POST", "/eureka/apps/"+i.App, i.document()).Status != http.StatusNoContent {
		return
	}
	i.renewed = time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = append(l.dead, i)
}

// look reads one of the instances that must be there: the kept, and those that have just been registered.
func (l *load) look() {
	all := l.kept
	l.mu.Lock()
	if n := len(l.dead); n > 0 && time.Since(l.dead[n-1].renewed) < shortLease {
		all = append(all[:len(all):len(all)], l.dead[n-1])
	}
	l.mu.Unlock()
	i, node := all[l.draw(len(all))], l.node()
	r := l.ask("look", node, "GET", i.path(), "")
	l.count("look", r.Outcome())
	if r.Status == http.StatusNotFound && (i.App == "LIVE" || time.Since(i.renewed) < i.Lease) {
		i.recordMissing("%s says at %v: %v", node, time.Since(began), r)
	}
}
