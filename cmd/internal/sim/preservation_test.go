package sim_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
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

// The herd of these scenarios: its leases, how often they are renewed, and when one of them is not fresh any more,
// which is two renewal intervals after its last renewal (docs/understand/self-preservation.md).
const (
	herdSize   = 20
	herdSilent = 12
	herdLease  = 10 * time.Second
	herdEvery  = time.Second
	herdFresh  = 2 * (herdLease / time.Second / 3 * time.Second)

	round = time.Second // eviction.interval
)

// What is counted of the herd while all renew, and when the leases of the silent have ended.
var (
	allFresh   = api.Figures{Leases: herdSize, Counted: herdSize, Fresh: herdSize}
	someSilent = api.Figures{Leases: herdSize, Counted: herdSize, Fresh: herdSize - herdSilent, Expired: herdSilent}
)

// preservation returns what a node says of self-preservation.
func preservation(w *sim.World, node string) api.SelfPreservation {
	w.Helper()
	return sim.Document[api.SelfPreservation](w, node, "/v1/rollcall/self-preservation")
}

// act changes self-preservation as an operator.
func act(w *sim.World, node, what string, with url.Values) sim.Reply {
	w.Helper()
	return w.Call(node, "POST", "/v1/rollcall/self-preservation/"+what+"?"+with.Encode(), "")
}

// startHerd registers a herd, and waits until all its leases count.
func startHerd(w *sim.World) *sim.Herd {
	w.Helper()
	herd := w.Herd("HERD", herdSize, herdLease, herdEvery, w.Names()...)
	w.Wait(herdLease)
	for _, n := range w.Names() {
		p := preservation(w, n)
		need.That(w, p.State == "off" && p.Figures == allFresh,
			"%s: %+v", n, p)
	}
	return herd
}

// turnsOn expects that self-preservation comes on in the first round after the last renewals of the silent members
// are not fresh any more, and that all nodes say then and when the leases have ended whom it keeps and why.
func turnsOn(w *sim.World, silent []string) {
	w.Helper()
	const before, after = herdFresh - herdEvery, herdFresh + round + expiry.ClockInterval
	began := time.Now()
	for _, n := range w.Names() {
		w.Await(time.Until(began.Add(after+look)), n+": on", func() bool { return preservation(w, n).State == "on" })
		expect.That(w, time.Since(began) >= before-look,
			"%s: on after %v, want %v to %v", n, time.Since(began), before, after)
	}
	w.Wait(time.Until(began.Add(3 * herdLease))) // rounds in which they would have been evicted
	var want []string
	for _, id := range silent {
		want = append(want, "HERD/"+id)
	}
	for _, n := range w.Names() {
		p := preservation(w, n)
		expect.That(w, p.State == "on" && p.Figures == someSilent &&
			p.Withheld == herdSilent && strings.Contains(p.Reason, "8") && strings.Contains(p.Reason, "20"), "%s: %+v", n, p)
		var overdue []string
		for _, app := range p.Applications {
			for _, o := range app.Overdue {
				overdue = append(overdue, app.App+"/"+o.ID)
			}
		}
		slices.Sort(overdue)
		expect.Slice(w, overdue, want, "%s calls overdue", n)
		e := sim.Document[api.Explanation](w, n, "/v1/rollcall/apps/HERD/"+silent[0]+"/explain")
		expect.That(w, e.State == "listed" && e.Expired && e.SelfPreservation.Withholds,
			"%s explains %+v, want listed, expired and withheld", n, e)
	}
}

func TestSelfPreservationKeepsTheSilentUntilAnOperatorReleasesThem(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		sim.Run(t, sim.Cluster{Nodes: 3, Mode: mode}, func(w *sim.World) {
			herd := startHerd(w)
			silent := herd.Silence(herdSilent)
			turnsOn(w, silent)
			for _, n := range w.Names() {
				expect.Slice(w, w.ListedIDs(n), herd.IDs(), "%s lists", n)
			}

			r := act(w, w.Names()[2], "release", url.Values{"author": {"ann"}, "reason": {"the rack is gone"}})
			need.Equal(w, r.Status, http.StatusOK, "release: %v", r)
			shares := sharesOf(herdSize, herdSilent)
			w.Wait(time.Duration(len(shares)-1)*round + expiry.ClockInterval + replicatedWithin + look)
			for _, n := range w.Names() {
				expect.Slice(w, w.ListedIDs(n), herd.IDs()[herdSilent:], "%s lists", n)
			}
			if mode == config.CP { // else each node evicts by itself
				wentByShares(w, silent, shares)
			}
			w.Wait(round)
			for _, n := range w.Names() {
				tellsOfTheRelease(w, n)
			}
			herd.NeverLost()
		})
	})
}

// sharesOf returns how many leases go in each round, of so many that have ended: at most 15 % of what is left,
// rounded up.
func sharesOf(leases, ended int) (shares []int) {
	for ended > 0 {
		n := min(ended, leases-leases*85/100)
		shares = append(shares, n)
		leases, ended = leases-n, ended-n
	}
	return shares
}

