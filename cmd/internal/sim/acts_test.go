package sim_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// statusAt returns the status with which a node lists an instance, or "".
func statusAt(w *sim.World, node, path string) string {
	w.Helper()
	r := w.Call(node, "GET", "/eureka/apps/"+path, "")
	if r.Status == http.StatusNotFound {
		return ""
	}
	type document struct {
		Instance struct{ Status string }
	}
	return documentOf[document](w, r).Instance.Status
}

func explain(w *sim.World, node, path string) api.Explanation {
	w.Helper()
	return documentOf[api.Explanation](w, w.Call(node, "GET", "/v1/rollcall/apps/"+path+"/explain", ""))
}

// storyOf returns an instance's history, as a node reports it.
func storyOf(w *sim.World, node, path string) (events []string) {
	w.Helper()
	for _, e := range explain(w, node, path).History {
		events = append(events, e.What)
	}
	return events
}

// The leader dies while the override is in force; without consensus, the node through which it was set.
func TestTimedOverrideEndsAtItsTimeThoughALeaderDies(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		sim.Run(t, sim.Cluster{Nodes: 3, Mode: mode}, func(w *sim.World) {
			const forced = 15 * time.Second
			lost := "n3"
			if mode == config.CP {
				lost = w.Leader()
			}
			others := w.Others(lost)
			w.Keep("ORDERS/orders-1", 90*time.Second)
			w.Wait(toldAll)
			set := time.Now()
			r := w.Call(lost, "PUT", fmt.Sprintf("/v1/rollcall/apps/ORDERS/orders-1/override?value=OUT_OF_SERVICE&for=%v&author=ann&reason=deploy+7", forced), "")
			need.Equal(w, r.Status, http.StatusOK, "the override is answered")
			setBy := time.Now()
			w.Wait(reaches(mode))
			killed := time.Now()
			w.Kill(lost)
			stood := time.Duration(0) // of the lease clock
			if mode == config.CP {
				// From the newest entry on, which may be a renewal or a tick.
				stood = w.Led(others[0]).Sub(killed) + expiry.TickAge
			}
			for _, n := range others {
				expect.Equal(w, statusAt(w, n, "ORDERS/orders-1"), "OUT_OF_SERVICE", "%s shows it as", n)
				e := explain(w, n, "ORDERS/orders-1")
				expect.That(w, e.Reported == "UP" && e.Override != nil && e.Override.Author == "ann" && e.Override.Reason == "deploy 7" && e.Override.Until != 0, "%s explains the override by %+v", n, e)
			}
			for _, n := range others {
				w.Await(time.Minute, "the override ends", func() bool { return statusAt(w, n, "ORDERS/orders-1") == "UP" })
				ended := time.Now()
				latest := forced + stood + interval + moment
				if mode == config.AP {
					latest += toldAll
				}
				expect.That(w, ended.Sub(set) >= forced && ended.Sub(setBy) <= latest, "%s: the override ended after %v, want between %v and %v", n, ended.Sub(set), forced, latest)
			}
			if mode == config.CP { // without consensus each node records in its own words what it hears
				for _, n := range others {
					expect.Slice(w, storyOf(w, n, "ORDERS/orders-1"), []string{"registered", "overridden", "override ended"}, "%s tells", n)
				}
			}
		})
	})
}

// hides checks that no list of a node has the instance in quarantine, and that the instance looks registered to its
// client.
func hides(w *sim.World, node string) {
	w.Helper()
	for _, list := range []string{"/eureka/apps", "/eureka/apps/ORDERS", "/eureka/vips/ORDERS", "/eureka/svips/ORDERS", "/v1/rollcall/apps"} {
		r := w.Call(node, "GET", list, "")
		expect.That(w, r.Status == http.StatusOK && !strings.Contains(r.Body, `"sick"`) && strings.Contains(r.Body, `"well"`), "%s: %s is %v, want the well one only", node, list, r)
	}
	type delta struct {
		Applications struct {
			Application []struct {
				Instance []struct{ InstanceID, ActionType string }
			}
		}
	}
	actions := map[string]string{}
	for _, a := range documentOf[delta](w, w.Call(node, "GET", "/eureka/apps/delta", "")).Applications.Application {
		for _, i := range a.Instance {
			actions[i.InstanceID] = i.ActionType
		}
	}
	expect.That(w, actions["sick"] == "DELETED" && actions["well"] == "ADDED", "%s: the delta has %v, want the hidden one as deleted", node, actions)
	for _, single := range []string{"/eureka/apps/ORDERS/sick", "/eureka/instances/sick"} {
		expect.Equal(w, w.Call(node, "GET", single, "").Status, http.StatusNotFound, "%s: %s:", node, single)
	}
	expect.Equal(w, w.Call(node, "PUT", "/eureka/apps/ORDERS/sick", "").Status, http.StatusOK, "%s: a heartbeat in quarantine:", node)
	e := explain(w, node, "ORDERS/sick")
	expect.That(w, e.State == "quarantined" && e.Quarantine != nil && e.Quarantine.Author == "ann" && e.Quarantine.Reason == "it answers nonsense", "%s explains it by %+v", node, e)
}

