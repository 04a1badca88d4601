package sim_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/rollcallpeer"
	"github.com/seed-20419f34/rollcall/store"
)

// The bounds of replication, from the settings.
var (
	flow = config.Default().Replication.Flow
	// told is how long a change takes to reach the peers while nothing fails.
	told = flow.BatchDelay + reach
	// renewed is the same for a renewal, which first waits for the next look at renewals.
	renewed = flow.BatchDelay + told
	// healed is how long it takes after the end of a cut: the next sign of life ends the pause between two tries.
	healed = alive + told
	// retried is how long it takes after a peer refused what it is sent: the longest pause may just have begun.
	retried = flow.MaxDelay + told
)

const (
	// reach is how long calls take over links of 1 ms, and how much later than that a scenario looks.
	reach = 100 * time.Millisecond
	// evicted is how often leases are examined, see docs/understand/leases.md.
	evicted = 100 * time.Millisecond
	// alive is how often a server sends something to its peers, see docs/reference/protocol/replication.md.
	alive = 5 * time.Second
	// long is a lease that does not end in a scenario.
	long = time.Hour
)

func TestApNodesShareRegistrationsAndGoOnWithoutAnother(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3, Mode: config.AP}, func(w *sim.World) {
		w.RegisterAt("n1", "ORDERS/first", long)
		w.AllListOnly(w.Names(), told, "first")

		need.OK(w, w.Stop("n3"))
		others := []string{"n1", "n2"}
		w.RegisterAt("n2", "ORDERS/second", long)
		w.AllListOnly(others, told, "first", "second")
		w.CancelAt("n1", "ORDERS/first")
		w.AllListOnly(others, told, "second")

		w.Start("n3")
		w.ReadyBy("n3", time.Second)
		expect.That(w, w.ListsOnly("n3", "second"), "n3 is ready, and lists %v", w.Lists("n3"))
	})
}

func TestApNodeThatIsKilledHasWhatDataSyncPromises(t *testing.T) {
	for _, tt := range []struct {
		sync store.Sync
		ago  time.Duration // since the last changes that are promised
	}{{store.SyncAlways, 0}, {store.SyncInterval, config.Default().Store.SyncInterval}} {
		t.Run(fmt.Sprint(tt.sync), func(t *testing.T) {
			syncs := func(c *config.Config) { c.Store.Sync = tt.sync }
			sim.Run(t, sim.Cluster{Nodes: 1, Mode: config.AP, Configure: syncs}, func(w *sim.World) {
				var ids []string
				for i := range 20 {
					ids = append(ids, fmt.Sprintf("orders-%02d", i))
				}
				w.RegisterAllAt("n1", "ORDERS", long, ids...)
				w.CancelAt("n1", "ORDERS/"+ids[0])
				w.Override("n1", "ORDERS/"+ids[1], "OUT_OF_SERVICE")
				w.Wait(tt.ago)
				w.Kill("n1")
				w.Start("n1")
				w.ReadyBy("n1", time.Second)
				expect.That(w, w.ListsOnly("n1", ids[1:]...), "n1 lists %v", w.Lists("n1"))
				expect.Equal(w, w.Lists("n1")[ids[1]].String(), "OUT_OF_SERVICE OUT_OF_SERVICE", "the overridden instance")
			})
		})
	}
}

func TestApNodeOffersNoFresherReads(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 1, Mode: config.AP}, func(w *sim.World) {
		for _, path := range []string{"/eureka/apps?consistency=linearizable", "/v1/rollcall/apps?consistency=leader"} {
			expect.That(w, w.Do(http.StatusNotImplemented, "n1", "GET", path).Body != "", "%s is refused without a word", path)
		}
		h := w.Do(http.StatusOK, "n1", "GET", "/eureka/apps").Header
		expect.That(w, h.Get("X-Rollcall-Consistency") == "stale" && h.Get("X-Rollcall-Age") != "", "a plain read is labelled %v", h)
	})
}

