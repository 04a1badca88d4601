package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// watcher is a `rollcall watch` with JSON output.
type watcher struct{ *Process }

// watchLine is one line that it prints: a Change, unless Event names something else.
type watchLine struct {
	Event string
	api.Change
}

// startWatcher runs the command against nodes, in their order, and waits until it watches.
func startWatcher(t *testing.T, nodes []*Node, args ...string) watcher {
	t.Helper()
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.URL())
	}
	args = append([]string{"watch", "-o", "json", "--addr", strings.Join(addrs, ",")}, args...)
	w := watcher{need.Got(Launch(t, filepath.Join(t.TempDir(), "log"), nil, args...))(t)}
	Eventually(t, ReadyLimit, "rollcall watch begins", func() error { return notYet(len(w.lines(t)), 1) })
	return w
}

// lines are those printed whole so far, without those on standard error.
func (w watcher) lines(t *testing.T) []watchLine {
	t.Helper()
	var lines []watchLine
	for line := range strings.Lines(w.Output(t)) {
		if !strings.HasPrefix(line, "{") || !strings.HasSuffix(line, "\n") {
			continue
		}
		var l watchLine
		need.OKf(t, json.Unmarshal([]byte(line), &l), "rollcall watch printed %q", line)
		lines = append(lines, l)
	}
	return lines
}

// changes are the changes that it printed so far. A line that some may have been missed fails the test.
func (w watcher) changes(t *testing.T) []api.Change {
	t.Helper()
	var changes []api.Change
	for _, l := range w.lines(t) {
		switch l.Event {
		case "change":
			changes = append(changes, l.Change)
		case "reset":
			t.Fatalf("rollcall watch may have missed something: %+v", l)
		}
	}
	return changes
}

func TestWatchCommandPrintsWhatHappensOnAnotherNode(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		c := StartCluster(t, smallConfig(ap, 2))
		w := startWatcher(t, c.Nodes[:1], "orders")
		mustRegister(t, c.Nodes[1], Instance{App: "ELSE", ID: "else-1"})
		began := time.Now()
		mustRegister(t, c.Nodes[1], Instance{App: "ORDERS", ID: "orders-1"})
		Eventually(t, ReadyLimit, "the registration is printed", func() error { return notYet(len(w.changes(t)), 1) })
		t.Logf("printed after %v", time.Since(began))
		mustCancel(t, c.Nodes[len(c.Nodes)-1], "ORDERS", "orders-1")
		Eventually(t, ReadyLimit, "the cancel is printed", func() error { return notYet(len(w.changes(t)), 2) })
		for i, want := range []api.Change{
			{Action: "ADDED", Why: "registered", App: "ORDERS", ID: "orders-1", Status: "UP"},
			{Action: "DELETED", Why: "canceled", App: "ORDERS", ID: "orders-1", Status: "UP"},
		} {
			got := w.changes(t)[i]
			want.Index, want.Instance = got.Index, got.Instance
			expect.That(t, fmt.Sprint(got) == fmt.Sprint(want), "change %d is %+v, want %+v", i, got, want)
		}
	})
}

// TestWatchCommandMissesAndRepeatsNothingWhileNodesDie kills the leader again and again, or every node
// once and so the one that the command is connected to, while instances are registered.
func TestWatchCommandMissesAndRepeatsNothingWhileNodesDie(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		next func(c *Cluster, turn int) *Node
	}{
		{"the leader", func(c *Cluster, _ int) *Node { return c.Leader() }},
		{"each in turn", func(c *Cluster, turn int) *Node { return c.Nodes[turn] }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := StartCluster(t, Config{})
			w := startWatcher(t, c.Nodes)
			r := startRecorder(t, c.Nodes)
			for turn := range c.Nodes {
				r.awaitProgress(t)
				victim := tc.next(c, turn)
				r.use(c.Others(victim))
				victim.Kill()
				r.awaitProgress(t)
				victim.Start(t)
				victim.WaitReady(t)
				r.use(c.Nodes)
			}
			r.awaitProgress(t)
			r.stop()
			r.check(t, func() []api.Change { return w.changes(t) })
		})
	}
}

