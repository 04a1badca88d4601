package sim_test

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
)

// Bounds of docs/run/node-died.md.
const (
	noticeAfter   = 3 * time.Second // a node knows that its majority is gone
	refusedWithin = time.Second     // without a leader
	unknownWithin = 4 * time.Second // a write that was on its way
)

func TestMinorityRefusesWritesAndLinearizableReads(t *testing.T) {
	ways := []struct {
		name         string
		lose, regain func(w *sim.World, left string)
	}{
		{"killed", each((*sim.World).Kill), each((*sim.World).Start)},
		{"powered off", each((*sim.World).PowerOff), each((*sim.World).Start)},
		{"cut off", (*sim.World).Isolate, func(w *sim.World, _ string) { w.Heal() }},
	}
	for _, way := range ways {
		for _, leaderStays := range []bool{true, false} {
			t.Run(fmt.Sprintf("others %s, leader stays %v", way.name, leaderStays), func(t *testing.T) {
				sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
					left := w.Leader()
					if !leaderStays {
						left = w.Others(left)[0]
					}
					w.Register("BEFORE/before", time.Hour)
					w.List(left) // it has applied the registration now
					lost := time.Now()
					way.lose(w, left)
					caught := make(chan sim.Reply, 1)
					go func() {
						caught <- w.Call(left, "POST", "/eureka/apps/CAUGHT", sim.Registration("CAUGHT", "caught", time.Hour, nil))
					}()
					w.Wait(time.Until(lost.Add(noticeAfter)))
					refusesWithoutMajority(w, left)
					knowsNoLeader(w, left)
					servesStale(w, left, "/eureka/apps?consistency=stale", lost)
					isNotAcknowledged(w, <-caught)
					way.regain(w, left)
					for _, n := range w.Names() {
						w.ReadyBy(n, sim.ReadyWithin)
					}
					nothingRefusedTookEffect(w)
				})
			})
		}
	}
}

// each does something to all nodes but one.
func each(do func(w *sim.World, node string)) func(w *sim.World, left string) {
	return func(w *sim.World, left string) {
		for _, n := range w.Others(left) {
			do(w, n)
		}
	}
}

// isNotAcknowledged expects of a write that was on its way when the majority was lost that it was refused, or that
// nobody knows.
func isNotAcknowledged(w *sim.World, r sim.Reply) {
	w.Helper()
	switch r.Status {
	case http.StatusServiceUnavailable:
		expect.That(w, r.Took <= refusedWithin, "a write that was caught is refused after %v", r.Took)
	case http.StatusGatewayTimeout:
		expect.Equal(w, r.Header.Get("X-Rollcall-Outcome"), "unknown", "a write that was caught: X-Rollcall-Outcome")
		expect.That(w, r.Took >= store.ResultWait && r.Took <= unknownWithin,
			"a write that was caught is unknown after %v", r.Took)
	default:
		w.Errorf("a write that was caught: %v, want 503 or 504", r)
	}
}

// knowsNoLeader expects that a node has noticed that its majority is gone.
func knowsNoLeader(w *sim.World, node string) {
	w.Helper()
	s := sim.Document[api.Status](w, node, "/v1/rollcall/status")
	expect.Equal(w, s.Leader, "", "%s knows the leader", node)
}

// refusedCalls are what a node without a majority refuses: every route that writes, and reads that must be
// linearizable.
var refusedCalls = []struct{ method, path, body string }{
	{"POST", "/eureka/apps/REFUSED", sim.Registration("REFUSED", "refused", time.Hour, nil)},
	{"PUT", "/eureka/apps/BEFORE/before", ""},
	{"DELETE", "/eureka/apps/BEFORE/before", ""},
	{"PUT", "/eureka/apps/BEFORE/before/status?value=OUT_OF_SERVICE", ""},
	{"DELETE", "/eureka/apps/BEFORE/before/status", ""},
	{"PUT", "/eureka/apps/BEFORE/before/metadata?a=b", ""},
	{"GET", "/eureka/apps", ""},
	{"GET", "/eureka/apps/delta", ""},
	{"GET", "/eureka/apps/BEFORE", ""},
	{"GET", "/eureka/apps/BEFORE/before", ""},
	{"GET", "/eureka/instances/before", ""},
	{"GET", "/eureka/vips/BEFORE", ""},
	{"GET", "/eureka/apps?consistency=linearizable", ""},
}

// refusesWithoutMajority expects 503 to each of refusedCalls, sent at once: when it has waited for a leader, and
// within a second.
func refusesWithoutMajority(w *sim.World, node string) {
	w.Helper()
	replies := make(chan func(), len(refusedCalls))
	for _, c := range refusedCalls {
		go func() {
			r := w.Call(node, c.method, c.path, c.body)
			replies <- func() {
				expect.That(w, r.Status == http.StatusServiceUnavailable && r.Took >= store.NoLeaderWait && r.Took <= refusedWithin,
					"%s: %s %s: %v after %v, want 503 after %v to %v",
					node, c.method, c.path, r, r.Took, store.NoLeaderWait, refusedWithin)
			}
		}()
	}
	for range refusedCalls {
		(<-replies)()
	}
}

