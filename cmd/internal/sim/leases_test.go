package sim_test

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// look is how late a scenario notices what it waits for: it looks every 10 to 50 ms, at one node after the other.
const look = 100 * time.Millisecond

// leaseGrace is how long a lease does not end after a leader was established (docs/understand/leases.md): its renewal
// interval, which is a third of it here, and 5 s, or its duration if that is less.
func leaseGrace(lease time.Duration) time.Duration { return min(lease, lease/3+5*time.Second) }

// goneOn returns how long after a moment no node lists an instance any more, and expects that it is its grace, or the
// next look of the leader after it.
func goneOn(w *sim.World, i *sim.Instance, since time.Time, grace time.Duration) {
	w.Helper()
	const slack = expiry.ClockInterval + look
	before := since.Sub(i.Renewed())
	took := w.GoneBy(i, before+grace+slack) - before
	expect.That(w, took >= grace-look && took <= grace+slack,
		"%s is gone after %v, want %v and %v more at most", i.ID, took, grace, slack)
}

func TestLeaseEndsAtTheNextLookAfterItsDuration(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		sim.Run(t, sim.Cluster{Nodes: 1, Mode: mode}, func(w *sim.World) {
			const lease = 5 * time.Second
			w.Wait(leaseGrace(lease))
			for i := range 5 { // between two rounds, which are a second apart
				w.Wait(230 * time.Millisecond)
				dead := w.Register(fmt.Sprintf("MORTAL/dead-%d", i), lease)
				goneOn(w, dead, dead.Renewed(), lease)
			}
		})
	})
}

func TestLeaderLossEvictsOnlyTheDead(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		const lease, mortal = 9 * time.Second, 6 * time.Second
		old := w.Leader()
		others := w.Others(old)
		herd := w.Herd("KEPT", 6, lease, lease/5, others...)
		dead := w.Register("MORTAL/dead", mortal)
		w.Wait(mortal / 3) // so that its own end comes before that of the grace
		w.Kill(old)
		w.Leader()
		goneOn(w, dead, time.Now(), leaseGrace(mortal))
		w.Wait(lease) // the newest renewal that the old leader knows is longer ago than a lease
		w.Start(old)
		w.ReadyBy(old, sim.ReadyWithin)
		herd.Use(w.Names()...)
		w.Wait(2 * lease)
		herd.NeverLost()
		for _, n := range w.Names() {
			expect.Slice(w, w.ListedIDs(n), herd.IDs(), "%s lists", n)
		}

		before := explainedAlike(w, "MORTAL", "dead")
		expect.That(w, before.State == api.Gone && before.Removed != nil && before.Removed.Kind == "evicted",
			"it is explained by %+v", before)
		expect.Slice(w, happened(before), []string{"registered", "evicted"}, "its history is")
		expect.That(w, before.History[1].Text != "", "%+v does not say why", before.History[1])
		for _, n := range w.Names() {
			need.OK(w, w.Stop(n))
		}
		for _, n := range w.Names() {
			w.Start(n)
		}
		after := explainedAlike(w, "MORTAL", "dead")
		expect.That(w, after.State == before.State && slices.Equal(after.History, before.History),
			"after a restart of all it is explained by %+v, before by %+v", after, before)
	})
}

// explainedAlike expects the same explanation of an instance from every node, and returns it.
func explainedAlike(w *sim.World, app, id string) (first api.Explanation) {
	w.Helper()
	for i, n := range w.Names() {
		e := sim.Document[api.Explanation](w, n, "/v1/rollcall/apps/"+app+"/"+id+"/explain")
		need.That(w, len(e.History) > 0, "%s explains %s by %+v, without a history", n, id, e)
		if i == 0 {
			first = e
		}
		expect.That(w, e.State == first.State && reflect.DeepEqual(e.History, first.History),
			"%s explains %s by %+v, n1 by %+v", n, id, e, first)
	}
	return first
}

// happened are the words of a history.
func happened(e api.Explanation) (what []string) {
	for _, event := range e.History {
		what = append(what, event.What)
	}
	return what
}

func TestExplanationOfAnInstanceThatNeverWasIs404(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		sim.Run(t, sim.Cluster{Nodes: 3, Mode: mode}, func(w *sim.World) {
			for _, n := range w.Names() {
				r := w.Call(n, "GET", "/v1/rollcall/apps/NOBODY/never/explain", "")
				expect.Equal(w, r.Status, http.StatusNotFound, "%s explains what never was", n)
			}
		})
	})
}

