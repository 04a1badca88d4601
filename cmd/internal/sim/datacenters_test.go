package sim_test

import (
	"bytes"
	"encoding/json"
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
	"github.com/seed-20419f34/rollcall/replication/rollcallpeer"
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
			arrives += told // from the node that hears of it to the others in its datacenter
		}
		w.AllListOnly(w.Names(), arrives, "here", "there", "mortal")
		w.Override("n2", "ORDERS/here", "OUT_OF_SERVICE")
		w.Override("dc2-n1", "ORDERS/there", "DOWN")
		w.CancelAt("n3", "ORDERS/mortal")
		w.AwaitAll(w.Names(), arrives, "has every change", func(n string) bool {
			l := w.Lists(n)
			return len(l) == 2 && l["here"].Status == "OUT_OF_SERVICE" && l["there"].Status == "DOWN"
		})
		w.Wait(told) // for the nodes of one datacenter, which unnecessarily send each other changes from the other one
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

// sent returns how many facts other than heartbeats the nodes of a datacenter have sent to another.
func sent(w *sim.World, dc int, to string) (facts int) {
	w.Helper()
	nodes := w.Datacenter(dc)
	if w.Mode() == config.CP {
		nodes = nodes[:1] // each reports what the leading node has sent
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

// A removal may be the very first thing that the other datacenter hears, and what is registered next must arrive
// after it.
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
					if k%4 == 0 { // a cancel without a response may have been done
						r := l.call("DELETE", "/eureka/apps/CHURN/"+id, "")
						expect.That(w, r.Status == http.StatusOK || r.Status == http.StatusNotFound, "cancel %s: %v", id, r)
					}
				}
			})
		}
		w.Wait(3 * time.Second)
		w.Kill(leader)
		load.Wait()
		need.Equal(w, len(w.Lists(others[0])), clients*each*3/4, "instances that the sending side lists")
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
		// No record of the cancel is left, and so young a leader concludes nothing from its absence.
		w.Await(healed, "dc2 has what is new", func() bool { return w.ListsOnly("dc2-n1", append(ids, "canceled")...) })
		w.Logf("healed after %v", time.Since(healing))
		w.Await(told, "the repair is told", func() bool {
			p := w.Peer("n1", "dc2")
			return p.State == "ok" && p.LagChanges == 0 && p.Repairs["too-old"] == 1 && p.LastRepair != nil && p.LastRepair.Sent >= 350
		})
		expect.That(w, w.ListsOnly("n1", ids...), "n1 lists what it had canceled")
	})
}

// pushOut makes the node forget its records of removals, by more removals of others than it remembers. They arrive in
// batches as from a Eureka server, so that they are passed on to no other peer.
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

// There are two datacenters; an instance of the first dies while the links are cut. Its lease ends half a minute
// later at the second than at the first, or not as long as the link is cut.
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
					// Spared leases are examined again in each round of evictions.
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
				w.Heal() // it died long ago, and the news arrives now, or never if each node evicts for itself
				within := healed
				if w.Mode() == config.AP {
					within += lease + evicted
				}
				w.Await(within, "it goes", func() bool { return w.ListsOnly("dc2-n1") })
			})
		})
	}
}

// Messages between the nodes, and to their clients, take 150 ms each way, from the founding on. No call is repeated.
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
					// To the node, from there to the leader, and from there to a majority; the first time with a
					// connection each.
					expect.That(w, i == 0 || write <= 4*trip && r.Took <= 4*trip, "%s: a write took %v and a read %v", n, write, r.Took)
				}
			})
		}
		clients.Wait()
		w.Wait(time.Minute)
		expect.Equal(w, w.Leader(), leader, "the leader")
	})
}

