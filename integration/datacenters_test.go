package integration

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/wire"
)

// index is the version of the node's registry.
func index(t *testing.T, n *Node) string {
	t.Helper()
	response := untilNotRefused(func() Response { return n.Get("/eureka/apps") })
	need.That(t, response.Status == http.StatusOK, "node %s: %v", n.HTTP, response)
	return response.Header.Get("X-Rollcall-Index")
}

// TestDatacentersSendEachOtherEveryChangeOnceWithoutEcho follows registrations, status changes and cancels in both
// directions, and then expects no more changes on either side: an echo would be a change.
func TestDatacentersSendEachOtherEveryChangeOnceWithoutEcho(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		d := StartDatacenters(t, 2, Config{AP: ap})
		here, there := d.Clusters[0].Nodes, d.Clusters[1].Nodes
		mustRegister(t, here[0], Instance{App: "ORDERS", ID: "here"})
		mustRegister(t, there[1], Instance{App: "ORDERS", ID: "there"})
		mustRegister(t, here[2], Instance{App: "ORDERS", ID: "mortal"})
		for _, n := range d.Nodes() {
			awaitListed(t, n, wantListed("here", "there", "mortal"))
		}
		mustOverride(t, here[1], "ORDERS", "here", "OUT_OF_SERVICE")
		mustOverride(t, there[0], "ORDERS", "there", "DOWN")
		mustCancel(t, here[2], "ORDERS", "mortal")
		for _, n := range d.Nodes() {
			awaitListed(t, n, wantListed("here", "there"))
			awaitStatus(t, n, "ORDERS", "here", "OUT_OF_SERVICE")
			awaitStatus(t, n, "ORDERS", "there", "DOWN")
		}
		mustBeStill(t, d.Nodes())
	})
}

// mustBeStill waits until no node's registry changes for as long as several batches wait.
func mustBeStill(t *testing.T, nodes []*Node) {
	t.Helper()
	Eventually(t, replicated, "no registry changes any more", func() error {
		before := map[string]string{}
		for _, n := range nodes {
			before[n.HTTP] = index(t, n)
		}
		Pass(t, 2*time.Second)
		for _, n := range nodes {
			if now := index(t, n); now != before[n.HTTP] {
				return fmt.Errorf("node %s went from %s to %s", n.HTTP, before[n.HTTP], now)
			}
		}
		return nil
	})
}

// TestDatacenterMissesNoChangeWhenTheOthersLeaderIsKilled makes 5,000 changes at one
// datacenter while the node that sends them is killed.
func TestDatacenterMissesNoChangeWhenTheOthersLeaderIsKilled(t *testing.T) {
	t.Parallel()
	const workers, each = 10, 400 // registrations, of which every fourth is canceled: 5,000 changes
	d := StartDatacenters(t, 2, Config{})
	here := d.Clusters[0]
	leader := here.Leader()
	others := here.Others(leader)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				change(t, others[(w+i)%2], fmt.Sprintf("w%d-%03d", w, i), i%4 == 0)
				if w == 0 && i == each/2 {
					leader.Kill()
				}
			}
		})
	}
	wg.Wait()
	want := statuses(mustList(t, others[0]))
	need.Equal(t, len(want), workers*each*3/4, "the sending side lists")
	began := time.Now()
	got := mustConverge(t, append(d.Clusters[1].Nodes, others...))
	t.Logf("%d instances, equal %v after the last change", len(got), time.Since(began).Round(time.Millisecond))
}

// change registers an instance, and cancels it if it is mortal, until both are acknowledged.
func change(t *testing.T, n *Node, id string, mortal bool) {
	ok := func(response Response) error {
		if response.Status/100 == 2 {
			return nil
		}
		return fmt.Errorf("%s: %v", id, response)
	}
	const lease = 3600 // seconds: no renewals
	err := Poll(ReadyLimit, func() error { return ok(n.Register(Instance{App: "CHURN", ID: id, Duration: lease})) })
	if err == nil && mortal {
		err = Poll(ReadyLimit, func() error {
			response := n.Cancel("CHURN", id)
			if response.Status == http.StatusNotFound {
				return nil // a cancel whose response was lost
			}
			return ok(response)
		})
	}
	expect.OK(t, err)
}

