package sim_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/wire"
)

// inBothModes runs a scenario with consensus and without.
func inBothModes(t *testing.T, c sim.Cluster, scenario func(w *sim.World)) {
	t.Helper()
	for _, mode := range []string{config.CP, config.AP} {
		t.Run(mode, func(t *testing.T) {
			c.Mode = mode
			sim.Run(t, c, scenario)
		})
	}
}

func TestDatacentersSendEachOtherEveryChangeOnceWithoutEcho(t *testing.T) {
	inBothModes(t, sim.Cluster{Nodes: 3, Datacenters: 2}, func(w *sim.World) {
		w.RegisterAt("n1", "ORDERS/here", long)
		w.RegisterAt("dc2-n2", "ORDERS/there", long)
		w.RegisterAt("n3", "ORDERS/mortal", long)
		arrives := told
		if w.Mode() == config.AP {
			arrives += told // from the node that hears of it to the others of its datacenter
		}
		w.AllListOnly(w.Names(), arrives, "here", "there", "mortal")
		w.Override("n2", "ORDERS/here", "OUT_OF_SERVICE")
		w.Override("dc2-n1", "ORDERS/there", "DOWN")
		w.CancelAt("n3", "ORDERS/mortal")
		w.AwaitAll(w.Names(), arrives, "has every change", func(n string) bool {
			l := w.Lists(n)
			return len(l) == 2 && l["here"].Status == "OUT_OF_SERVICE" && l["there"].Status == "DOWN"
		})
		w.Wait(told) // for the nodes of one datacenter, which send each other the changes of the other without need
		before := map[string]string{}
		for _, n := range w.Names() {
			before[n] = w.Index(n)
		}
		w.Wait(3 * config.Default().Replication.Digest)
		for _, n := range w.Names() {
			expect.Equal(w, w.Index(n), before[n], "the index of "+n)
		}
		// An echo changes nothing there, but it is sent.
		expect.Equal(w, sent(w, 1, "dc2"), 4, "changes that dc1 sent")
		expect.Equal(w, sent(w, 2, "dc1"), 2, "changes that dc2 sent")
	})
}

// sent returns how many facts but heartbeats the nodes of a datacenter have sent to another.
func sent(w *sim.World, dc int, to string) (facts int) {
	w.Helper()
	nodes := w.Datacenter(dc)
	if w.Mode() == config.CP {
		nodes = nodes[:1] // each says what the one that leads has sent
	}
	for _, n := range nodes {
		for fact, number := range w.Peer(n, to).Sent {
			if fact != "heartbeat" {
				facts += int(number)
			}
		}
	}
	return facts
}

// A removal may be the first that the other datacenter hears of at all, and what is registered next must arrive after it.
func TestRemovalIsTheFirstThatAnotherDatacenterHears(t *testing.T) {
	inBothModes(t, sim.Cluster{Nodes: 1, Datacenters: 2}, func(w *sim.World) {
		w.RegisterAt("n1", "A/a-1", long)
		w.CancelAt("n1", "A/a-1")
		w.Wait(10 * time.Second)
		for _, n := range w.Names() {
			w.Do(http.StatusOK, n, "GET", "/readyz")
		}
		w.RegisterAt("n1", "A/a-2", long)
		w.AllListOnly(w.Names(), told, "a-2")
	})
}

func TestDatacenterMissesNoChangeWhenTheOthersLeaderIsKilled(t *testing.T) {
	const clients, each = 10, 60 // registrations; every fourth is canceled
	sim.Run(t, sim.Cluster{Nodes: 3, Datacenters: 2}, func(w *sim.World) {
		leader := w.Leader()
		others := slices.DeleteFunc(w.Datacenter(1), func(n string) bool { return n == leader })
		var load sync.WaitGroup
		for c := range clients {
			load.Go(func() {
				l := &loader{w: w, nodes: others, at: c % 2}
				for k := range each {
					w.Wait(100 * time.Millisecond)
					id := fmt.Sprintf("c%d-%03d", c, k)
					body := `{"instance":{"instanceId":"` + id + `","app":"CHURN","hostName":"h","ipAddr":"10.1.1.1","status":"UP",` +
						`"dataCenterInfo":{"name":"MyOwn"},"leaseInfo":{"durationInSecs":3600,"renewalIntervalInSecs":1200}}}`
					expect.Equal(w, l.call("POST", "/eureka/apps/CHURN", body).Status, http.StatusNoContent, "register "+id)
					if k%4 == 0 { // a cancel that was not answered may have been done
						r := l.call("DELETE", "/eureka/apps/CHURN/"+id, "")
						expect.That(w, r.Status == http.StatusOK || r.Status == http.StatusNotFound, "cancel %s: %v", id, r)
					}
				}
			})
		}
		w.Wait(3 * time.Second)
		w.Kill(leader)
		load.Wait()
		here := w.Lists(others[0])
		need.Equal(w, len(here), clients*each*3/4, "instances that the sending side lists")
		took := w.AwaitAll(w.Datacenter(2), told, "lists the same", func(n string) bool { return w.AllListTheSame([]string{others[0], n}) })
		w.Logf("equal %v after the last change", took)
	})
}

