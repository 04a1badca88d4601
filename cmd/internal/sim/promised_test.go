package sim_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// A follower is cut off while as many of its batches as possible are in flight. What comes then was never sent, so
// its clients need not wait for the outcome of those.
func TestWriteBehindThoseOfUnknownOutcomeIsRefusedWithinASecond(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		leader := w.Leader()
		at := w.Others(leader)[0]
		w.List(at) // it knows the leader
		w.Isolate(at)
		inFlight := config.Default().Store.InFlight
		replies := make([]sim.Reply, inFlight+20)
		var clients sync.WaitGroup
		for i := range replies {
			clients.Go(func() {
				replies[i] = w.Call(at, "POST", "/eureka/apps/QUEUED", sim.Registration("QUEUED", fmt.Sprint("q-", i), long, nil))
			})
			w.Wait(10 * time.Millisecond) // each is a batch of its own
		}
		clients.Wait()
		for i, r := range replies {
			if i < inFlight {
				expect.That(w, r.Status == http.StatusGatewayTimeout && r.Took >= store.ResultWait && r.Took <= unknownWithin,
					"write %d, on its way: %v after %v, want 504 after %v to %v", i, r, r.Took, store.ResultWait, unknownWithin)
				continue
			}
			expect.That(w, r.Status == http.StatusServiceUnavailable && r.Took >= store.NoLeaderWait && r.Took <= refusedWithin,
				"write %d, behind those on their way: %v after %v, want 503 after %v to %v", i, r, r.Took, store.NoLeaderWait, refusedWithin)
		}
		w.Heal()
		w.ReadyBy(at, caughtUpWithin)
		w.Wait(unknownWithin)
		for id := range w.List(leader) {
			var i int
			need.Got(fmt.Sscanf(id, "q-%d", &i))(w)
			expect.That(w, i < inFlight, "%s was refused, and took effect", id)
		}
	})
}

// A leader's death removes no service, and is not charged to any check.
func TestCheckOutlivesTheLeaderThatItPassedAt(t *testing.T) {
	const ttl = 10 * time.Second
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		leader := w.Leader()
		others := w.Others(leader)
		put := func(node, path, body string) {
			w.Helper()
			r := w.Call(node, "PUT", "/agent/web-1/v1/agent/"+path, body)
			need.Equal(w, r.Status, http.StatusOK, "%s at %s: %v:", path, node, r)
		}
		for _, service := range []string{"kept", "silent"} {
			put(leader, "service/register", fmt.Sprintf(`{"Name":%q,"Check":{"TTL":%q}}`, service, ttl))
			put(leader, "check/pass/service:"+service, "")
		}
		passed := time.Now()
		w.Wait(ttl / 2)
		w.Kill(leader)
		killed := time.Now()
		led := w.Led(others[0])
		expect.That(w, led.Sub(killed) <= electedWithin, "another node led after %v", led.Sub(killed))
		ends := led.Add(graceOf(ttl)) // later than its TTL from when it passed
		passing := func(node, service string) bool {
			found := sim.Document[[]struct{ Service struct{ ID string } }](w, node, "/v1/health/service/"+service+"?passing")
			return len(found) == 1
		}
		for time.Until(ends) > look {
			put(others[0], "check/pass/service:kept", "")
			for _, n := range others {
				expect.That(w, passing(n, "kept") && passing(n, "silent"), "%s lists kept as passing %v, silent %v, %v after they passed",
					n, passing(n, "kept"), passing(n, "silent"), time.Since(passed))
			}
			w.Wait(look / 2)
		}
		w.Await(time.Until(ends)+expiry.ClockInterval+look, "the silent service turns critical", func() bool { return !passing(others[1], "silent") })
		expect.That(w, passing(others[1], "kept"), "the service that was kept is not passing")
	})
}

// stoppedWithin is when a node that was told to stop has ended (docs/run/three-machines.md).
const stoppedWithin = 10 * time.Second

// Leaders are stopped as a service manager does: no call fails because of that.
func TestLeaderThatIsStoppedHandsOverUnderLoad(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		herd := w.Herd("KEPT", 6, 10*time.Second, 2*time.Second, w.Names()...)
		churn := w.Churn(6, 30*time.Millisecond, w.Names()...)
		for range 3 {
			old := w.Leader()
			herd.Use(w.Others(old)...)
			churn.Use(w.Others(old)...)
			w.Wait(time.Second)
			churn.Gap()
			began := time.Now()
			need.OK(w, w.Stop(old))
			took := time.Since(began)
			expect.That(w, took <= stoppedWithin, "the leader ended %v after it was told to", took)
			w.Wait(time.Second)
			gap := churn.Gap()
			expect.That(w, gap <= transferredWithin, "nothing was acknowledged for %v when the leader was stopped", gap)
			w.Start(old)
			w.ReadyBy(old, caughtUpWithin)
		}
		expect.Equal(w, churn.Count(sim.Refused)+churn.Count(sim.Unknown), 0, "calls that failed")
		churn.NothingLost()
		herd.NeverLost()
	})
}