// recorder registers instances, each once and one after the other, and remembers the index under which
// each was acknowledged.
type recorder struct {
	cancel context.CancelFunc
	worker sync.WaitGroup

	mu    sync.Mutex
	nodes []*Node
	tried []string
	acked map[string]string // index by id
	last  string            // the newest index
}

func startRecorder(t *testing.T, nodes []*Node) *recorder {
	ctx, cancel := context.WithCancel(t.Context())
	r := &recorder{cancel: cancel, nodes: nodes, acked: map[string]string{}}
	r.worker.Go(func() { r.run(ctx) })
	t.Cleanup(r.stop)
	return r
}

func (r *recorder) run(ctx context.Context) {
	for i := 0; pause(ctx, churnEvery/4); i++ {
		id := fmt.Sprintf("recorded-%05d", i)
		response := r.try(id).Register(Instance{App: "RECORDED", ID: id})
		if response.Outcome() == Done {
			r.setAcked(id, response.Header.Get("X-Rollcall-Index"))
		}
	}
}

// try records that a registration is sent, and returns the node for it.
func (r *recorder) try(id string) *Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tried = append(r.tried, id)
	return r.nodes[rand.IntN(len(r.nodes))]
}

func (r *recorder) setAcked(id, index string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked[id], r.last = index, index
}

func (r *recorder) use(nodes []*Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nodes = nodes
}

func (r *recorder) stop() {
	r.cancel()
	r.worker.Wait()
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.acked)
}

func (r *recorder) awaitProgress(t *testing.T) {
	t.Helper()
	const some = 50
	goal := r.count() + some
	Eventually(t, ReadyLimit, "registrations are acknowledged", func() error { return notYet(r.count(), goal) })
}

// check compares what a watch brought with what was acknowledged: everything, once, in order, and
// nothing but what was tried.
func (r *recorder) check(t *testing.T, changes func() []api.Change) {
	t.Helper()
	Eventually(t, ReadyLimit, "the watch has come to "+r.last, func() error {
		seen := changes()
		return unless(len(seen) != 0 && position(t, seen[len(seen)-1].Index) >= position(t, r.last), "%d changes so far", len(seen))
	})
	seen := map[string]api.Change{}
	before := uint64(0)
	for _, c := range changes() {
		if at := position(t, c.Index); at <= before {
			t.Errorf("%+v came after %d", c, before)
		} else {
			before = at
		}
		first, twice := seen[c.ID]
		expect.That(t, !twice, "%s came twice, at %s and %s", c.ID, first.Index, c.Index)
		seen[c.ID] = c
		expect.That(t, c.Action == "ADDED" && slices.Contains(r.tried, c.ID), "%+v is nothing that was registered", c)
	}
	for id, index := range r.acked {
		expect.Equal(t, seen[id].Index, index, "%s was acknowledged at %s, and the watch shows it at", id, index)
	}
	t.Logf("%d of %d registrations acknowledged, %d changes seen", len(r.acked), len(r.tried), len(seen))
}

// TestWatchStreamsOfAllNodesHaveTheSameEvents compares the streams of all nodes, byte by byte, and without consensus
// what happened to which instance.
func TestWatchStreamsOfAllNodesHaveTheSameEvents(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		c := StartCluster(t, smallConfig(ap, 2))
		var streams []*Stream
		for _, n := range c.Nodes {
			streams = append(streams, n.Watch(t, ""))
		}
		one := c.Nodes[0].Watch(t, "app=orders")
		wantOne := 0
		for i, act := range []struct {
			app string
			do  func(*Node) Response
		}{
			{"ORDERS", func(n *Node) Response { return n.Register(Instance{App: "ORDERS", ID: "a"}) }},
			{"BILLS", func(n *Node) Response { return n.Register(Instance{App: "BILLS", ID: "b"}) }},
			{"ORDERS", func(n *Node) Response { return n.Override("ORDERS", "a", "OUT_OF_SERVICE") }},
			{"BILLS", func(n *Node) Response { return n.Quarantine("BILLS", "b", time.Hour, "ann", "why not") }},
			{"ORDERS", func(n *Node) Response { return n.Cancel("ORDERS", "a") }},
		} {
			response := untilNotRefused(func() Response { return act.do(c.Nodes[i%len(c.Nodes)]) })
			need.That(t, response.Outcome() == Done, "act %d: %v", i, response)
			for _, s := range streams {
				Eventually(t, ReadyLimit, "the change reaches "+s.node, func() error { return notYet(len(s.Changes(t)), i+1) })
			}
			if act.app == "ORDERS" {
				wantOne++
			}
		}
		first := streams[0].Changes(t)
		for _, s := range streams[1:] {
			got := s.Changes(t)
			expect.That(t, slices.EqualFunc(got, first, sameEvent(ap)), "%s streams\n%+v\n%s streams\n%+v", s.node, got, streams[0].node, first)
		}
		var actions []string
		for _, change := range first {
			actions = append(actions, change.Action+" "+change.Why)
		}
		expect.Slice(t, actions, []string{"ADDED registered", "ADDED registered", "MODIFIED changed", "DELETED quarantined", "DELETED canceled"}, "streamed")
		got := one.AwaitChange(t, first[len(first)-1].Index)
		expect.That(t, len(got) == wantOne, "the stream of one application brought %+v, want %d changes", got, wantOne)
	})
}