// A link is cut for longer than the queue and the change list reach.
func TestDatacenterLinkThatIsCutShowsItsLagAndHealsByRepair(t *testing.T) {
	settings := func(c *config.Config) {
		c.Replication.Queue, c.Replication.Digest = 250, time.Hour
	}
	sim.Run(t, sim.Cluster{Nodes: 1, Datacenters: 2, Configure: settings}, func(w *sim.World) {
		w.RegisterAllAt("n1", "ORDERS", long, "canceled", "stays")
		w.RegisterAt("dc2-n1", "ORDERS/theirs", long)
		w.AllListOnly(w.Names(), told, "canceled", "stays", "theirs")

		w.CutDatacenters(1, 2)
		cut := time.Now()
		ids := []string{"stays", "theirs"}
		for i := range 600 {
			ids = append(ids, fmt.Sprintf("new-%03d", i))
		}
		w.RegisterAllAt("n1", "NEW", long, ids[2:]...)
		// After more changes than the queue holds, so that no task has this one.
		w.CancelAt("n1", "ORDERS/canceled")
		w.Await(flow.ReadTimeout+told, "the lag is told", func() bool { return w.Peer("n1", "dc2").State == "failing" })
		p := w.Peer("n1", "dc2")
		expect.That(w, p.Reason != "" && p.LagChanges == 601, "the peer: %+v, want 601 changes", p)
		lag, passed := time.Duration(p.LagMS)*time.Millisecond, time.Since(cut)
		expect.That(w, lag <= passed && lag > passed-reach, "the oldest has waited for %v, and the link is cut for %v", lag, passed)
		w.Wait(11 * time.Second) // a comparison leaves changes of the last 10 s to the change list
		pushOut(w, "n1")

		w.Heal()
		healing := time.Now()
		// No record of the cancel is left, and a leader so young concludes nothing from its absence.
		w.Await(healed, "dc2 has what is new", func() bool { return w.ListsOnly("dc2-n1", append(ids, "canceled")...) })
		w.Logf("healed after %v", time.Since(healing))
		w.Await(told, "the repair is told", func() bool {
			p := w.Peer("n1", "dc2")
			return p.State == "ok" && p.LagChanges == 0 && p.Repairs["too-old"] == 1 && p.LastRepair != nil && p.LastRepair.Sent >= 350
		})
		expect.That(w, w.ListsOnly("n1", ids...), "n1 lists what it had canceled")
	})
}

// pushOut makes the node forget its records of removals, by more removals of others than it remembers. They come in batches as
// from a Eureka server, so that they are passed on to no other peer.
func pushOut(w *sim.World, node string) {
	w.Helper()
	const records, batch = 100_000, 250
	for i := 0; i <= records/batch; i++ {
		var items []string
		for k := range batch {
			id := fmt.Sprintf("p%d-%d", i, k)
			items = append(items, fmt.Sprintf(`{"appName":"PUSH","id":%q,"lastDirtyTimestamp":1,"status":"UP","action":"Register",`+
				`"instanceInfo":{"instanceId":%[1]q,"app":"PUSH","hostName":"h","ipAddr":"10.0.0.1","status":"UP",`+
				`"dataCenterInfo":{"name":"MyOwn"}}},{"appName":"PUSH","id":%[1]q,"action":"Cancel"}`, id))
		}
		r := w.Call(node, "POST", "/eureka/peerreplication/batch/", `{"replicationList":[`+strings.Join(items, ",")+`]}`)
		need.Equal(w, r.Status, http.StatusOK, "batch %d: %v", i, r)
	}
}