// TestDatacenterLinkThatIsCutShowsItsLagAndHealsByRepair cuts two datacenters for longer than the queues and
// the change list reach.
func TestDatacenterLinkThatIsCutShowsItsLagAndHealsByRepair(t *testing.T) {
	t.Parallel()
	const long = 3600 // seconds of lease: no renewals
	d := StartDatacenters(t, 2, Config{Nodes: 1, Settings: map[string]string{
		"replication.queue": "250", "replication.digest-interval": "1h", "replication.read-timeout": "2s", "replication.max-delay": "1s",
	}})
	here, there := d.Clusters[0].Nodes[0], d.Clusters[1].Nodes[0]
	mustRegister(t, here, Instance{App: "ORDERS", ID: "canceled", Duration: long})
	mustRegister(t, here, Instance{App: "ORDERS", ID: "stays", Duration: long})
	mustRegister(t, there, Instance{App: "ORDERS", ID: "theirs", Duration: long})
	for _, n := range d.Nodes() {
		awaitListed(t, n, wantListed("canceled", "stays", "theirs"))
	}

	d.Cut()
	ids := []string{"stays", "theirs"}
	for i := range 600 {
		ids = append(ids, fmt.Sprintf("new-%03d", i))
		mustRegister(t, here, Instance{App: "NEW", ID: ids[len(ids)-1], Duration: long})
	}
	// After more changes than the queue holds, so that no task has this one.
	mustCancel(t, here, "ORDERS", "canceled")
	Eventually(t, replicated, "the lag is told", func() error {
		p, err := here.Peer("dc2")
		switch {
		case err != nil:
			return err
		case p.State != "failing" || p.Reason == "" || p.LagChanges < 600 || p.LagMS <= 0:
			return fmt.Errorf("it is %+v", p)
		}
		t.Log("during the cut:", p.Reason)
		return nil
	})
	Pass(t, 11*time.Second) // a comparison leaves changes of the last 10 s to the change list
	pushOut(t, here)

	d.Heal()
	// No record of the cancel is left, and a leader so young concludes nothing from its absence.
	awaitListed(t, there, wantListed(append([]string{"canceled"}, ids...)...))
	Eventually(t, replicated, "the repair is told", func() error {
		p, err := here.Peer("dc2")
		switch {
		case err != nil:
			return err
		case p.State != "ok" || p.LagChanges != 0 || p.Repairs["too-old"] == 0 || p.LastRepair == nil || p.LastRepair.Sent < 300:
			return fmt.Errorf("it is %+v, last repair %+v", p, p.LastRepair)
		}
		return nil
	})
	awaitListed(t, here, wantListed(ids...))
}

// pushOut makes the node forget its records of removals, by removals of more other instances than it remembers. They
// come in batches as from a Eureka server, so that they are passed on to no other peer.
func pushOut(t *testing.T, n *Node) {
	t.Helper()
	const records, batch = 100_000, 250
	for i := 0; i <= records/batch; i++ {
		var items []string
		for k := range batch {
			id := fmt.Sprintf("p%d-%d", i, k)
			items = append(items, fmt.Sprintf(`{"appName":"PUSH","id":%q,"lastDirtyTimestamp":1,"status":"UP","action":"Register","instanceInfo":{"instanceId":%[1]q,`+
				`"app":"PUSH","hostName":"h","ipAddr":"10.0.0.1","status":"UP","dataCenterInfo":{"@class":"com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo","name":"MyOwn"}}}`, id))
		}
		for k := range batch {
			items = append(items, fmt.Sprintf(`{"appName":"PUSH","id":"p%d-%d","action":"Cancel"}`, i, k))
		}
		body := `{"replicationList":[` + strings.Join(items, ",") + `]}`
		err := Poll(ReadyLimit, func() error { // as a Eureka server would, after a 503
			response := n.Do(Request{Method: http.MethodPost, Path: "/eureka/peerreplication/batch/", Body: []byte(body), ContentType: "application/json"})
			return unless(response.Status == http.StatusOK, "batch %d: %v", i, response)
		})
		need.OK(t, err)
	}
}