func TestBothSidesOfACutAcceptWritesAndConverge(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3, Mode: config.AP}, func(w *sim.World) {
		want, all := map[string]string{}, w.Names()
		for i := range 30 {
			id := fmt.Sprintf("before-%02d", i)
			w.RegisterAt(all[i%3], "BEFORE/"+id, long)
			want[id] = "UP UNKNOWN"
		}
		w.Wait(told)

		w.Isolate("n1")
		for i := range 30 {
			id := fmt.Sprintf("during-%02d", i)
			w.RegisterAt(all[i%3], "DURING/"+id, long)
			want[id] = "UP UNKNOWN"
		}
		for i := range 10 { // five on either side
			id := fmt.Sprintf("before-%02d", i)
			w.CancelAt(all[i%2], "BEFORE/"+id)
			delete(want, id)
		}
		for i := 10; i < 20; i++ {
			id := fmt.Sprintf("before-%02d", i)
			w.Override([]string{"n1", "n3"}[i%2], "BEFORE/"+id, "OUT_OF_SERVICE")
			want[id] = "OUT_OF_SERVICE OUT_OF_SERVICE"
		}
		// The same instance on both sides: registered anew here, overridden there. Both must last.
		w.RegisterAt("n1", "BEFORE/before-20", long, "version", "2")
		w.Override("n2", "BEFORE/before-20", "OUT_OF_SERVICE")
		want["before-20"] = "OUT_OF_SERVICE OUT_OF_SERVICE"

		// So that the pauses between tries have grown to their bound, and the cut ends at any moment of one.
		w.Wait(3*time.Minute + rand.N(flow.MaxDelay))
		w.Heal()
		took := w.AwaitAll(all, healed, "has what was done on both sides", func(n string) bool {
			listed := w.Lists(n)
			same := len(listed) == len(want) && listed["before-20"].Metadata["version"] == "2"
			for id, s := range listed {
				same = same && s.String() == want[id]
			}
			return same
		})
		w.Logf("converged %v after the end of the cut", took)
		for _, n := range all {
			w.NoDifference(n)
		}
	})
}

func TestHoldOfSelfPreservationReachesTheOtherApNodes(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3, Mode: config.AP}, func(w *sim.World) {
		w.Do(http.StatusOK, "n1", "POST", "/v1/rollcall/self-preservation/hold?for=10m&author=ann&reason=move")
		w.AwaitAll(w.Names(), told, "is held", func(n string) bool {
			p := sim.Document[api.SelfPreservation](w, n, "/v1/rollcall/self-preservation")
			return p.State == "held" && p.Author == "ann" && p.Note == "move"
		})
	})
}

// Nodes that start together do not wait for a copy: the first by name goes on, and the others, which ask again every
// 200 ms, copy from it.
func TestApNodesThatStartTogetherDoNotWaitForACopy(t *testing.T) {
	settings := func(c *config.Config) { c.Store.Sync, c.Replication.CopyWait = store.SyncAlways, 10*time.Minute }
	sim.Run(t, sim.Cluster{Nodes: 3, Mode: config.AP, Configure: settings}, func(w *sim.World) {
		for _, n := range w.Names() {
			w.RegisterAt(n, "TOGETHER/of-"+n, long)
		}
		for _, n := range w.Names() {
			w.Kill(n)
		}
		for _, n := range w.Names() {
			w.Start(n)
		}
		started := time.Now()
		for _, n := range w.Names() {
			w.ReadyBy(n, time.Second-time.Since(started))
			_, kept := w.Lists(n)["of-"+n]
			expect.That(w, kept, "%s has lost what was on its own disk: %v", n, w.Lists(n))
		}
		w.AllListOnly(w.Names(), told, "of-n1", "of-n2", "of-n3")
	})
}

// A node that cannot be reached may know more, so the others wait for it, as long as the setting says.
func TestApNodeThatStartsWaitsForOneThatCannotBeReached(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3, Mode: config.AP}, func(w *sim.World) {
		for _, n := range w.Names() {
			need.OK(w, w.Stop(n))
		}
		w.Start("n1")
		w.Start("n2")
		started := time.Now()
		w.ReadyBy("n1", time.Minute)
		wait := config.Default().Replication.CopyWait
		took := time.Since(started)
		expect.That(w, took >= wait && took < wait+time.Second, "n1 was ready after %v; the setting says %v", took, wait)
	})
}