// servesStale expects a response that shows what was there before the loss, and says how old it can be: at least as
// old as the loss, and no older than that and the last proofs before it.
func servesStale(w *sim.World, node, path string, lost time.Time) {
	w.Helper()
	const proofs = time.Second // the leader proves twice a second that it leads, and the others ask it as often
	r := w.Call(node, "GET", path, "")
	first, age := time.Now(), ageOf(w, r)
	_, listed := need.Got(sim.ListOf(r))(w)["before"]
	expect.That(w, listed, "%s does not list what was registered before the loss: %v", node, r)
	since := first.Sub(lost)
	expect.That(w, age >= since-look && age <= since+proofs+look,
		"%s: X-Rollcall-Age %v, %v after the loss", node, age, since)
	w.Wait(time.Second)
	again := ageOf(w, w.Call(node, "GET", path, ""))
	waited := time.Since(first)
	expect.That(w, (again-age-waited).Abs() <= 5*time.Millisecond,
		"%s: X-Rollcall-Age grew by %v in %v", node, again-age, waited)
}

// ageOf returns the age in a stale response.
func ageOf(w *sim.World, r sim.Reply) time.Duration {
	w.Helper()
	need.That(w, r.Status == http.StatusOK && r.Header.Get("X-Rollcall-Consistency") == "stale",
		"%v %v, want a stale response", r, r.Header)
	age := need.Got(strconv.ParseFloat(r.Header.Get("X-Rollcall-Age"), 64))(w)
	return time.Duration(age * float64(time.Second))
}

// nothingRefusedTookEffect expects of every node of a cluster that is whole again that none of refusedCalls was done.
func nothingRefusedTookEffect(w *sim.World) {
	w.Helper()
	for _, n := range w.Names() {
		list := w.List(n)
		_, listed := list["refused"]
		expect.That(w, !listed, "%s: a refused registration took effect", n)
		before, listed := list["before"]
		expect.That(w, listed && before.Status == "UP" && before.Metadata["a"] == "",
			"%s: a refused change took effect: %+v", n, before)
	}
}

func TestMinorityServesStockClientsByStaleWithoutQuorum(t *testing.T) {
	settings := func(c *config.Config) { c.HTTPD.Reads = "stale-without-quorum" }
	sim.Run(t, sim.Cluster{Nodes: 3, Configure: settings}, func(w *sim.World) {
		left := w.Others(w.Leader())[0]
		w.Register("BEFORE/before", time.Hour)
		r := w.Call(left, "GET", "/eureka/apps", "")
		expect.Equal(w, r.Header.Get("X-Rollcall-Consistency"), "linearizable", "with a majority: %v", r)
		lost := time.Now()
		each((*sim.World).PowerOff)(w, left)
		w.Wait(noticeAfter)
		servesStale(w, left, "/eureka/apps", lost)
		r = w.Call(left, "GET", "/eureka/apps?consistency=linearizable", "")
		expect.That(w, r.Status == http.StatusServiceUnavailable && r.Took <= refusedWithin,
			"an explicitly linearizable read: %v after %v", r, r.Took)
	})
}

func TestLeaderThatIsCutOffIsReplacedRefusesAndCatchesUp(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		old := w.Leader()
		others := w.Others(old)
		w.Register("BEFORE/before", time.Hour)
		w.Isolate(old)
		lost := time.Now()
		w.Wait(steppedDownWithin)
		knowsNoLeader(w, old)
		next := w.Leader()
		expect.That(w, next != old && time.Since(lost) <= electedWithin,
			"%s leads %v after the cut, %s did before", next, time.Since(lost), old)
		for _, n := range others {
			r := w.Call(n, "POST", "/eureka/apps/DURING", sim.Registration("DURING", "during-"+n, time.Hour, nil))
			expect.Equal(w, r.Status, http.StatusNoContent, "%s registers", n)
		}
		w.Wait(time.Until(lost.Add(noticeAfter)))
		refusesWithoutMajority(w, old)
		w.Wait(time.Minute)
		w.Heal()
		w.ReadyBy(old, caughtUpWithin)
		list := w.List(old)
		for _, id := range []string{"before", "during-" + others[0], "during-" + others[1]} {
			_, listed := list[id]
			expect.That(w, listed, "after healing %s does not list %s", old, id)
		}
		nothingRefusedTookEffect(w)
	})
}

// TestPartitionOfALeaderInOneDirectionEndsInOneRegistry cuts what the leader receives (deaf), or what it sends, and
// nothing else.
func TestPartitionOfALeaderInOneDirectionEndsInOneRegistry(t *testing.T) {
	for _, deaf := range []bool{true, false} {
		t.Run(fmt.Sprintf("leader deaf %v", deaf), func(t *testing.T) {
			sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
				old := w.Leader()
				herd := w.Herd("KEPT", 6, 10*time.Second, 2*time.Second, w.Names()...)
				churn := w.Churn(3, 100*time.Millisecond, w.Names()...)
				w.Wait(time.Second)
				churn.Gap()
				for _, other := range w.Others(old) {
					from, to := old, other
					if deaf {
						from, to = other, old
					}
					w.SetLink(from, to, func(l *sim.Link) { l.Cut = true })
				}
				w.Wait(2 * noticeAfter)
				w.Heal()
				for _, n := range w.Names() {
					w.ReadyBy(n, caughtUpWithin)
				}
				w.Wait(time.Second)
				gap := churn.Gap()
				expect.That(w, gap <= steppedDownWithin+electedWithin, "nothing was acknowledged for %v", gap)
				w.Logf("longest time without an acknowledgement: %v", gap)
				churn.NothingLost()
				herd.NeverLost()
			})
		})
	}
}
