package sim_test

import (
	"bufio"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
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

// leaseGrace returns how long a lease does not end after a leader was established (docs/understand/leases.md): its
// renewal interval, which is a third of it here, and 5 s, or its duration if that is less.
func leaseGrace(lease time.Duration) time.Duration { return min(lease, lease/3+5*time.Second) }

// goneOn returns how long after a moment no node lists an instance any more, and checks that this is its grace, or
// the leader's next look after it.
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
		w.Wait(lease) // the newest renewal that the old leader knows is more than a lease ago
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

// explainedAlike checks that every node explains an instance in the same way, and returns the explanation.
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

// happened returns the words of a history.
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

// One instance dies while one of two nodes without consensus is away. In that node's state its lease is as young as
// when the node left.
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

// soon is how long the trips of a write between three nodes take: to the node, to the leader, to a majority, and
// back.
const soon = 20 * time.Millisecond

// renewAlone renews an instance over a connection of its own, so that the renewal may wait for others
// (docs/adr/0028).
func renewAlone(w *sim.World, node, id string) (status int, took time.Duration) {
	w.Helper()
	conn := w.Dial("127.0.9.2", node)
	defer conn.Close()
	began := time.Now()
	need.Got(fmt.Fprintf(conn,
		"PUT /eureka/apps/WAITING/%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", id))(w)
	resp := need.Got(http.ReadResponse(bufio.NewReader(conn), nil))(w)
	resp.Body.Close()
	return resp.StatusCode, time.Since(began)
}

func TestRenewalsThatWaitAreAsCorrectAsOthers(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		sim.Run(t, sim.Cluster{Nodes: 3, Mode: mode}, func(w *sim.World) {
			longest := config.Default().Store.RenewalWait + soon
			if mode == config.AP {
				longest = soon
			}
			for round := range 4 {
				for _, n := range w.Names() {
					id := fmt.Sprintf("%s-%d", n, round)
					status, _ := renewAlone(w, n, id)
					expect.Equal(w, status, http.StatusNotFound, "%s: before the registration a renewal gets", n)
					r := w.Call(n, "POST", "/eureka/apps/WAITING", sim.Registration("WAITING", id, 10*time.Minute, nil))
					need.Equal(w, r.Status, http.StatusNoContent, "%s: register", n)
					renewed := make(chan bool, 3)
					for range cap(renewed) {
						go func() {
							status, took := renewAlone(w, n, id)
							renewed <- expect.That(w, status == http.StatusOK && took <= longest,
								"%s: a renewal among others gets %d after %v, want 200 within %v", n, status, took, longest)
						}()
					}
					for range cap(renewed) {
						<-renewed
					}
					need.Equal(w, w.Call(n, "DELETE", "/eureka/apps/WAITING/"+id, "").Status, http.StatusOK, "%s: cancel", n)
					status, _ = renewAlone(w, n, id)
					expect.Equal(w, status, http.StatusNotFound, "%s: after the cancel a renewal gets", n)
				}
			}
		})
	})
}

func TestRenewalWaitsForOthersUntilAnyOtherWriteTakesItAlong(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		const id = "one"
		most := config.Default().Store.RenewalWait
		w.Register("WAITING/"+id, 10*time.Minute)
		write := func() {
			need.Equal(w, w.Call(w.Names()[0], "PUT", "/v1/kv/k", "x").Status, http.StatusOK, "write")
		}
		for _, n := range w.Names() {
			write()
			status, took := renewAlone(w, n, id)
			expect.That(w, status == http.StatusOK && took >= most-soon && took <= most+soon,
				"%s: a renewal right after a write gets %d after %v, want about %v", n, status, took, most)

			w.Wait(most + soon)
			status, took = renewAlone(w, n, id)
			expect.That(w, status == http.StatusOK && took <= soon,
				"%s: a renewal long after the last entry gets %d after %v", n, status, took)

			write()
			renewed := make(chan bool, 1)
			go func() {
				status, took := renewAlone(w, n, id)
				renewed <- expect.That(w, status == http.StatusOK && took >= most/2 && took <= most/2+soon,
					"%s: a renewal with a write %v after it gets %d after %v", n, most/2, status, took)
			}()
			w.Wait(most / 2)
			write()
			<-renewed
		}
	})
}

// The wall clocks of these clusters are an hour apart, and one of them is set by half an hour.
const (
	skewed  = time.Hour
	clocked = 30 * time.Minute
)

// eachClock repeats do. set sets the wall clock of one of the nodes, or of none the first time. Then it is set right.
func eachClock(w *sim.World, nodes []string, do func(name string, set func())) {
	do("none", func() {})
	for _, n := range nodes {
		for _, by := range []time.Duration{clocked, -clocked, -40 * time.Second} {
			do(fmt.Sprint(n, by), func() { w.StepClock(n, by) })
			w.StepClock(n, -by)
		}
	}
}

// leads returns the node that stamps what happens at n2: the leader, or n2 itself.
func leads(w *sim.World) string {
	if w.Mode() == config.AP {
		return "n2"
	}
	return w.Leader()
}

