package integration

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// index is the version of the node's registry.
func index(t *testing.T, n *Node) string {
	t.Helper()
	answer := unrefused(func() Answer { return n.Get("/eureka/apps") })
	need.That(t, answer.Status == http.StatusOK, "node %s: %v", n.HTTP, answer)
	return answer.Header.Get("X-Rollcall-Index")
}

// TestDatacentersTellEachOtherEverythingOnceWithoutEcho follows registrations, status changes and
// cancels both ways, and then expects both sides to be still: an echo would be a change.
func TestDatacentersTellEachOtherEverythingOnceWithoutEcho(t *testing.T) {
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

// mustBeStill waits until no node's registry changes over several batch delays.
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

// TestALeaderKilledInTheMiddleOfChangesLosesNoneForTheOtherDatacenter makes 5,000 changes at one
// datacenter while the node that sends them is killed.
func TestALeaderKilledInTheMiddleOfChangesLosesNoneForTheOtherDatacenter(t *testing.T) {
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
	ok := func(answer Answer) error {
		if answer.Status/100 == 2 {
			return nil
		}
		return fmt.Errorf("%s: %v", id, answer)
	}
	const lease = 3600 // seconds: nobody renews
	err := Poll(ReadyLimit, func() error { return ok(n.Register(Instance{App: "CHURN", ID: id, Duration: lease})) })
	if err == nil && mortal {
		err = Poll(ReadyLimit, func() error {
			answer := n.Cancel("CHURN", id)
			if answer.Status == http.StatusNotFound {
				return nil // a cancel whose answer was lost
			}
			return ok(answer)
		})
	}
	expect.OK(t, err)
}

// TestAnInterruptedLinkTellsItsLagAndHealsByRepair cuts two datacenters for longer than the queues and
// the change list reach.
func TestAnInterruptedLinkTellsItsLagAndHealsByRepair(t *testing.T) {
	t.Parallel()
	const long = 3600 // seconds of lease: nobody renews
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
	// After more than the queue holds, so that it waits in no task.
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
	Pass(t, 11*time.Second) // what changed less than 10 s ago, a comparison leaves to the change list
	pushOut(t, here)

	d.Heal()
	// Of the cancel no record is left, and a leader so young concludes nothing from that.
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

// pushOut makes the node forget its records of removals, by more of other instances than it remembers.
// A Eureka server tells of them, in batches, so that they are nobody else's business.
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
			answer := n.Do(Request{Method: http.MethodPost, Path: "/eureka/peerreplication/batch/", Body: []byte(body), ContentType: "application/json"})
			if answer.Status != http.StatusOK {
				return fmt.Errorf("batch %d: %v", i, answer)
			}
			return nil
		})
		need.OK(t, err)
	}
}

// TestInstancesOfADatacenterThatIsCutOffStayOrGoByPolicy has two clusters look at a third one's
// instance, which dies while the links are cut.
func TestInstancesOfADatacenterThatIsCutOffStayOrGoByPolicy(t *testing.T) {
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
					awaitListed(t, there, wantListed()) // it died long ago, and now that is told
					return
				}
				Eventually(t, 5*time.Minute, "it goes", func() error { return wantListed()(mustList(t, there)) })
			})
		})
	}
}