func TestQuarantineHidesOnEveryNodeAndEndsAtItsTime(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		sim.Run(t, sim.Cluster{Nodes: 3, Mode: mode}, func(w *sim.World) {
			for _, id := range []string{"sick", "well"} {
				document := fmt.Sprintf(`{"instance":{"instanceId":%q,"app":"ORDERS","hostName":"h","ipAddr":"10.1.1.1","vipAddress":"ORDERS","secureVipAddress":"ORDERS",`+
					`"status":"UP","dataCenterInfo":{"name":"MyOwn"},"leaseInfo":{"durationInSecs":3600}}}`, id)
				need.Equal(w, w.Call("n1", "POST", "/eureka/apps/ORDERS", document).Status, http.StatusNoContent, "the registration is answered")
			}
			w.Wait(reaches(mode))
			quarantine := func(node string, d time.Duration) {
				r := w.Call(node, "PUT", fmt.Sprintf("/v1/rollcall/apps/ORDERS/sick/quarantine?for=%v&author=ann&reason=it+answers+nonsense", d), "")
				need.Equal(w, r.Status, http.StatusOK, "%v: the quarantine is answered", r)
			}
			quarantine("n2", 10*time.Minute)
			w.Wait(reaches(mode))
			for _, n := range w.Names() {
				hides(w, n)
			}
			need.Equal(w, w.Call("n3", "DELETE", "/v1/rollcall/apps/ORDERS/sick/quarantine", "").Status, http.StatusOK, "its end is answered")
			w.Wait(reaches(mode))
			for _, n := range w.Names() {
				listed(w, n, "sick", "well")
			}
			const hidden = 30 * time.Second
			set := time.Now()
			quarantine("n1", hidden)
			setBy := time.Now()
			w.Wait(time.Until(set.Add(hidden)) - interval)
			for _, n := range w.Names() {
				expect.Equal(w, statusAt(w, n, "ORDERS/sick"), "", "%s shows it, before the end of its quarantine, as", n)
			}
			w.Wait(time.Until(setBy.Add(hidden)) + 2*interval + reaches(mode))
			for _, n := range w.Names() {
				expect.Equal(w, statusAt(w, n, "ORDERS/sick"), "UP", "%s shows it, after the end of its quarantine, as", n)
			}
			if mode == config.CP {
				for _, n := range w.Names() {
					expect.Slice(w, storyOf(w, n, "ORDERS/sick"), []string{"registered", "quarantined", "quarantine ended", "quarantined", "quarantine ended"}, "%s tells", n)
				}
			}
		})
	})
}