// wentByShares expects that instances were evicted in rounds of these shares; those of a round have their time in
// common.
func wentByShares(w *sim.World, evicted []string, shares []int) {
	w.Helper()
	rounds := map[int64]int{}
	for _, id := range evicted {
		e := explainedAlike(w, "HERD", id)
		last := e.History[len(e.History)-1]
		need.That(w, e.State == api.Gone && e.Removed != nil && e.Removed.Kind == "evicted" && last.What == "evicted",
			"%s is explained by %+v", id, e)
		rounds[last.At]++
	}
	var got []int
	times := slices.Sorted(maps.Keys(rounds))
	for i, at := range times {
		got = append(got, rounds[at])
		if i > 0 {
			gap := time.Duration(at-times[i-1]) * time.Millisecond
			expect.That(w, gap >= round-soon && gap <= round+expiry.ClockInterval+soon, "%v between two rounds", gap)
		}
	}
	expect.Slice(w, got, shares, "leases by round")
}

// tellsOfTheRelease expects that a node remembers who released whom.
func tellsOfTheRelease(w *sim.World, node string) {
	w.Helper()
	p := preservation(w, node)
	var states []string
	for _, step := range p.Transitions {
		states = append(states, step.State)
	}
	need.Slice(w, states, []string{"off", "released", "on"}, "%s remembers, newest first,", node)
	r := p.Transitions[1]
	expect.That(w, r.Author == "ann" && strings.Contains(r.Reason, "the rack is gone"), "%s remembers %+v", node, r)
}

func TestSelfPreservationEndsByItselfWhenTheSilentReturn(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		sim.Run(t, sim.Cluster{Nodes: 3, Mode: mode}, func(w *sim.World) {
			herd := startHerd(w)
			turnsOn(w, herd.Silence(herdSilent))
			herd.Wake()
			w.Wait(herdEvery + round + expiry.ClockInterval + look)
			if mode == config.AP {
				w.Wait(replicatedWithin)
			}
			for _, n := range w.Names() {
				p := preservation(w, n)
				expect.That(w, p.State == "off" && p.Figures == allFresh && p.Withheld == 0 && p.Transitions[0].Author == "",
					"%s: %+v, want off by itself, and nothing withheld", n, p)
			}
			w.Wait(2 * herdLease)
			for _, n := range w.Names() {
				expect.Slice(w, w.ListedIDs(n), herd.IDs(), "%s lists", n)
			}
			herd.NeverLost()
		})
	})
}

// TestSelfPreservationHoldOutlivesALeaderAndEndsAtItsTime holds evictions for longer than a lease and an election
// last. Without consensus the node dies that was told, and the others know by replication. With consensus the time
// without a leader is added.
func TestSelfPreservationHoldOutlivesALeaderAndEndsAtItsTime(t *testing.T) {
	const hold, lease = 25 * time.Second, 3 * time.Second
	eachMode(t, func(t *testing.T, mode string) {
		sim.Run(t, sim.Cluster{Nodes: 3, Mode: mode}, func(w *sim.World) {
			lost := "n1"
			if mode == config.CP {
				lost = w.Leader()
			}
			others := w.Others(lost)
			const reason = "the network is moved"
			r := act(w, lost, "hold", url.Values{"for": {fmt.Sprint(hold)}, "author": {"ann"}, "reason": {reason}})
			need.Equal(w, r.Status, http.StatusOK, "hold: %v", r)
			began := time.Now()
			dead := w.Register("MORTAL/dead", lease)
			w.Wait(replicatedWithin)
			for _, n := range w.Names() {
				expect.Equal(w, preservation(w, n).State, "held", "%s", n)
			}
			w.Kill(lost)
			killed := time.Now()
			longest := hold + round + replicatedWithin
			if mode == config.CP {
				w.Leader()
				longest = hold + time.Since(killed) + expiry.TickAge + expiry.ClockInterval + look
			}
			w.Wait(2 * lease)
			for _, n := range others {
				p := preservation(w, n)
				expect.That(w, p.State == "held" && p.Author == "ann" && p.Note == reason && p.Until != 0 && p.Withheld == 1,
					"%s: %+v, want held by ann until a time, with one withheld", n, p)
			}
			for listed := true; listed; w.Wait(10 * time.Millisecond) {
				listed = false
				for _, n := range others {
					_, there := w.List(n)[dead.ID]
					listed = listed || there
				}
				need.That(w, time.Since(began) <= longest,
					"the dead instance is there after %v, evictions were held for %v", time.Since(began), hold)
				need.That(w, listed || time.Since(began) >= hold,
					"the dead instance went after %v, evictions were held for %v", time.Since(began), hold)
			}
			w.Logf("the dead instance went after %v, at most %v", time.Since(began), longest)
			w.Wait(round)
			for _, n := range others {
				expect.Equal(w, preservation(w, n).State, "off", "%s", n)
			}
			r = act(w, others[0], "release", url.Values{"author": {"ann"}, "reason": {"again"}})
			expect.Equal(w, r.Status, http.StatusConflict, "release while off: %v", r)
		})
	})
}