// It had written nothing to its disk, and could tell nobody.
func TestApNodeThatIsStoppedLosesNothing(t *testing.T) {
	never := func(c *config.Config) { c.Store.Sync = store.SyncNone }
	sim.Run(t, sim.Cluster{Nodes: 2, Mode: config.AP, Configure: never}, func(w *sim.World) {
		var ids []string
		for _, n := range w.Names() {
			ids = append(ids, "of-"+n)
			w.Cut("n1", "n2")
			w.RegisterAt(n, "KEPT/of-"+n, long)
			began := time.Now()
			need.OK(w, w.Stop(n))
			took := time.Since(began)
			expect.That(w, took <= stoppedWithin, "%s ended %v after it was told to", n, took)
			w.Heal()
			w.Start(n)
			w.ReadyBy(n, sim.ReadyWithin)
			w.AllListOnly(w.Names(), retried, ids...)
		}
	})
}

// From the leader's death on, calls are made at the remaining nodes all the time.
func TestCallsWhileNoNodeLeadsEndInTime(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		leader := w.Leader()
		others := w.Others(leader)
		w.Register("BEFORE/before", long)
		w.Kill(leader)
		killed := time.Now()
		var calls sync.WaitGroup
		var refused, unknown atomic.Int64
		for i := 0; time.Since(killed) < electedWithin; i++ {
			at := others[i%2]
			for _, isWrite := range []bool{true, false} {
				calls.Go(func() {
					sent := time.Since(killed)
					method, path, body := "GET", "/eureka/apps", ""
					if isWrite {
						method, path, body = "POST", "/eureka/apps/DURING", sim.Registration("DURING", fmt.Sprint("d-", i), long, nil)
					}
					r := w.Call(at, method, path, body)
					within := refusedWithin
					switch {
					case r.Status == http.StatusServiceUnavailable:
						refused.Add(1)
					case r.Status == http.StatusGatewayTimeout && isWrite:
						unknown.Add(1)
						within = unknownWithin
					case r.Status/100 == 2 && isWrite:
						within = unknownWithin // it was in flight, and the next leader has it
					default:
						expect.Equal(w, r.Status/100, 2, "%s %v after the kill at %s: %v:", method, sent, at, r)
					}
					expect.That(w, r.Took <= within, "%s %v after the kill at %s: %v after %v, want it within %v", method, sent, at, r, r.Took, within)
				})
			}
			w.Wait(20 * time.Millisecond)
		}
		calls.Wait()
		w.Logf("%d calls were refused, of %d the outcome is unknown", refused.Load(), unknown.Load())
		expect.That(w, refused.Load() > 0, "no call was refused, though no node led")
	})
}

// It cannot have what is still to be stored.
func TestReadAtAFollowerWithASlowDiskIsRefusedWithinASecond(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		leader := w.Leader()
		slow, quick := w.Others(leader)[0], w.Others(leader)[1]
		w.Register("BEFORE/before", long)
		w.List(slow)
		w.SlowDisk(slow, slowest)
		refused := 0
		for began := time.Now(); time.Since(began) < 3*slowest; {
			need.That(w, w.Put(leader, "key", "", "x"), "the key was not written")
			r := w.Call(slow, "GET", "/eureka/apps", "")
			expect.That(w, (r.Status == http.StatusOK || r.Status == http.StatusServiceUnavailable) && r.Took <= refusedWithin,
				"a read at the slow follower: %v after %v", r, r.Took)
			if r.Status != http.StatusOK {
				refused++
			}
			r = w.Call(quick, "GET", "/eureka/apps", "")
			expect.That(w, r.Status == http.StatusOK && r.Took <= soon, "a read at the other follower: %v after %v", r, r.Took)
		}
		expect.That(w, refused > 0, "no read was refused, though the follower's disk is slow")
		w.SlowDisk(slow, 0)
		w.Wait(2 * slowest)
	})
}

// A leader that is written to is isolated: it stores entries that are never committed, and deletes them for good when
// it hears the next leader.
func TestEntriesThatWereNeverCommittedAreReplaced(t *testing.T) {
	for _, log := range []store.RaftLog{store.LogBolt, store.LogWAL} {
		t.Run(string(log), func(t *testing.T) {
			kind := func(c *config.Config) { c.Store.RaftLog = log }
			sim.Run(t, sim.Cluster{Nodes: 3, Configure: kind}, func(w *sim.World) {
				isolated := w.Leader()
				others := w.Others(isolated)
				w.Isolate(isolated)
				var writers sync.WaitGroup
				for i := range 20 {
					writers.Go(func() {
						w.Call(isolated, "POST", "/eureka/apps/LOST", sim.Registration("LOST", fmt.Sprint("lost-", i), long, nil))
					})
				}
				w.Led(others[0])
				var during []string
				for i := range 20 {
					during = append(during, fmt.Sprint("during-", i))
				}
				w.RegisterAllAt(others[0], "DURING", long, during...)
				writers.Wait()
				w.Heal()
				w.ReadyBy(isolated, caughtUpWithin)
				for range 2 {
					expect.That(w, w.ListsOnly(isolated, during...), "%s lists %v, want what the others acknowledged alone", isolated, w.Lists(isolated))
					w.Kill(isolated)
					w.Start(isolated)
					w.ReadyBy(isolated, sim.ReadyWithin)
				}
			})
		})
	}
}