func TestClocksOfNodesEndNoLeaseAndKeepNone(t *testing.T) {
	inBothModes(t, sim.Cluster{Nodes: 3, Skew: skewed}, func(w *sim.World) {
		const lease, mortal = 12 * time.Second, 6 * time.Second
		leader := leads(w)
		others := w.Others(leader)
		herd := w.Herd("KEPT", 6, lease, lease/3, w.Names()...)
		late := interval + look
		if w.Mode() == config.AP {
			late += told
		}
		w.Wait(leaseGrace(mortal))
		eachClock(w, []string{leader, others[0]}, func(name string, set func()) {
			dead := w.RegisterAt(others[1], "MORTAL/"+name, mortal)
			set()
			w.GoneBy(dead, mortal+late)
		})
		w.Wait(2 * lease)
		herd.NeverLost()
		for _, n := range w.Names() {
			expect.Slice(w, w.ListedIDs(n), herd.IDs(), "%s lists", n)
		}
	})
}

// Nothing else is written here, so the leader writes an entry for the lease clock alone.
func TestClockThatIsSetBackKeepsNoDeadLeaseOfAQuietCluster(t *testing.T) {
	inBothModes(t, sim.Cluster{Nodes: 3, Skew: skewed}, func(w *sim.World) {
		const lease = 12 * time.Second
		w.Wait(leaseGrace(lease))
		late := interval + look
		if w.Mode() == config.AP {
			late += told
		}
		eachClock(w, []string{leads(w)}, func(name string, set func()) {
			// once a minute one is written
			w.Wait(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + 50*time.Second)))
			dead := w.Register("MORTAL/"+name, lease)
			set()
			w.GoneBy(dead, lease+late)
		})
	})
}

func TestClocksOfLeadersThatFollowEachOtherEndNoLeaseAndKeepNone(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3, Skew: skewed}, func(w *sim.World) {
		const lease, mortal = 9 * time.Second, 6 * time.Second
		herd := w.Herd("KEPT", 6, lease, lease/5, w.Names()...)
		for turn := range 6 {
			leader := w.Leader()
			dead := w.Register(fmt.Sprint("MORTAL/", turn), mortal)
			w.Wait(mortal / 3)
			if turn%2 == 0 {
				w.TransferLeadership()
			} else {
				w.Kill(leader)
			}
			next := w.Leader()
			goneOn(w, dead, time.Now(), leaseGrace(mortal))
			if turn%2 == 1 {
				w.Start(leader)
				w.ReadyBy(leader, sim.ReadyWithin)
			}
			w.StepClock(next, clocked)
		}
		w.Wait(2 * lease)
		herd.NeverLost()
		for _, n := range w.Names() {
			expect.Slice(w, w.ListedIDs(n), herd.IDs(), "%s lists", n)
		}
	})
}

func TestClocksOfLeadersEndNoSessionAndNoLockDelay(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3, Skew: skewed}, func(w *sim.World) {
		leader := w.Leader()
		endAtTheirTimes(w, w.Others(leader)[0], w.TransferLeadership)
	})
	sim.Run(t, sim.Cluster{Nodes: 3, Skew: skewed}, func(w *sim.World) {
		const ttl = 6 * time.Second
		node := w.Others(w.Leader())[0]
		lost := w.KeepSession(w.Session(node, 2*ttl, 0), 2*ttl)
		heir := w.Session(node, time.Hour, 0)
		w.Wait(graceOf(ttl))
		eachClock(w, []string{w.Leader()}, func(name string, set func()) {
			silent := w.Session(node, ttl, ttl)
			began := time.Now()
			need.That(w, w.Acquire(node, name, silent), "the session has not got its key")
			set()
			free := w.AcquiredAt(node, name, heir).Sub(began)
			expect.That(w, free >= 2*ttl-moment && free <= 2*ttl+2*interval+moment, "%s: the key was free after %v, want the TTL and the lock delay of %v each", name, free, ttl)
		})
		expect.That(w, !lost(), "the session that was renewed is gone")
	})
}