// Two datacenters; an instance of the first dies while the links are cut. Its lease ends half a minute later at the second than at
// the first, or never as long as the link is cut.
func TestDatacenterThatIsCutOffKeepsOrLosesItsInstancesByPolicy(t *testing.T) {
	const lease, travels, silent = 10 * time.Second, 30 * time.Second, 15 * time.Second // see docs/run/datacenters.md
	for _, policy := range []string{"keep", "keep-for:1m", "expire"} {
		t.Run(policy, func(t *testing.T) {
			configure := func(c *config.Config) {
				if c.Datacenter == "dc2" {
					c.Store.Settings.OnCut = "dc1=" + policy
				}
			}
			inBothModes(t, sim.Cluster{Nodes: 1, Datacenters: 2, Configure: configure}, func(w *sim.World) {
				remote := func() bool { return w.ListsOnly("dc2-n1", "remote") }
				w.RegisterAt("n1", "ORDERS/remote", lease)
				last := time.Now()
				w.Await(told, "dc2 hears of it", remote)
				w.CutDatacenters(1, 2)
				cut := time.Now()
				linkIsCut := func() bool { return w.Peer("dc2-n1", "dc1").Incoming.Cut }
				w.Await(silent+reach, "the link counts as cut", linkIsCut)
				took, least := time.Since(cut), silent-alive-reach
				expect.That(w, took >= least, "the link counted as cut after %v, want %v at least", took, least)

				end, look := last.Add(lease+travels), evicted
				switch policy {
				case "keep":
					end = last.Add(3 * time.Minute)
				case "keep-for:1m":
					// What is spared is looked at again with each round of evictions.
					end, look = cut.Add(time.Minute), evicted+config.Default().Store.EvictionInterval
				}
				for time.Now().Before(end.Add(-5 * time.Second)) {
					need.That(w, remote(), "it is gone %v after its last renewal", time.Since(last))
					w.Wait(2 * time.Second)
				}
				if policy != "keep" {
					w.Await(time.Until(end)+look+reach, "it goes", func() bool { return w.ListsOnly("dc2-n1") })
					w.Logf("gone %v after its last renewal, %v after the cut", time.Since(last), time.Since(cut))
					return
				}
				w.Heal() // it died long ago, and the news arrives now, or nothing, where each node evicts for itself
				within := healed
				if w.Mode() == config.AP {
					within += lease + evicted
				}
				w.Await(within, "it goes", func() bool { return w.ListsOnly("dc2-n1") })
			})
		})
	}
}

// Between the nodes, and to their clients, lie 150 ms each way, from the founding on. No call is repeated.
func TestClusterOfNodesFarApartServesReadsAndWrites(t *testing.T) {
	const latency, trip = 150 * time.Millisecond, 300 * time.Millisecond
	sim.Run(t, sim.Cluster{Nodes: 3, Latency: latency}, func(w *sim.World) {
		leader := w.Leader()
		var clients sync.WaitGroup
		for _, n := range w.Names() {
			clients.Go(func() {
				for i := range 10 {
					id := fmt.Sprintf("%s-%d", n, i)
					began := time.Now()
					w.RegisterAt(n, "FAR/"+id, long)
					write := time.Since(began)
					r := w.Do(http.StatusOK, n, "GET", "/eureka/apps/FAR/"+id+"?consistency=linearizable")
					// To the node, from there to the leader, and from there to a majority; the first time with a connection each.
					expect.That(w, i == 0 || write <= 4*trip && r.Took <= 4*trip, "%s: a write took %v and a read %v", n, write, r.Took)
				}
			})
		}
		clients.Wait()
		w.Wait(time.Minute)
		expect.Equal(w, w.Leader(), leader, "the leader")
	})
}