// TestDatacenterThatIsCutOffKeepsOrLosesItsInstancesByPolicy has two clusters look at a third one's
// instance, which dies while the links are cut.
func TestDatacenterThatIsCutOffKeepsOrLosesItsInstancesByPolicy(t *testing.T) {
	t.Parallel()
	const lease = 10 // seconds, in which the other cluster has to hear of the instance, and the links are cut
	for _, tc := range []struct {
		policy string
		stays  bool
	}{{"keep", true}, {"expire", false}} {
		t.Run(tc.policy, func(t *testing.T) {
			t.Parallel()
			eachMode(t, func(t *testing.T, ap bool) {
				d := StartDatacenters(t, 2, Config{Nodes: 1, AP: ap, Settings: map[string]string{"replication.max-delay": "500ms"}})
				there := d.Clusters[1].Nodes[0]
				there.Stop(t)
				there.Settings["replication.on-cut"] = "dc1=" + tc.policy
				there.Start(t)
				there.WaitReady(t)
				mustRegister(t, d.Clusters[0].Nodes[0], Instance{App: "ORDERS", ID: "remote", Duration: lease})
				awaitListed(t, there, wantListed("remote"))
				d.Cut()
				if tc.stays {
					Eventually(t, 5*time.Minute, "the link counts as cut", func() error {
						p, err := there.Peer("dc1")
						if err == nil && (p.Incoming == nil || !p.Incoming.Cut) {
							err = errors.New("not cut")
						}
						return err
					})
					Pass(t, (lease+30)*time.Second) // after which it would go if the link were whole
					_, listed := mustList(t, there)["remote"]
					expect.That(t, listed, "it is gone")
					d.Heal()
					awaitListed(t, there, wantListed()) // it died long ago, and the news arrives now
					return
				}
				Eventually(t, 5*time.Minute, "it goes", func() error { return wantListed()(mustList(t, there)) })
			})
		})
	}
}

// Between the nodes lies 150 ms each way, from the founding on, with Raft's timeouts as they are by default.
func TestClusterOfNodesFarApartServesReadsAndWrites(t *testing.T) {
	t.Parallel()
	c, _ := newSlowLinkCluster(t, 150*time.Millisecond, nil)
	var clients sync.WaitGroup
	for _, n := range c.Nodes {
		clients.Go(func() {
			for _, id := range []string{n.Name + "-0", n.Name + "-1"} {
				err := Poll(ReadyLimit, func() error { // a busy machine may take too long for a response
					if response := n.Register(Instance{App: "FAR", ID: id}); response.Status != http.StatusNoContent {
						return fmt.Errorf("register %s at %s: %v", id, n.Name, response)
					}
					_, err := n.ListingOf("/eureka/apps?consistency=linearizable")
					return err
				})
				expect.OK(t, err)
			}
		})
	}
	clients.Wait()
}

// TestDatacentersThatAreMadeUpAreRefusedInWords sends messages in the name of a node of the datacenter that name links
// which do not exist. Nothing is stored of them, and messages about the node's own peer are stored as before.
func TestDatacentersThatAreMadeUpAreRefusedInWords(t *testing.T) {
	t.Parallel()
	n := StartCluster(t, Config{AP: true, Nodes: 1, DC: "dc1", Settings: map[string]string{"replication.datacenters": "dc2=http://" + FreeAddr(t)}}).Nodes[0]
	senders := map[string]int64{"dc2": 1}
	for i := range 900 {
		senders[fmt.Sprintf("made-up-%d", i)] = 1
	}
	for clock := range int64(3) {
		m := wire.Message{Head: wire.Head{Datacenter: "dc1", Node: "n9", Sender: "n9", Clock: clock * 2000, Heard: senders}}
		response := n.Do(Request{Method: "POST", Path: messagePath, ContentType: "application/octet-stream", Body: wire.Encode(codec.Newest, &m)})
		expect.That(t, response.Status == 200 && strings.Contains(string(response.Body), "900 datacenters that are no peers of this node is not noted"),
			"made-up datacenters: %v, want an answer that says that they are not noted", response)
	}
	peer, err := n.Peer("dc2")
	expect.That(t, err == nil && peer.Incoming != nil && !peer.Incoming.Cut, "the peer: %+v, %v, want that it was heard", peer, err)
	n.Stop(t) // and writes everything to its disk
	kept := need.Got(os.ReadFile(filepath.Join(n.Dir, "registry.db")))(t)
	expect.That(t, bytes.Contains(kept, []byte("dc2")) && !bytes.Contains(kept, []byte("made-up-")),
		"the node's disk must have the name of its peer, and none that was made up")
}