// A message in the name of a node of the datacenter names links that do not exist. None of them is stored, but what
// it says of the node's own peer is.
func TestDatacentersThatAreMadeUpAreRefusedInWords(t *testing.T) {
	peers := func(c *config.Config) { c.Replication.Datacenters = map[string]string{"dc2": "http://127.0.8.1:8761"} }
	sim.Run(t, sim.Cluster{Nodes: 1, Mode: config.AP, Configure: peers}, func(w *sim.World) {
		heard := map[string]int64{"dc2": 1}
		for i := range 900 {
			heard[fmt.Sprintf("made-up-%d", i)] = 1
		}
		for clock := range int64(3) {
			r := post(w, "n1", &rollcallpeer.Message{Head: rollcallpeer.Head{Datacenter: "dc1", Node: "n9", Sender: "n9", Clock: clock * 2000, Heard: heard}})
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

// messageFrom returns a message of a cluster of datacenter dc2, with an instance that was renewed just now.
func messageFrom(sender string, clock int64, id string) *rollcallpeer.Message {
	i := &registry.Instance{
		InstanceID: id, HostName: "x", App: "FAR", IPAddr: "10.0.0.9", Status: registry.Up, Port: registry.Port{Number: 80, Enabled: true},
		DataCenter: registry.DataCenter{Name: registry.MyOwn}, Duration: 3, LastDirty: 1,
	}
	return &rollcallpeer.Message{
		Head:  rollcallpeer.Head{Datacenter: "dc2", Node: "x1", Sender: sender, Incarnation: 7, Clock: clock},
		Items: []rollcallpeer.Item{rollcallpeer.ItemOf(codec.Newest, registry.Replica{Instance: i, Life: 1})},
	}
}

// A server's clock goes back by ten hours, and unlike Rollcall's servers it does not start another incarnation. Its
// messages count for nothing until an operator has the sender forgotten. With consensus all nodes forget it; without,
// each node does so only for itself.
func TestSenderThatIsForgottenIsAcceptedAgain(t *testing.T) {
	peers := func(c *config.Config) { c.Replication.Datacenters = map[string]string{"dc2": "http://127.0.8.1:8761"} }
	inBothModes(t, sim.Cluster{Nodes: 3, Configure: peers}, func(w *sim.World) {
		const sender, hours = "x-77", 3_600_000
		var clock int64
		say := func(at int64, id string, status uint64, late bool) {
			w.Helper()
			var a rollcallpeer.Reply
			r := post(w, "n1", messageFrom(sender, at, id))
			need.That(w, r.Status == http.StatusOK && rollcallpeer.Decode([]byte(r.Body), &a) == nil && len(a.Results) == 1, "%s: %v", id, r)
			need.That(w, uint64(a.Results[0].Status) == status && (a.Late > 9*hours) == late, "%s: %+v", id, a)
			clock++
		}
		forget := func(node, sender string, status int) {
			w.Helper()
			w.Do(status, node, "POST", "/v1/rollcall/peers/"+sender+"/forget?author=ann")
		}
		say(10*hours, "before", http.StatusOK, false)
		w.Wait(time.Minute) // the lease may have ended by its age, were it not for one more duration after a link began
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

// fileRoles is the auth.file of the scenarios.
const fileRoles = `roles:
  operator: ["app * read,register,override", "operator read,write", "auth read,write", "metrics read"]
  node: [peer dc1 exchange]
tokens:
`

// inForce is how long a change of auth.file may take, see docs/run/permissions-file.md.
const inForce = 5 * time.Second

// newToken returns the text of a new token and its line of auth.file.
func newToken(t testing.TB, name, role string) (text, line string) {
	t.Helper()
	text = config.NewTokenText("")
	k := need.Got(config.TokenOf(text))(t)
	k.Name, k.Roles = name, []string{role}
	return text, string(need.Got(config.TokenItem(k))(t))
}

// writePrivate replaces a file in one step, like programs that hand out secrets.
func writePrivate(t testing.TB, path, text string) {
	t.Helper()
	need.OK(t, os.WriteFile(path+".new", []byte(text), 0o600))
	need.OK(t, os.Rename(path+".new", path))
}

func bearer(token string) string { return "Authorization: Bearer " + token }

// Three nodes replicate with tokens from a file. A node whose token is removed from the file, or that sends in
// another's name, is refused, and reports it.
func TestApNodesKnowEachOtherByTheirAuthFile(t *testing.T) {
	dir := t.TempDir()
	of := func(node, what string) string { return filepath.Join(dir, node+"."+what) }
	operator, lines := newToken(t, "ann", "operator")
	tokens, lineOf := map[string]string{}, map[string]string{}
	write := func(text string, nodes ...string) {
		for _, n := range nodes {
			writePrivate(t, of(n, "auth"), fileRoles+text)
		}
	}
	for _, n := range []string{"n1", "n2", "n3"} {
		tokens[n], lineOf[n] = newToken(t, n, "node")
		writePrivate(t, of(n, "token"), tokens[n]+"\n")
	}
	all := lines + lineOf["n1"] + lineOf["n2"] + lineOf["n3"]
	write(all, "n1", "n2", "n3")
	settings := func(c *config.Config) {
		c.Auth.Mode, c.Auth.File = "on", of(c.NodeName, "auth")
		c.Replication.TokenFiles = map[string]string{"dc1": of(c.NodeName, "token")}
	}
	sim.Run(t, sim.Cluster{Nodes: 3, Mode: config.AP, Configure: settings}, func(w *sim.World) {
		ann := bearer(operator)
		status := func(n string) api.AuthStatus { return sim.Document[api.AuthStatus](w, n, "/v1/rollcall/auth", ann) }
		peer := func(n, other string) api.Peer {
			peers := sim.Document[api.Peers](w, n, "/v1/rollcall/peers", ann).Peers
			return peers[slices.IndexFunc(peers, func(p api.Peer) bool { return p.Name == w.Address(other) })]
		}
		register := func(n, id string) {
			w.Helper()
			body := `{"instance":{"instanceId":"` + id + `","app":"ORDERS","hostName":"h","ipAddr":"10.1.1.1","status":"UP",` +
				`"dataCenterInfo":{"name":"MyOwn"},"leaseInfo":{"durationInSecs":3600,"renewalIntervalInSecs":1200}}}`
			need.Equal(w, w.Call(n, "POST", "/eureka/apps/ORDERS", body, ann).Status, http.StatusNoContent, "register %s at %s", id, n)
		}
		have := func(within time.Duration, nodes []string, number int) {
			w.Helper()
			w.AwaitAll(nodes, within, "has all", func(n string) bool { return len(w.Lists(n, ann)) == number })
		}
		register("n3", "a")
		have(told, w.Names(), 1)
		w.Do(http.StatusForbidden, "n1", "GET", "/eureka/apps", bearer(tokens["n1"]))
		w.Do(http.StatusUnauthorized, "n1", "GET", "/eureka/apps")
		s := status("n1")
		expect.That(w, s.FileDigest != "" && s.FileDigest == status("n3").FileDigest && s.FileError == "" && s.Caller.Via == "file", "status: %+v", s)
		expect.Equal(w, peer("n1", "n3").AuthFile, "same", "auth.file of n3")

		// A file with a mistake is not in force, which is reported.
		write("mode: [\n", "n1")
		w.Await(inForce, "the mistake is said", func() bool { return status("n1").FileError != "" })
		s = status("n1")
		expect.That(w, strings.Contains(s.FileError, "n1.auth") && s.Tokens == 4, "status: %+v", s)
		metrics := w.Do(http.StatusOK, "n1", "GET", "/metrics", ann).Body
		expect.That(w, strings.Contains(metrics, "rollcall_auth_file_error 1\n"), "no metric tells of the mistake")

		// n3 is excluded at n1 alone.
		write(lines+lineOf["n1"]+lineOf["n2"], "n1")
		w.Await(inForce, "the change is in force", func() bool { return status("n1").Tokens == 3 })
		w.Await(alive+told, "n3 says that it is refused", func() bool {
			p := peer("n3", "n1")
			return p.State == "failing" && strings.Contains(p.Reason, "401")
		})
		w.Await(alive+told, "the difference is shown", func() bool {
			p := peer("n1", "n3")
			return p.AuthFile == "differs" && strings.Contains(p.Reason, "auth.file")
		})
		register("n3", "b")
		have(told, []string{"n2", "n3"}, 2)
		w.Wait(told) // and before the next comparison, by which n2 tells n1 of it
		expect.Equal(w, len(w.Lists("n1", ann)), 1, "instances at n1, which believes no node that is not in its file")

		// Only n3's principal may speak in its name.
		write(all, "n1")
		have(inForce+retried, w.Names(), 2)
		writePrivate(t, of("n3", "token"), tokens["n2"])
		w.Await(alive+told, "n3 says that its name is another's", func() bool {
			p := peer("n3", "n1")
			return p.State == "failing" && strings.Contains(p.Reason, "403") && strings.Contains(p.Reason, "n3 used the name")
		})
		need.OK(w, w.Stop("n1"))
		w.Start("n1")
		w.ReadyBy("n1", 5*time.Second)
		senders := sim.Document[api.Peers](w, "n1", "/v1/rollcall/peers", ann).Senders
		at := slices.IndexFunc(senders, func(s api.PeerSender) bool { return s.Principal == "n3" })
		need.That(w, at >= 0, "after a restart n1 has forgotten whose name it is: %+v", senders)
		register("n3", "c")
		w.Wait(retried)
		for n, want := range map[string]int{"n1": 2, "n2": 2, "n3": 3} {
			expect.Equal(w, len(w.Lists(n, ann)), want, "instances at "+n)
		}
		for _, n := range []string{"n1", "n2"} {
			w.Do(http.StatusNoContent, n, "POST", "/v1/rollcall/peers/"+senders[at].Sender+"/forget?author=ann&reason=token", ann)
		}
		have(retried, w.Names(), 3)
		for name, secret := range tokens {
			expect.That(w, !strings.Contains(w.Log(), secret[21:60]), "a log has the token of %s", name)
		}
	})
}

// Every node has the file with the first operator's token, and one of them creates the operator. A restore brings
// back roles and tokens only when asked to.
func TestFirstOperatorComesFromAFileAndPermissionsSurviveARestart(t *testing.T) {
	operator, file := config.NewTokenText(""), filepath.Join(t.TempDir(), "bootstrap")
	writePrivate(t, file, operator+"\n")
	settings := func(c *config.Config) { c.Auth.Mode, c.Auth.BootstrapTokenFile = "on", file }
	sim.Run(t, sim.Cluster{Nodes: 3, Configure: settings}, func(w *sim.World) {
		const auth, snapshot = "/v1/rollcall/auth/", "/v1/rollcall/snapshot"
		first := bearer(operator)
		do := func(status int, method, path, body string) sim.Reply {
			w.Helper()
			r := w.Call("n1", method, path, body, first)
			need.That(w, r.Status == status, "%s %s: %v, want %d", method, path, r, status)
			return r
		}
		w.Await(2*time.Second, "there is an operator", func() bool { return w.Call("n1", "GET", "/v1/rollcall/auth", "", first).Status == http.StatusOK })
		do(http.StatusOK, "PUT", auth+"roles/reader", `{"rules":["app * read"]}`)
		var made api.NewToken
		need.OK(w, json.Unmarshal([]byte(do(http.StatusOK, "POST", auth+"tokens", `{"name":"ann","roles":["reader"]}`).Body), &made))
		reads := func(want int) { // at n3, and about as soon as it has the entry
			w.Helper()
			w.Wait(reach)
			w.Do(want, "n3", "GET", "/eureka/apps?consistency=stale", bearer(made.Secret))
		}
		reads(http.StatusOK)
		saved := do(http.StatusOK, "GET", snapshot, "").Body
		expect.That(w, !strings.Contains(saved, made.Secret[21:60]), "the snapshot has a secret")

		need.OK(w, w.Stop("n3"))
		w.Start("n3")
		w.ReadyBy("n3", sim.ReadyWithin)
		reads(http.StatusOK)

		restore := func(query string) (done api.Restored) {
			w.Helper()
			need.OK(w, json.Unmarshal([]byte(do(http.StatusOK, "PUT", snapshot+"?"+query+"reason=test", saved).Body), &done))
			return done
		}
		do(http.StatusOK, "DELETE", auth+"roles/reader", "")
		expect.Equal(w, restore("").Roles, 0, "roles that came back without being asked for")
		reads(http.StatusForbidden)
		done := restore("auth&")
		expect.That(w, done.Roles == 1 && done.Tokens == 0 && done.From.Tokens == 2, "restored: %+v", done)
		reads(http.StatusOK)

		do(http.StatusOK, "DELETE", auth+"tokens/"+made.Accessor, "")
		restore("auth&")
		reads(http.StatusUnauthorized)
		do(http.StatusBadRequest, "PUT", snapshot+"?auth&keys-only&reason=test", saved)
	})
}
