package sim_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
)

// afterUnknown is how long a client waits, after it was told that an outcome is unknown, before it makes another
// write that must stand (docs/adr/0022).
const afterUnknown = time.Second

// givenUp is a write whose outcome is unknown, and a later one elsewhere that must stand: of a key, whose old value
// must not come back, or of an instance, whose cancel must not come late.
type givenUp struct {
	id       string
	instance bool
	first    sim.Reply
	second   sim.Reply
}

func (g *givenUp) instancePath() string { return "/eureka/apps/GIVENUP/" + g.id }

// run makes the first write at one node and the second at another.
func (g *givenUp) run(w *sim.World, at, later string) {
	if g.instance {
		g.first = w.Call(at, "DELETE", g.instancePath(), "")
	} else {
		g.first = w.Call(at, "PUT", "/v1/kv/"+g.id, "OLD")
	}
	w.Wait(afterUnknown)
	for end := time.Now().Add(electedWithin); g.second.Outcome() != sim.Done; w.Wait(50 * time.Millisecond) {
		if time.Now().After(end) {
			return
		}
		if g.instance {
			g.second = g.register(w, later)
		} else {
			g.second = w.Call(later, "PUT", "/v1/kv/"+g.id, "NEW")
		}
	}
}

func (g *givenUp) register(w *sim.World, node string) sim.Reply {
	return w.Call(node, "POST", "/eureka/apps/GIVENUP", sim.Registration("GIVENUP", g.id, time.Hour, nil))
}

// stands expects that the second write is not undone.
func (g *givenUp) stands(w *sim.World, node string) {
	w.Helper()
	if g.instance {
		r := w.Call(node, "GET", g.instancePath()+"?consistency=linearizable", "")
		need.That(w, r.Status != http.StatusNotFound,
			"%s is gone at %s: its cancel got %v, and it was registered again", g.id, node, g.first)
		return
	}
	r := w.Call(node, "GET", "/v1/kv/"+g.id+"?raw&consistent", "")
	need.That(w, r.Status != http.StatusOK || r.Body == "NEW",
		"%s is %v at %s: that got %v, and NEW was written after it", g.id, r, node, g.first)
}

// giveUp makes writes, one of a key and one of an instance, when breaks has broken something: as many as a node has
// batches on their way. Each client makes the second write when the first has a response.
func giveUp(w *sim.World, at, later string, breaks func()) []*givenUp {
	w.Helper()
	writes := []*givenUp{{id: "key"}, {id: "instance", instance: true}}
	need.Equal(w, writes[1].register(w, later).Status, http.StatusNoContent, "register")
	w.List(at) // it knows the leader, and has what was prepared
	breaks()
	done := make(chan struct{}, len(writes))
	for _, g := range writes {
		go func() {
			g.run(w, at, later)
			done <- struct{}{}
		}()
		w.Wait(time.Millisecond) // each is a batch of its own
	}
	for range writes {
		<-done
	}
	for _, g := range writes {
		need.Equal(w, g.second.Outcome(), sim.Done, "the second write of %s: %v", g.id, g.second)
	}
	return writes
}

// areUnknown expects that the clients of first writes were told in time that nobody knows.
func areUnknown(w *sim.World, writes []*givenUp) {
	w.Helper()
	for _, g := range writes {
		expect.That(w, g.first.Status == http.StatusGatewayTimeout && g.first.Header.Get("X-Rollcall-Outcome") == "unknown",
			"the first write of %s: %v, want 504 and that its outcome is unknown", g.id, g.first)
		expect.That(w, g.first.Took >= store.ResultWait && g.first.Took <= unknownWithin,
			"the first write of %s took %v", g.id, g.first.Took)
	}
}

// stand expects for a while that the second writes stand at all nodes.
func stand(w *sim.World, writes []*givenUp) {
	w.Helper()
	for _, n := range w.Names() {
		w.ReadyBy(n, sim.ReadyWithin)
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); w.Wait(20 * time.Millisecond) {
		for _, g := range writes {
			for _, n := range w.Names() {
				g.stands(w, n)
			}
		}
	}
}

func TestWriteOfUnknownOutcomeDoesNotTakeEffectAfterACut(t *testing.T) {
	for _, cut := range []time.Duration{6 * time.Second, 12 * time.Second, 20 * time.Second, time.Minute} {
		t.Run(fmt.Sprint(cut), func(t *testing.T) {
			sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
				leader := w.Leader()
				at, later := w.Others(leader)[0], w.Others(leader)[1]
				began := time.Now()
				writes := giveUp(w, at, later, func() { w.Cut(at, leader) })
				areUnknown(w, writes)
				w.Wait(time.Until(began.Add(cut)))
				w.Heal()
				stand(w, writes)
			})
		})
	}
}

// TestWriteOfUnknownOutcomeDoesNotTakeEffectAfterAKill kills the leader while writes are on their way to it, and
// starts it again.
func TestWriteOfUnknownOutcomeDoesNotTakeEffectAfterAKill(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		leader := w.Leader()
		at, later := w.Others(leader)[0], w.Others(leader)[1]
		writes := giveUp(w, at, later, func() {
			w.Isolate(at)
			time.AfterFunc(300*time.Millisecond, func() { // the writes are under way
				w.Kill(leader)
				w.Start(leader)
			})
		})
		areUnknown(w, writes)
		w.Heal()
		stand(w, writes)
	})
}

// TestWriteThatIsSentAgainToTheNextLeaderTakesEffectOnce kills a leader that has committed a cancel, and whose reply
// is lost. The node that was asked sends the cancel to the next leader, where the instance is gone: its client must
// not be told that there was none.
func TestWriteThatIsSentAgainToTheNextLeaderTakesEffectOnce(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		leader := w.Leader()
		at, later := w.Others(leader)[0], w.Others(leader)[1]
		w.Register("ONCE/one", time.Hour)
		w.List(at)
		w.SetLink(leader, at, func(l *sim.Link) { l.Cut = true })
		cancelled := make(chan sim.Reply, 1)
		go func() { cancelled <- w.Call(at, "DELETE", "/eureka/apps/ONCE/one", "") }()
		w.Await(soon+look, "the cancel is committed", func() bool {
			return w.Call(later, "GET", "/eureka/apps/ONCE/one?consistency=stale", "").Status == http.StatusNotFound
		})
		w.Kill(leader)
		w.Heal()
		r := <-cancelled
		if r.Took < store.ResultWait { // else the election took longer
			expect.Equal(w, r.Status, http.StatusOK, "the cancel: %v after %v", r, r.Took)
		}
		w.Start(leader)
	})
}
