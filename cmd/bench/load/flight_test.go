package load

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// awaited waits for a write to a node in the background, and is told when the wait has begun.
func awaited(ctx context.Context, t *testing.T, l *Load, node int) <-chan int {
	t.Helper()
	found := make(chan int, 1)
	go func() { found <- l.AwaitWrite(ctx, node) }()
	eventually(t, "the wait for a write", func() bool {
		l.flight.mu.Lock()
		defer l.flight.mu.Unlock()
		return l.flight.aimed[node] != nil
	})
	return found
}

func TestAwaitWriteEndsWhenTheNextWriteBeginsAndCountsThoseUnderWay(t *testing.T) {
	l := need.Got(New(Config{Nodes: []string{"a:1", "b:1"}}))(t)
	before := l.flight.begin(0)
	found := awaited(t.Context(), t, l, 0)
	l.flight.begin(1)() // goes elsewhere
	need.That(t, len(found) == 0, "a write that had begun, or goes to another node, ended the wait")
	landed := l.flight.begin(0)
	expect.Equal(t, <-found, 2, "writes under way:")
	before()
	landed()
	found = awaited(t.Context(), t, l, 0)
	l.flight.begin(0)()
	expect.Equal(t, <-found, 1, "writes under way when the others have landed:")
	l.flight.begin(0)() // nobody waits
}

func TestAwaitWriteEndsWithItsContext(t *testing.T) {
	l := need.Got(New(Config{Nodes: []string{"a:1"}}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	found := awaited(ctx, t, l, 0)
	cancel()
	expect.Equal(t, <-found, 0, "writes under way:")
	l.flight.begin(0)() // it waits for nobody
}

func TestPaceCountsLateCallsSinceItWasLastAskedFor(t *testing.T) {
	l := need.Got(New(Config{Nodes: []string{"a:1"}}))(t)
	for _, lateness := range []time.Duration{time.Millisecond, trial.LateAfter, trial.LateAfter + 1, 80 * time.Millisecond, -time.Millisecond} {
		l.pace.add(lateness)
	}
	due, late, worst := l.Pace()
	expect.That(t, due == 5 && late == 2 && worst == 80*time.Millisecond, "%d due, %d late, the worst by %s; want 5, 2, 80ms", due, late, worst)
	due, late, worst = l.Pace()
	expect.That(t, due == 0 && late == 0 && worst == 0, "then %d due, %d late, the worst by %s; want none", due, late, worst)
}

func TestBurstIsAllWritersOfAKeyAtOnceAndALookAtEachNode(t *testing.T) {
	const writers = 7
	var armed atomic.Bool
	var posts atomic.Int64
	together := make(chan struct{})
	var mu sync.Mutex
	looks := make(map[int]int) // by node
	node := func(number int) string {
		return addrOf(standIn(t, func(w http.ResponseWriter, r *http.Request) {
			switch {
			case !armed.Load():
			case r.Method == http.MethodGet:
				mu.Lock()
				looks[number]++
				mu.Unlock()
				w.WriteHeader(http.StatusNotFound)
				return
			case posts.Add(1) == writers:
				close(together)
			default: // no write is answered before all have come
				select {
				case <-together:
				case <-r.Context().Done():
				}
			}
			w.WriteHeader(http.StatusNoContent)
		}))
	}
	l := newLoad(t, Config{
		Nodes: []string{node(0), node(1), node(2)}, Load: scenario.Load{SharedKeys: 2, KeyWriters: writers, Writes: 70, Reads: 5}, History: new(History),
	})
	need.OK(t, l.Register(t.Context()))
	streams := l.keyStreams()
	s := streams[0]
	expect.That(t, s.fixed == 2 && s.cycle == 2 && l.rate(s) == 10, "%d callers in turns of %d, %v bursts per second; want one for each key, and 10", s.fixed, s.cycle, l.rate(s))
	l.SetRates(map[string]float64{"writes": 140})
	expect.Equal(t, l.rate(s), 20, "bursts per second of a storm:")

	armed.Store(true)
	callers := l.newCallers(2)
	s.send(t.Context(), callers[1], time.Now())
	for _, c := range callers {
		c.close()
	}
	versions, nodes := make(map[int64]bool), make(map[int]int)
	for _, call := range callsOn(l, "shared-1", trial.Write) {
		if call.Version > 1 {
			versions[call.Version] = true
			nodes[call.Node]++
			expect.Equal(t, call.Outcome, trial.Done, "version %d:", call.Version)
		}
	}
	expect.That(t, len(versions) == writers && nodes[0] == 3 && nodes[1] == 2 && nodes[2] == 2, "versions %v were written at nodes %v, want %d, spread over the nodes", versions, nodes, writers)
	expect.That(t, looks[0] == 1 && looks[1] == 1 && looks[2] == 1, "looks at nodes: %v, want one at each", looks)
	expect.Equal(t, len(callsOn(l, "shared-1", trial.Look)), 3, "looks in the history:")
	expect.Equal(t, len(callsOn(l, "shared-0", trial.Write, trial.Look)), 1, "calls on the other key, beside its registration:")
}