// A message in the name of a node of the datacenter names links that do not exist. Nothing of them is stored, and what it says of
// the node's own peer is.
func TestDatacentersThatAreMadeUpAreRefusedInWords(t *testing.T) {
	peers := func(c *config.Config) { c.Replication.Datacenters = map[string]string{"dc2": "http://127.0.8.1:8761"} }
	sim.Run(t, sim.Cluster{Nodes: 1, Mode: config.AP, Configure: peers}, func(w *sim.World) {
		heard := map[string]int64{"dc2": 1}
		for i := range 900 {
			heard[fmt.Sprintf("made-up-%d", i)] = 1
		}
		for clock := range int64(3) {
			r := post(w, "n1", &wire.Message{Head: wire.Head{Datacenter: "dc1", Node: "n9", Sender: "n9", Clock: clock * 2000, Heard: heard}})
			expect.That(w, r.Status == http.StatusOK && strings.Contains(r.Body, "900 datacenters that are no peers of this node is not noted"),
				"made-up datacenters: %v, want an answer that says that they are not noted", r)
		}
		in := w.Peer("n1", "dc2").Incoming
		expect.That(w, in != nil && !in.Cut && in.HeardMS != nil && *in.HeardMS <= 2000, "the peer: %+v, want that it was heard", in)
		need.OK(w, w.Stop("n1")) // and writes everything to its disk
		kept := need.Got(os.ReadFile(filepath.Join(w.Dir("n1"), "registry.db")))(w)
		expect.That(w, bytes.Contains(kept, []byte("dc2")) && !bytes.Contains(kept, []byte("made-up-")),
			"the node's disk must have the name of its peer, and none that was made up")
	})
}

// messageFrom is a message of a cluster of datacenter dc2, with an instance that was renewed just now.
func messageFrom(sender string, clock int64, id string) *wire.Message {
	i := &registry.Instance{
		InstanceID: id, HostName: "x", App: "FAR", IPAddr: "10.0.0.9", Status: registry.Up, Port: registry.Port{Number: 80, Enabled: true},
		DataCenter: registry.DataCenter{Name: registry.MyOwn}, Duration: 3, LastDirty: 1,
	}
	return &wire.Message{
		Head:  wire.Head{Datacenter: "dc2", Node: "x1", Sender: sender, Incarnation: 7, Clock: clock},
		Items: []wire.Item{wire.ItemOf(codec.Newest, registry.Replica{Instance: i, Life: 1})},
	}
}

// A server's clock goes back by ten hours, and it does not, as Rollcall's servers do, begin another incarnation. Its messages count
// for nothing until an operator has the sender forgotten. With consensus all nodes forget it; without each does for itself.
func TestSenderThatIsForgottenIsAcceptedAgain(t *testing.T) {
	peers := func(c *config.Config) { c.Replication.Datacenters = map[string]string{"dc2": "http://127.0.8.1:8761"} }
	inBothModes(t, sim.Cluster{Nodes: 3, Configure: peers}, func(w *sim.World) {
		const sender, hours = "x-77", 3_600_000
		var clock int64
		say := func(at int64, id string, status uint64, late bool) {
			w.Helper()
			var a wire.Reply
			r := post(w, "n1", messageFrom(sender, at, id))
			need.That(w, r.Status == http.StatusOK && wire.Decode([]byte(r.Body), &a) == nil && len(a.Results) == 1, "%s: %v", id, r)
			need.That(w, uint64(a.Results[0].Status) == status && (a.Late > 9*hours) == late, "%s: %+v", id, a)
			clock++
		}
		forget := func(node, sender string, status int) {
			w.Helper()
			w.Do(status, node, "POST", "/v1/rollcall/peers/"+sender+"/forget?author=ann")
		}
		say(10*hours, "before", http.StatusOK, false)
		w.Wait(time.Minute) // the lease may have ended by the age, but for one duration after a link began
		say(clock, "silenced", http.StatusGone, true)
		senders := sim.Document[api.Peers](w, "n1", "/v1/rollcall/peers").Senders
		at := slices.IndexFunc(senders, func(s api.PeerSender) bool { return s.Sender == sender })
		need.That(w, at >= 0, "n1 knows the senders %+v", senders)
		late := time.Duration(senders[at].LateMS) * time.Millisecond
		expect.That(w, senders[at].Datacenter == "dc2" && late > 10*time.Hour-time.Minute && late < 10*time.Hour && senders[at].Late == 1,
			"of the sender is shown %+v", senders[at])

		forget("n1", "x-78", http.StatusNotFound)
		if w.Mode() == config.AP {
			forget("n2", sender, http.StatusNotFound)
			forget("n1", sender, http.StatusNoContent)
		} else {
			forget("n2", sender, http.StatusNoContent)
			w.Wait(reach) // for the entry to reach n1
		}
		say(clock, "heard", http.StatusOK, false)
		w.Do(http.StatusOK, "n1", "GET", "/eureka/apps/FAR/heard")
	})
}
