package sim_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// The wall clocks of these clusters are an hour apart, and half an hour is by how far one of them is set.
const (
	skewed  = time.Hour
	clocked = 30 * time.Minute
)

// eachClock calls do again and again; set sets the wall clock of one of the nodes, or none at first. Then it is set right.
func eachClock(w *sim.World, nodes []string, do func(name string, set func())) {
	do("none", func() {})
	for _, n := range nodes {
		for _, by := range []time.Duration{clocked, -clocked, -40 * time.Second} {
			do(fmt.Sprint(n, by), func() { w.StepClock(n, by) })
			w.StepClock(n, -by)
		}
	}
}

// leads is the node that stamps what happens at n2: the leader, or n2 itself.
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
			w.Wait(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + 50*time.Second))) // once a minute one is written
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

// TestClockThatIsShownIsThatOfTheNodeThatWrote holds every length of time in what nodes show to the time that has passed: one that
// was made of two nodes' clocks would be wrong by half an hour.
func TestClockThatIsShownIsThatOfTheNodeThatWrote(t *testing.T) {
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

// lengths finds the lengths of time in a document, except times that are left.
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

// A node whose clock is behind the leader's would take what it has for new.
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