// loader is a client of a load that goes on at the next node when one does not respond.
type loader struct {
	w     *sim.World
	nodes []string
	at    int
	moved bool // since its last registration
}

func (l *loader) call(method, path, body string) sim.Reply {
	for {
		r := l.w.Call(l.nodes[l.at], method, path, body)
		if r.Status != 0 && r.Status < 500 {
			return r
		}
		l.at, l.moved = (l.at+1)%len(l.nodes), true
		l.w.Wait(100 * time.Millisecond)
	}
}

// Registrations that only a dead node knew come back with the node, because its disk has what it acknowledged; those
// that were canceled meanwhile do not.
func TestApNodesKilledUnderLoadLoseNothing(t *testing.T) {
	always := func(c *config.Config) { c.Store.Sync = store.SyncAlways }
	sim.Run(t, sim.Cluster{Nodes: 3, Mode: config.AP, Configure: always}, func(w *sim.World) {
		var mu sync.Mutex
		fates := map[string]bool{} // whether it must be listed
		done := make(chan struct{})
		var load sync.WaitGroup
		for c := range 6 {
			load.Go(func() {
				l := &loader{w: w, nodes: w.Names(), at: c % 3}
				for k := 0; ; k++ {
					select {
					case <-done:
						return
					case <-time.After(time.Duration(rand.IntN(400)) * time.Millisecond):
					}
					id := fmt.Sprintf("c%d-%03d", c, k)
					path, fate := "/eureka/apps/LOAD/"+id, true
					body := `{"instance":{"instanceId":"` + id + `","app":"LOAD","hostName":"h","ipAddr":"10.1.1.1","status":"UP",` +
						`"dataCenterInfo":{"name":"MyOwn"},"leaseInfo":{"durationInSecs":3600,"renewalIntervalInSecs":1200}}}`
					l.moved = false
					expect.Equal(w, l.call("POST", "/eureka/apps/LOAD", body).Status, http.StatusNoContent, "register "+id)
					if k%2 == 0 {
						r := l.call("DELETE", path, "")
						if l.moved {
							// the other node may not know it yet, or the first may have done it without a response
							continue
						}
						expect.Equal(w, r.Status, http.StatusOK, "cancel "+id)
						fate = false
					}
					mu.Lock()
					fates[id] = fate
					mu.Unlock()
				}
			})
		}
		for turn := range 6 {
			w.Wait(time.Second + time.Duration(rand.IntN(1000))*time.Millisecond)
			victim := w.Names()[turn%3]
			w.Kill(victim)
			w.Wait(3 * time.Second)
			w.Start(victim)
			w.ReadyBy(victim, time.Second)
		}
		w.Wait(2 * time.Second)
		close(done)
		load.Wait()
		w.Wait(healed)
		expect.That(w, w.AllListTheSame(w.Names()), "the nodes list different instances")
		listed := w.Lists("n1")
		for id, want := range fates {
			_, is := listed[id]
			expect.That(w, is == want, "%s is listed: %t, want %t", id, is, want)
		}
		for _, n := range w.Names() {
			w.NoDifference(n)
		}
	})
}

// A node that is cut off evicts an instance that renews at another. What its client says there afterwards is older
// than what it then says at the other node, and the operator's override, which the node has forgotten, lasts.
func TestEvictionOfALiveInstanceUndoesNoNewerWriteOrOverride(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3, Mode: config.AP}, func(w *sim.World) {
		const lease = 10 * time.Second
		w.KeepAt("n2", "HERD/a", lease)
		w.Override("n2", "HERD/a", "OUT_OF_SERVICE")
		shows := func(version, override string) func(string) bool {
			return func(n string) bool {
				s := w.Lists(n)["a"]
				return s.Metadata["version"] == version && s.Overridden == override
			}
		}
		w.AwaitAll(w.Names(), told, "has the override", shows("", "OUT_OF_SERVICE"))

		w.Isolate("n1")
		cut := time.Now()
		w.Await(lease+evicted+reach, "n1 evicts it", func() bool { return w.ListsOnly("n1") })
		took, least := time.Since(cut), lease-lease/3-renewed
		expect.That(w, took >= least, "n1 evicted it %v after the cut, want %v at least", took, least)
		w.RegisterAt("n1", "HERD/a", lease, "version", "2")
		w.RegisterAt("n2", "HERD/a", lease, "version", "3")
		expect.That(w, shows("2", "UNKNOWN")("n1"), "n1 shows %+v", w.Lists("n1"))
		w.Heal()
		w.AwaitAll(w.Names(), healed, "has what was said last", shows("3", "OUT_OF_SERVICE"))
		for _, n := range w.Names() {
			w.NoDifference(n)
		}
	})
}