// Nodes are killed one after the other, and one that is left shows the line of state.
func TestDashboardTellsTheTruthThroughFaults(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		leader := w.Leader()
		others := w.Others(leader)
		says := func(node string, words ...string) {
			w.Helper()
			line := ""
			w.Await(promisedLine, fmt.Sprintf("%s says %q", node, words), func() bool {
				_, line, _ = strings.Cut(w.Call(node, "GET", "/ui/nodes", "").Body, `<div id="truth"`)
				line, _, _ = strings.Cut(line, "</div>")
				line = html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(line, ""))
				return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) })
			})
		}
		says(leader, "No service is registered yet.")
		w.Register("ORDERS/orders-1", 300*time.Second)
		says(leader, "Healthy.", leader+" leads", "3 of 3 nodes agree", "one node may fail")
		w.Kill(others[0])
		says(leader, others[0]+" does not answer since", "no further node may fail")
		w.Kill(others[1])
		says(leader, "cut off from the others", "Others may go on without it")
		w.Start(others[1])
		next := w.Leader()
		says(next, others[0]+" does not answer since")
		w.Start(others[0])
		says(w.Leader(), "too short a time to know which instances are alive") // as long as the lease of 300 s
	})
}

// promisedLine is when the line of state of a page says what has happened: it looks every second, at nodes that get a
// second each.
const promisedLine = noticeAfter + 2*time.Second

// Clients at all nodes set the check of an external node, as consul-esm does, together with a counting key, which
// they compare first. Whatever a reader sees, the two come from one transaction: a refused one has set no check, and
// one of unknown outcome was performed, or was not.
func TestTransactionIsWholeOrNotThereThroughLeaderKills(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3}, func(w *sim.World) {
		const check = `{"Node":"far","CheckID":"up","Name":"is up","Status":"passing","Output":"0 by nobody"}`
		r := w.Call("n1", "PUT", "/v1/catalog/register", `{"Node":"far","Address":"192.0.2.1","Check":`+check+`}`)
		need.Equal(w, r.Status, http.StatusOK, "the registration of a node is answered %v:", r)
		need.That(w, w.Put("n1", "counter", "", "0 by nobody"), "the key was not written")
		ends := time.Now().Add(30 * time.Second)
		var clients sync.WaitGroup
		var done, refused atomic.Int64
		for _, at := range w.Names() {
			clients.Go(func() {
				for counted := 0; time.Now().Before(ends) && !w.Failed(); w.Wait(20 * time.Millisecond) {
					output, pair, ok := promisedCount(w, at)
					if !ok {
						continue
					}
					expect.Equal(w, string(pair.Value), output, "of one transaction at %s, the key:", at)
					now := 0
					expect.OK(w, expect.Err(fmt.Sscan(output, &now)))
					expect.That(w, now >= counted, "%s: the counter went back from %d to %d", at, counted, now)
					counted = now
					next := fmt.Sprintf("%d by %s", now+1, at)
					switch w.Call(at, "PUT", "/v1/txn", fmt.Sprintf(
						`[{"Check":{"Verb":"set","Check":{"Node":"far","CheckID":"up","Name":"is up","Status":"passing","Output":%q}}},
						{"KV":{"Verb":"cas","Key":"counter","Index":%d,"Value":%q}}]`, next, pair.ModifyIndex, base64.StdEncoding.EncodeToString([]byte(next)))).Status {
					case http.StatusOK:
						done.Add(1)
					case http.StatusConflict:
						refused.Add(1)
					}
				}
			})
		}
		for time.Until(ends) > 10*time.Second {
			w.Wait(5 * time.Second)
			dead := w.Leader()
			w.Kill(dead)
			w.Start(dead)
		}
		clients.Wait()
		w.Logf("%d transactions were performed, %d refused", done.Load(), refused.Load())
		expect.That(w, done.Load() > 100 && refused.Load() > 10, "%d transactions were performed, %d refused: nothing was tested", done.Load(), refused.Load())
	})
}

// promisedCount reads the check and the key in one transaction, if a leader responds.
func promisedCount(w *sim.World, node string) (output string, pair sim.Pair, ok bool) {
	w.Helper()
	r := w.Call(node, "PUT", "/v1/txn", `[{"Check":{"Verb":"get","Check":{"Node":"far","CheckID":"up"}}},{"KV":{"Verb":"get","Key":"counter"}}]`)
	if r.Status != http.StatusOK {
		return "", pair, false
	}
	var read struct {
		Results []struct {
			Check *struct{ Output string }
			KV    *sim.Pair
		}
	}
	err := json.Unmarshal([]byte(r.Body), &read)
	ok = err == nil && len(read.Results) == 2 && read.Results[0].Check != nil && read.Results[1].KV != nil
	expect.That(w, ok, "reading at %s: %v, %v", node, r, err)
	if !ok {
		return "", pair, false
	}
	return read.Results[0].Check.Output, *read.Results[1].KV, true
}