// messageFrom is a message of a cluster of datacenter dc2, with an instance that was renewed just now. Its lease is
// short: for one duration after a link began, leases that have ended are accepted.
func messageFrom(sender string, clock int64, id string) []byte {
	i := &registry.Instance{
		InstanceID: id, HostName: "x", App: "FAR", IPAddr: "10.0.0.9", Status: registry.Up, Port: registry.Port{Number: 80, Enabled: true},
		DataCenter: registry.DataCenter{Name: registry.MyOwn}, Duration: 1, LastDirty: 1,
	}
	return wire.Encode(codec.Newest, &wire.Message{
		Head:  wire.Head{Datacenter: "dc2", Node: "x1", Sender: sender, Incarnation: 7, Clock: clock},
		Items: []wire.Item{wire.ItemOf(codec.Newest, registry.Replica{Instance: i, Life: 1})},
	})
}

// sendMessage posts a message of another server, of one item.
func (n *Node) sendMessage(message []byte) (a wire.Reply, err error) {
	response := n.Do(Request{Method: "POST", Path: messagePath, ContentType: "application/octet-stream", Body: message})
	if response.Status != 200 {
		return a, fmt.Errorf("got %v", response)
	}
	if err = wire.Decode(response.Body, &a); err == nil && len(a.Results) != 1 {
		err = fmt.Errorf("%d results, want one", len(a.Results))
	}
	return a, err
}

// TestReplicationSenderThatIsForgottenIsAcceptedAgain speaks as a server whose clock went back by ten hours and which
// does not, as Rollcall's servers do, begin another incarnation. Its messages do not count until an operator has the
// sender forgotten.
func TestReplicationSenderThatIsForgottenIsAcceptedAgain(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		cfg := withSteadyLeader(smallConfig(ap, 2))
		cfg.Settings["replication.datacenters"] = "dc2=http://" + FreeAddr(t)
		c := StartCluster(t, cfg)
		deaf, other := c.Nodes[0], c.Nodes[1]
		const sender, hours = "x-77", 3_600_000
		v, err := deaf.sendMessage(messageFrom(sender, 10*hours, "before"))
		need.That(t, err == nil && v.Late == 0 && v.Results[0].Status == 200, "the first message: %+v, %v", v, err)
		var clock int64
		say := func(what string, status int) (id string) {
			t.Helper()
			Eventually(t, replicated, fmt.Sprintf("a message with what is %s has the answer %d", what, status), func() error {
				clock++
				id = fmt.Sprint(what, clock)
				v, err := deaf.sendMessage(messageFrom(sender, clock, id))
				if err == nil && (v.Results[0].Status != status || (v.Late > 9*hours) != (status == 410)) {
					err = fmt.Errorf("got %+v", v)
				}
				return err
			})
			return id
		}
		say("silenced", 410)
		_, shown, _ := strings.Cut(string(rollcall(t, "peers", "--addr", deaf.URL())), "\n"+sender)
		row := strings.Fields(shown)
		expect.That(t, len(row) >= 4 && row[0] == "dc2" && strings.HasPrefix(row[3], "9h59m"),
			"peers shows of the sender %q, want that it is of dc2 and ten hours late", shown)
		// With consensus all nodes forget it; without consensus each node does for itself.
		at := other
		if ap {
			at = deaf
			mustForgetNone(t, other, sender)
		}
		mustForgetNone(t, at, "x-78")
		expect.Equal(t, string(rollcall(t, "peers", "forget", sender, "--addr", at.URL(), "--author", "ann")), "forgotten  "+sender+"\n", "forget said")
		// The lease is so short that a busy machine may read it too late.
		Eventually(t, ReadyLimit, "its instance is there", func() error {
			id := say("heard", 200)
			response := deaf.Get(path("FAR", id))
			return unless(response.Status == 200, "%s at %s: %v", id, deaf.Name, response)
		})
	})
}

// mustForgetNone has a sender forgotten that the node has never heard.
func mustForgetNone(t *testing.T, n *Node, sender string) {
	t.Helper()
	out, err := exec.Command(Binary(t), "peers", "forget", sender, "--addr", n.URL()).CombinedOutput()
	expect.That(t, err != nil && strings.Contains(string(out), fmt.Sprintf("forget sender %q: no such sender", sender)),
		"forget of a sender that %s did not hear: %v, %q", n.Name, err, out)
}