func TestClocksOfDatacentersKeepNoListApart(t *testing.T) {
	inBothModes(t, sim.Cluster{Nodes: 3, Datacenters: 2, Skew: skewed}, func(w *sim.World) {
		const lease = 12 * time.Second
		leader, ends := leads(w), lease+2*told
		if w.Mode() == config.AP {
			ends += 30 * time.Second // leases of another datacenter (docs/understand/replication.md)
		}
		w.KeepAt("n1", "ORDERS/here", lease)
		w.KeepAt("dc2-n3", "ORDERS/there", lease)
		w.AllListOnly(w.Names(), 2*told, "here", "there")
		eachClock(w, []string{leader, "dc2-n2"}, func(name string, set func()) {
			w.RegisterAt("n2", "ORDERS/"+name, lease)
			set()
			w.RegisterAt("dc2-n2", "ORDERS/"+name+"-there", lease)
			w.AllListOnly(w.Names(), 2*told, "here", "there", name, name+"-there")
			w.Override("n3", "ORDERS/"+name, "DOWN")
			w.CancelAt("dc2-n1", "ORDERS/"+name+"-there")
			w.AwaitAll(w.Names(), 2*told, "has every change", func(n string) bool {
				l := w.Lists(n)
				return len(l) == 3 && l[name].Status == "DOWN"
			})
			w.AllListOnly(w.Names(), ends, "here", "there")
		})
		w.Wait(config.Default().Replication.Digest * 11 / 10)
		for _, n := range []string{"n1", "dc2-n1"} {
			w.NoDifference(n)
			for _, s := range sim.Document[api.Peers](w, n, "/v1/rollcall/peers").Senders {
				expect.That(w, s.Late == 0 && s.Refused == 0, "%s has heard %+v", n, s)
			}
		}
	})
}

// It compares every duration that nodes show with the time that has passed: one computed from two nodes' clocks would
// be wrong by half an hour.
func TestShownTimesUseTheClockOfTheNodeThatWrote(t *testing.T) {
	inBothModes(t, sim.Cluster{Nodes: 3, Datacenters: 2, Skew: skewed}, func(w *sim.World) {
		began := time.Now().Add(-sim.ReadyWithin)
		writer := leads(w)
		w.KeepAt("dc2-n1", "ORDERS/there", 12*time.Second)
		before := w.At(writer).Now().UnixMilli()
		w.KeepAt("n2", "ORDERS/a", 12*time.Second)
		after := w.At(writer).Now().UnixMilli()
		if w.Mode() == config.CP {
			session := w.Session("n2", time.Hour, 0)
			w.Lock("n1", "l", session, 0)
		}
		w.Override("n2", "ORDERS/a", "DOWN")
		w.Wait(5 * time.Second)
		for _, n := range w.Datacenter(1) {
			i := sim.Document[api.Explanation](w, n, "/v1/rollcall/apps/ORDERS/a/explain")
			if n == writer || w.Mode() == config.CP {
				expect.That(w, i.Registered >= before && i.Registered <= after, "%s shows a registration at %d, it was between %d and %d by the clock of %s", n, i.Registered, before, after, writer)
				now := w.At(writer).Now().UnixMilli()
				expect.That(w, i.LastRenewal >= after && i.LastRenewal <= now, "%s shows a renewal at %d, it was between %d and %d by the clock of %s", n, i.LastRenewal, after, now, writer)
			}
		}
		paths := []string{"status", "peers", "apps/ORDERS/a/explain", "apps/ORDERS/there/explain", "self-preservation", "overview"}
		if w.Mode() == config.CP {
			paths = append(paths, "sessions", "locks", "verify")
		}
		for _, path := range paths {
			for _, n := range w.Names() {
				lengths(sim.Document[any](w, n, "/v1/rollcall/"+path), func(name string, length time.Duration) {
					expect.That(w, length >= 0 && length <= time.Since(began), "%s of %s shows a length of %v by the name %q; %v have passed", n, path, length, name, time.Since(began))
				})
			}
		}
	})
}

// lengths finds the durations in a document, except remaining times.
func lengths(shown any, found func(name string, length time.Duration)) {
	switch shown := shown.(type) {
	case []any:
		for _, inner := range shown {
			lengths(inner, found)
		}
	case map[string]any:
		for name, inner := range shown {
			number, isNumber := inner.(float64)
			switch {
			case !isNumber:
				lengths(inner, found)
			case name == "contact" || strings.HasSuffix(name, "_ms") && !strings.Contains(name, "in_ms") && name != "sampled_ms":
				found(name, time.Duration(number)*time.Millisecond)
			case name == "age_s":
				found(name, time.Duration(number*float64(time.Second)))
			}
		}
	}
}

// A node whose clock is behind the leader's would mistake its state for new.
func TestClockBehindTheLeadersMakesNoOldStateNew(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3, Skew: skewed}, func(w *sim.World) {
		for w.Leader() != "n3" {
			w.TransferLeadership()
			w.Wait(time.Second)
		}
		need.That(w, w.Put("n1", "k", "", "old"), "the key is not put")
		need.OK(w, w.Stop("n1"))
		need.That(w, w.Put("n3", "k", "", "new"), "the key is not put")
		w.Wait(10 * time.Minute)
		w.Isolate("n1")
		w.Start("n1")
		w.Wait(10 * time.Second)
		r := w.Call("n1", "GET", "/v1/kv/k?raw&max_stale=1m", "")
		expect.That(w, r.Status == http.StatusInternalServerError, "within max_stale=1m, n1 has a value of 10 minutes ago, and answers %v", r)
		w.Heal()
		w.ReadyBy("n1", sim.ReadyWithin)
		w.Await(expiry.TickAge, "it knows how old its state is", func() bool {
			return w.Call("n1", "GET", "/v1/kv/k?raw&max_stale=1m", "").Body == "new"
		})
	})
}