// A node is cut off, so drain must keep waiting for it.
func TestDrainReturnsAfterEveryNodeHasAppliedItAndItsPauseHasPassed(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		sim.Run(t, sim.Cluster{Nodes: 3, Mode: mode}, func(w *sim.World) {
			const settle, poll = 30 * time.Second, 200 * time.Millisecond // poll: of the client
			late := "n3"
			if mode == config.CP {
				late = w.Others(w.Leader())[0]
			}
			at := w.Others(late)[0]
			w.Keep("ORDERS/orders-1", 90*time.Second)
			w.Wait(toldAll)
			w.Isolate(late)
			cl := need.Got(client.New(client.Config{Servers: []string{w.URL(at)}, HTTPClient: w.Client("127.0.9.2")}))(w)
			key := registry.Key{App: "ORDERS", ID: "orders-1"}
			drained := make(chan error, 1)
			go func() { drained <- cl.Drain(w.Context(), key, settle, registry.Act{Author: "ann"}) }()
			// shorter than its lease: after the lease ends, a node without consensus shows nothing any more
			w.Wait(time.Minute)
			for _, n := range w.Others(late) {
				expect.Equal(w, statusAt(w, n, "ORDERS/orders-1"), "OUT_OF_SERVICE", "%s shows it as", n)
			}
			need.Equal(w, len(drained), 0, "drains that have ended while a node had not applied them:")
			w.Heal()
			healed := time.Now()
			w.Await(time.Minute, late+" shows it", func() bool {
				r := w.Call(late, "GET", "/v1/rollcall/apps?consistency=stale", "")
				return strings.Contains(r.Body, `"OUT_OF_SERVICE"`)
			})
			shown := time.Now()
			need.OK(w, <-drained)
			took := time.Since(shown)
			w.Logf("applied %v after the links were whole, drained %v later", shown.Sub(healed), took)
			expect.That(w, took >= settle-poll && took <= settle+poll+toldAll, "drain ended %v after the last node showed it, want between %v and %v", took, settle-poll, settle+poll+toldAll)
			need.OK(w, cl.Close(context.Background()))
		})
	})
}

// takeOut sets an operator's OUT_OF_SERVICE at a node: "drain=true", or for good.
func takeOut(w *sim.World, node, path, how string) {
	w.Helper()
	w.Do(http.StatusOK, node, "PUT", "/v1/rollcall/apps/"+path+"/override?value=OUT_OF_SERVICE&author=ann&"+how)
}

// newestLevel waits until all nodes follow the rules of the newest level.
func newestLevel(w *sim.World) {
	w.Helper()
	w.AwaitAll(w.Names(), 2*time.Minute, "the newest level is written", func(node string) bool {
		return documentOf[api.Upgrade](w, w.Call(node, "GET", "/v1/rollcall/upgrade", "")).Level == codec.Newest
	})
}

// A program is drained, stopped and started again: it is called again at once. What an operator took out of service
// for good stays so, through cancels and evictions, the death of the node that was asked (the leader, in mode cp),
// and at a node that heard nothing of the cancel.
func TestIntentDrainEndsWithARestartAndAnOverrideOutlivesTheLease(t *testing.T) {
	eachMode(t, func(t *testing.T, mode string) {
		sim.Run(t, sim.Cluster{Nodes: 3, Mode: mode}, func(w *sim.World) {
			newestLevel(w)
			w.Keep("OTHERS/keeps-the-clock-running", 30*time.Second)
			asked := w.Names()[0]
			if mode == "cp" {
				asked = w.Leader()
			}
			acts := map[string]string{"drained": "drain=true", "overridden": ""}
			for name, how := range acts {
				w.RegisterAt(asked, "A/"+name+"-canceled", 5*time.Minute)
				w.RegisterAt(asked, "A/"+name+"-restarted", 5*time.Minute)
				w.RegisterAt(asked, "A/"+name+"-evicted", 6*time.Second)
				w.Wait(reaches(mode))
				for _, of := range []string{"-canceled", "-restarted", "-evicted"} {
					takeOut(w, asked, "A/"+name+of, how)
				}
				w.Wait(reaches(mode))
				w.Isolate(w.Others(asked)[1])
				w.CancelAt(asked, "A/"+name+"-canceled")
				w.Await(2*time.Minute, "it is evicted", func() bool { return statusAt(w, asked, "A/"+name+"-evicted") == "" })
				w.Heal()
				w.Wait(toldAll)
				if mode == "cp" {
					w.Led(asked)
				}
				gone := explain(w, asked, "A/"+name+"-evicted")
				expect.That(w, strings.Contains(gone.Summary, "it is OUT_OF_SERVICE, by ann") == (name == "overridden"), "of %s it says %q", name, gone.Summary)
			}
			w.Kill(asked)
			others := w.Others(asked)
			if mode == "cp" {
				w.Led(others[0])
			}
			w.Start(asked)
			w.ReadyBy(asked, time.Minute)
			if mode == "cp" {
				w.Led(others[0])
			}
			for name, want := range map[string]string{"drained": "UP", "overridden": "OUT_OF_SERVICE"} {
				for _, of := range []string{"-canceled", "-restarted", "-evicted"} {
					w.RegisterAt(others[0], "A/"+name+of, 5*time.Minute)
					w.AwaitAll(w.Names(), time.Minute, name+of+" is "+want, func(node string) bool { return statusAt(w, node, "A/"+name+of) == want })
				}
			}
			w.Wait(2 * time.Minute) // nodes have compared their states
			for name, want := range map[string]string{"drained": "UP", "overridden": "OUT_OF_SERVICE"} {
				for _, node := range w.Names() {
					expect.Equal(w, statusAt(w, node, "A/"+name+"-restarted"), want, "later %s has %s as", node, name)
				}
			}
		})
	})
}