// A node misses that an instance was canceled and registered again. A registration that the client sends to that node
// later is newer, and the override that went with the cancel stays removed.
func TestCancelThatANodeMissedIsOlderThanWhatTheClientSaysLater(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 3, Mode: config.AP}, func(w *sim.World) {
		w.RegisterAt("n2", "HERD/a", long)
		w.Override("n2", "HERD/a", "OUT_OF_SERVICE")
		w.AwaitAll(w.Names(), told, "has the override", func(n string) bool { return w.Lists(n)["a"].Overridden == "OUT_OF_SERVICE" })

		w.Isolate("n1")
		w.CancelAt("n2", "HERD/a")
		w.RegisterAt("n2", "HERD/a", long, "version", "2")
		w.RegisterAt("n1", "HERD/a", long, "version", "3")
		w.Heal()
		w.AwaitAll(w.Names(), healed, "has what was said last", func(n string) bool {
			s := w.Lists(n)["a"]
			return s.Metadata["version"] == "3" && s.Overridden == "UNKNOWN"
		})
		for _, n := range w.Names() {
			w.NoDifference(n)
		}
	})
}

// post sends a node a message of another server.
func post(w *sim.World, node string, m *rollcallpeer.Message) sim.Reply {
	w.Helper()
	return w.Call(node, "POST", "/v1/rollcall/replication", string(rollcallpeer.Encode(codec.Newest, m)), "Content-Type: application/octet-stream")
}

// Without access control, nothing proves which sender may use a name. But messages in another node's name, whose
// clocks are far ahead, must not keep a node from hearing the real one, at once and after a restart.
func TestMessageInAnotherNodesNameDoesNotShutThatNodeOut(t *testing.T) {
	sim.Run(t, sim.Cluster{Nodes: 2, Mode: config.AP}, func(w *sim.World) {
		const lease = 10 * time.Second
		w.KeepAt("n2", "HERD/a", lease)
		w.KeepAt("n2", "HERD/b", lease)
		w.AllListOnly(w.Names(), told, "a", "b")

		var state rollcallpeer.State
		need.OK(w, rollcallpeer.ReadFrame(strings.NewReader(w.Do(http.StatusOK, "n2", "GET", "/v1/rollcall/replication/state?datacenter=dc1").Body), &state))
		const years = 9 * 365 * 24 * 60 * 60 * 1000
		for clock, want := range map[int64]int{math.MaxInt64: http.StatusBadRequest, years: http.StatusOK} {
			r := post(w, "n1", &rollcallpeer.Message{Head: rollcallpeer.Head{
				Datacenter: state.Datacenter, Node: "n2", Sender: state.Sender, Incarnation: math.MaxUint64, Clock: clock,
			}})
			expect.Equal(w, r.Status, want, "a clock of %d ms: %v", clock, r)
			expect.That(w, want == http.StatusOK || strings.Contains(r.Body, "no lease clock has run for longer"), "a clock of %d ms: %v", clock, r)
		}
		w.RegisterAt("n2", "ORDERS/new", long)
		w.AllListOnly(w.Names(), told, "a", "b", "new")
		for range 2 {
			for until := time.Now().Add(3 * lease); time.Now().Before(until); w.Wait(250 * time.Millisecond) {
				need.That(w, w.ListsOnly("n1", "a", "b", "new"), "n1 does not hear the renewals: it lists %v", w.Lists("n1"))
			}
			need.OK(w, w.Stop("n1"))
			w.Start("n1")
			w.ReadyBy("n1", time.Second)
		}
	})
}