// sameEvent compares two changes. Without consensus each node counts and times its own changes.
func sameEvent(ap bool) func(a, b api.Change) bool {
	return func(a, b api.Change) bool {
		if ap {
			a.Index, a.Instance = b.Index, b.Instance
		}
		return fmt.Sprintf("%+v", a) == fmt.Sprintf("%+v", b)
	}
}

// TestLongPollGoesOnAtAnotherNode asks one node after the other for what came after the index that the
// one before gave.
func TestLongPollGoesOnAtAnotherNode(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{})
	index := mustPoll(t, c.Nodes[0], "wait=0s").Index
	for i, n := range c.Nodes {
		index = mustPollOn(t, n, c.Others(n)[0], index, fmt.Sprintf("polled-%d", i))
	}
	mustRefusePolls(t, c.Nodes[0], index)
}

// TestLongPollWithoutConsensusIsOfOneNode asks the same node again and again. An index of another node means nothing to it.
func TestLongPollWithoutConsensusIsOfOneNode(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{AP: true, Nodes: 2})
	n, other := c.Nodes[0], c.Nodes[1]
	index := mustPoll(t, n, "wait=0s").Index
	for i := range 3 {
		index = mustPollOn(t, n, other, index, fmt.Sprintf("polled-%d", i))
	}
	mustRefusePolls(t, n, index)
	expect.OKf(t, other.Get("/v1/rollcall/watch?wait=1s&index="+index).is(http.StatusGone), "another node's index")
}

// mustPollOn polls a node from an index on, while an instance is registered elsewhere, and returns the
// index that it came to.
func mustPollOn(t *testing.T, n, elsewhere *Node, index, id string) string {
	t.Helper()
	polled := make(chan poll, 1)
	go func() { polled <- pollNode(n, "wait=30s&app=polled&index="+index) }()
	mustRegister(t, elsewhere, Instance{App: "OTHER", ID: "other-" + id}) // wakes no poll
	mustRegister(t, elsewhere, Instance{App: "POLLED", ID: id})
	got := <-polled
	need.That(t, got.err == nil && len(got.Changes) == 1 && got.Changes[0].ID == id, "node %s: %+v, want the registration of %s", n.Name, got, id)
	return got.Index
}

func mustRefusePolls(t *testing.T, n *Node, index string) {
	t.Helper()
	expect.OKf(t, n.Get("/v1/rollcall/watch?wait=1s&index=elsewhere-1").is(http.StatusGone), "an index of another registry")
	expect.OKf(t, n.Get("/v1/rollcall/watch?wait=1s&index="+index+"000").is(http.StatusBadRequest), "an index from the future")
}

// poll is the response to a long poll.
type poll struct {
	Index   string
	Changes []api.Change
	err     error
}

func mustPoll(t *testing.T, n *Node, query string) poll {
	t.Helper()
	p := pollNode(n, query)
	need.OK(t, p.err)
	return p
}

func pollNode(n *Node, query string) poll {
	p, err := readUntilTaken(func() (poll, error) { return ask[poll](n, "/v1/rollcall/watch?"+query) })
	p.err = err
	return p
}