// endsIn returns how long, by a node's account, the lease of an instance lasts.
func endsIn(w *sim.World, node, name string) time.Duration {
	w.Helper()
	e := sim.Document[api.Explanation](w, node, "/v1/rollcall/apps/"+name+"/explain")
	return time.Duration(e.ExpiresInMS) * time.Millisecond
}

// A node that joins with an empty disk takes calls before it knows which level of the formats the cluster writes. At a
// lower one a drain would be an override that never ends.
func TestIntentDrainByANodeThatHasJustJoinedIsADrain(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		newestLevel(w)
		leader := w.Leader()
		node := w.Others(leader)[0]
		w.Register("A/drained", time.Hour)
		need.OK(w, w.Stop(node))
		need.Equal(w, w.Call(leader, "DELETE", "/v1/rollcall/members/"+node, "").Status, http.StatusOK, "the removal is answered")
		w.Wipe(node)
		w.Start(node)
		w.SlowDisk(node, 500*time.Millisecond) // so that it is long behind
		w.Await(sim.ReadyWithin, "it takes a call", func() bool {
			return w.Call(node, "PUT", "/v1/rollcall/apps/A/drained/override?value=OUT_OF_SERVICE&drain=true", "").Status == http.StatusOK
		})
		list := documentOf[[]api.Instance](w, w.Call(leader, "GET", "/v1/rollcall/apps?app=A", ""))
		need.That(w, len(list) == 1 && list[0].Override != nil, "the list is %+v", list)
		expect.That(w, list[0].Override.Drain, "the override is no drain")
	})
}

func TestRenewedLeaseOutlivesItsDurationOnlyIfItIsDoubled(t *testing.T) {
	const lease = 10 * time.Second
	for name, tt := range map[string]struct {
		doubled bool
		renewed time.Duration // how long a renewed lease lasts
	}{"default": {false, lease}, "doubled": {true, 2 * lease}} {
		t.Run(name, func(t *testing.T) {
			compat := func(c *config.Config) { c.Store.Settings.DoubledLease = tt.doubled }
			inBothModes(t, sim.Cluster{Nodes: 3, Configure: compat}, func(w *sim.World) {
				i := w.RegisterAt("n1", "MORTAL/registered", lease)
				w.Wait(told)
				w.GoneBy(i, lease+evicted+reach)

				i = w.RegisterAt("n1", "MORTAL/renewed", lease)
				w.AllListOnly(w.Names(), told, "renewed")
				w.RenewAt("n2", i)
				at := time.Now()
				w.Wait(renewed + expiry.TickAge) // after which followers know the leader's clock, too
				for _, n := range w.Names() {
					ends, want := endsIn(w, n, "MORTAL/renewed"), tt.renewed-time.Since(at)
					least, most := want-reach, want+reach
					if w.Mode() == config.CP {
						most += expiry.TickAge + expiry.ClockInterval
					}
					expect.That(w, ends > least && ends < most, "%s says that the lease ends in %v, want %v to %v", n, ends, least, most)
				}
				i.Lease = tt.renewed
				w.GoneBy(i, tt.renewed+evicted+reach)
			})
		})
	}
}