func TestClusterThatIsKilledAsAWholeEvictsNoLiveInstance(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		always := func(c *config.Config) { c.Store.Sync = store.SyncAlways }
		sim.Run(t, sim.Cluster{Nodes: 3, Mode: mode, Configure: always}, func(w *sim.World) {
			const lease, mortal = 10 * time.Second, 6 * time.Second
			herd := w.Herd("KEPT", 12, lease, lease/5, w.Names()...)
			dead := w.Register("MORTAL/dead", mortal)
			listedEverywhere(w, append(slices.Clone(herd.IDs()), dead.ID))
			for _, n := range w.Names() {
				w.Kill(n)
			}
			w.Wait(lease + 2*time.Second) // the outage outlasts every lease
			for _, n := range w.Names() {
				w.Start(n)
			}
			if mode == config.CP {
				w.Leader()
			} else {
				for _, n := range w.Names() { // each begins to judge leases when it is ready
					w.ReadyBy(n, sim.ReadyWithin)
				}
			}
			goneOn(w, dead, time.Now(), leaseGrace(mortal))
			w.Wait(2 * lease)
			herd.NeverLost()
			for _, n := range w.Names() {
				expect.Slice(w, w.ListedIDs(n), herd.IDs(), "%s lists", n)
			}
		})
	})
}

// replicatedWithin is how soon nodes without consensus have each other's changes: a batch waits for others for half
// of it.
const replicatedWithin = time.Second

// listedEverywhere waits until every node lists these instances, and no others.
func listedEverywhere(w *sim.World, ids []string) {
	w.Helper()
	slices.Sort(ids)
	for _, n := range w.Names() {
		w.Await(replicatedWithin, fmt.Sprintf("%s lists %v", n, ids), func() bool {
			return slices.Equal(w.ListedIDs(n), ids)
		})
	}
}

// TestNodeThatWasAwayBringsNoDeadInstanceBack has one instance die while one of two nodes without consensus is away.
// In that node's state its lease is as young as when the node went.
func TestNodeThatWasAwayBringsNoDeadInstanceBack(t *testing.T) {
	const lease = 12 * time.Second
	ways := map[string]func(w *sim.World, node string){
		"stopped":     func(w *sim.World, node string) { need.OK(w, w.Stop(node)) },
		"killed":      (*sim.World).Kill,
		"powered off": (*sim.World).PowerOff,
	}
	for way, leave := range ways {
		for _, lived := range []time.Duration{0, lease - time.Second} {
			t.Run(fmt.Sprintf("%s after %v", way, lived), func(t *testing.T) {
				settings := func(c *config.Config) {
					c.Store.Sync = store.SyncAlways
					c.Replication.Digest, c.Replication.MaxDelay = time.Second, 2*time.Second
				}
				sim.Run(t, sim.Cluster{Nodes: 2, Mode: config.AP, Configure: settings}, func(w *sim.World) {
					const away, stays = "n1", "n2"
					herd := w.Herd("HERD", 3, lease, lease/5, away) // too few for self-preservation
					listedEverywhere(w, herd.IDs())
					w.Wait(lived)
					herd.Use(stays)
					dead, alive := herd.Silence(1)[0], herd.IDs()[1:]
					leave(w, away)
					w.Await(lease+replicatedWithin, "the dead is gone", func() bool { return slices.Equal(w.ListedIDs(stays), alive) })
					gone := w.Answer(stays, "/eureka/apps").Header.Get("X-Rollcall-Index")

					w.Start(away)
					w.ReadyBy(away, sim.ReadyWithin)
					for end := time.Now().Add(lease + 2*time.Second); time.Now().Before(end); w.Wait(50 * time.Millisecond) {
						for _, n := range w.Names() {
							need.Slice(w, w.ListedIDs(n), alive, "%s lists", n)
						}
					}
					for _, c := range sim.Document[api.Changes](w, stays, "/v1/rollcall/watch?wait=0s&app=herd&index="+gone).Changes {
						expect.That(w, c.ID != dead && !slices.Contains(alive, c.ID),
							"%s tells of %s: %s %s", stays, c.ID, c.Action, c.Why)
					}
					herd.NeverLost()
				})
			})
		}
	}
}