func TestReadOnlyCacheShowsAChangeAtTheNextMultipleOf30s(t *testing.T) {
	const every = 30 * time.Second
	cache := func(c *config.Config) { c.HTTPD.ReadOnlyCache = true }
	inBothModes(t, sim.Cluster{Nodes: 1, Configure: cache}, func(w *sim.World) {
		for _, id := range []string{"first", "second", "third"} {
			need.That(w, w.Lists("n1") != nil, "no list") // a response that was never asked for is built at once
			w.RegisterAt("n1", "ORDERS/"+id, long)
			w.Do(http.StatusOK, "n1", "GET", "/eureka/apps/ORDERS/"+id)
			next := time.Now().Truncate(every).Add(every)
			for ; time.Until(next) > reach; w.Wait(reach) {
				_, listed := w.Lists("n1")[id]
				need.That(w, !listed, "the change is listed %v before the next multiple of %v", time.Until(next), every)
			}
			w.Wait(time.Until(next) + reach)
			_, listed := w.Lists("n1")[id]
			expect.That(w, listed, "%s is not listed after the next multiple of %v", id, every)
		}
	})
}

// Upstream's threshold for a server with few clients is never exceeded, so it keeps a lone instance forever.
func TestSelfPreservationByUpstreamsFormulaKeepsALoneInstanceForEver(t *testing.T) {
	const lease = 3 * time.Second
	compat := func(c *config.Config) {
		s := &c.Store.Settings
		s.Expectation, s.DoubledLease, s.ExpectationUpdate = true, true, time.Hour.Milliseconds()
	}
	inBothModes(t, sim.Cluster{Nodes: 3, Configure: compat}, func(w *sim.World) {
		for _, n := range w.Names() {
			settings := sim.Document[map[string]any](w, n, "/v1/rollcall/settings")
			for key, want := range map[string]any{
				"eureka-compat.expectation":                      true,
				"eureka-compat.expected-client-renewal-interval": "30s",
				"self-preservation.renewal-percent-threshold":    0.85,
			} {
				expect.Equal(w, settings[key], want, "%s has %s", n, key)
			}
		}
		w.RegisterAt("n1", "MORTAL/dead", lease)
		ended := time.Now().Add(lease)
		w.Wait(lease + evicted + reach + expiry.TickAge) // after which followers know the leader's clock, too
		for ; time.Since(ended) < 3*time.Minute; w.Wait(10 * time.Second) {
			for _, n := range w.Names() {
				p := sim.Document[api.SelfPreservation](w, n, "/v1/rollcall/self-preservation")
				u := p.Upstream
				need.That(w, p.State == "on" && p.Withheld == 1 && u.Decides && !u.AllowsEviction && u.ExpectedClients == 2 && u.Threshold == 3,
					"%s says %v after the end of the lease %+v", n, time.Since(ended), p)
				need.That(w, w.ListsOnly(n, "dead"), "%s has evicted it", n)
			}
		}
	})
}

// The herd of these scenarios: its leases, how often they are renewed, and when one of them stops being fresh, which is
// two renewal intervals after its last renewal (docs/understand/self-preservation.md).
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

// preservation returns a node's report on self-preservation.
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

// turnsOn checks that self-preservation comes on in the first round after the last renewals of the silent members are
// no longer fresh, and that all nodes then report, also after the leases have ended, whom it keeps and why.
func turnsOn(w *sim.World, silent []string) {
	w.Helper()
	const before, after = herdFresh - herdEvery, herdFresh + round + expiry.ClockInterval
	began := time.Now()
	for _, n := range w.Names() {
		w.Await(time.Until(began.Add(after+look)), n+": on", func() bool { return preservation(w, n).State == "on" })
		expect.That(w, time.Since(began) >= before-look,
			"%s: on after %v, want %v to %v", n, time.Since(began), before, after)
	}
	w.Wait(time.Until(began.Add(3 * herdLease))) // rounds that would have evicted them
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
			if mode == config.CP { // otherwise each node evicts for itself
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

// sharesOf returns how many of the ended leases go in each round: at most 15 % of what is left, rounded up.
func sharesOf(leases, ended int) (shares []int) {
	for ended > 0 {
		n := min(ended, leases-leases*85/100)
		shares = append(shares, n)
		leases, ended = leases-n, ended-n
	}
	return shares
}

// wentByShares checks that instances were evicted in rounds of these shares; those of one round share their time.
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

// tellsOfTheRelease checks that a node remembers who released self-preservation, and why.
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

func TestSelfPreservationEndsWhenTheSilentReturn(t *testing.T) {
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

// Evictions are held for longer than a lease and an election last. Without consensus the node that was told dies, and
// the others know by replication. With consensus the time without a leader is added.
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
