package integration

import (
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hudl/fargo"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// actLimit is how long the end of an act with a time may take to show: more than ten times the time of the act.
const actLimit = 3 * time.Minute

// TestTimedOverrideEndsByItselfAcrossALeaderKill takes the leader away while the override holds;
// without consensus a node that has nothing to do with it.
func TestTimedOverrideEndsByItselfAcrossALeaderKill(t *testing.T) {
	t.Parallel()
	const forced = 15 * time.Second // longer than a busy cluster is without a leader
	eachMode(t, func(t *testing.T, ap bool) {
		c := StartCluster(t, Config{AP: ap})
		lost := c.Nodes[2]
		if !ap {
			lost = c.Leader()
		}
		others := c.Others(lost)
		mustRegister(t, others[0], Instance{App: "ORDERS", ID: "orders-1"})
		began := time.Now()
		response := untilNotRefused(func() Response {
			return others[0].OverrideFor("ORDERS", "orders-1", "OUT_OF_SERVICE", forced, "ann", "deploy 7")
		})
		need.OKf(t, response.is(200), "override")
		lost.Kill()
		if !ap {
			c.Leader(others...)
		}
		for _, n := range others {
			awaitStatus(t, n, "ORDERS", "orders-1", "OUT_OF_SERVICE")
			expect.OKf(t, untilNotRefused(func() Response { return n.Renew("ORDERS", "orders-1") }).is(200), "renewal while overridden")
			e, err := readUntilTaken(func() (*api.Explanation, error) { return n.Explain("ORDERS", "orders-1") })
			need.That(t, err == nil && e != nil && e.Status == "OUT_OF_SERVICE" && e.Reported == "UP" && e.Override != nil && e.Override.Author == "ann" && e.Override.Reason == "deploy 7" && e.Override.Until != 0,
				"node %s explains the override by %+v, %v, want ann's until a time", n.Name, e, err)
		}
		for _, n := range others {
			awaitStatus(t, n, "ORDERS", "orders-1", "UP")
		}
		took := time.Since(began)
		expect.That(t, took >= forced, "the override ended after %v, it was set for %v", took, forced)
		e := mustExplainAlike(t, nodesThatAgree(others), "ORDERS", "orders-1")
		got := happened(e)
		expect.That(t, slices.Equal(got, []string{"registered", "overridden", "override ended"}) && e.Override == nil,
			"explained by %+v, want no override any more", e)
	})
}

// awaitStatus waits until a node lists an instance with a status.
func awaitStatus(t *testing.T, n *Node, app, id, want string) {
	t.Helper()
	Eventually(t, actLimit, fmt.Sprintf("node %s shows %s as %q", n.Name, id, want), func() error {
		instance, err := n.Lookup(app, id)
		if err == nil && statusOf(instance) != want {
			err = fmt.Errorf("it shows %q", statusOf(instance))
		}
		return err
	})
}

func TestQuarantineHidesOnEveryNodeAndEndsByItself(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		c := StartCluster(t, withSteadyLeader(smallConfig(ap, 2))) // a stock client asks once
		last := c.Nodes[len(c.Nodes)-1]
		for _, id := range []string{"sick", "well"} {
			mustRegister(t, c.Nodes[0], Instance{App: "ORDERS", ID: id})
		}
		c.mustListEverywhere(t, "sick", "well")
		rollcall(t, "quarantine", "ORDERS/sick", "--for", "10m", "--author", "ann", "--reason", "it answers nonsense", "--addr", c.Nodes[1].URL())
		c.mustListEverywhere(t, "well")
		for _, n := range c.Nodes {
			mustHide(t, n)
		}
		expect.Slice(t, fargoSees(t, last, "ORDERS"), []string{"well"}, "fargo sees")
		rollcall(t, "quarantine", "ORDERS/sick", "--end", "--addr", last.URL())
		c.mustListEverywhere(t, "sick", "well")
		mustReturnFromQuarantine(t, c, 3*time.Second)
		expect.Slice(t, fargoSees(t, last, "ORDERS"), []string{"sick", "well"}, "fargo sees")
		want := []string{"registered", "quarantined", "quarantine ended", "quarantined", "quarantine ended"}
		expect.Slice(t, happened(mustExplainAlike(t, nodesThatAgree(c.Nodes), "ORDERS", "sick")), want, "the history is")
	})
}

// mustHide expects that no list of a node has the instance in quarantine, that its heartbeats are accepted, and that
// the node names the author of the quarantine.
func mustHide(t *testing.T, n *Node) {
	t.Helper()
	for _, list := range []string{"/eureka/apps", "/eureka/apps/ORDERS", "/eureka/vips/ORDERS", "/eureka/svips/ORDERS"} {
		response := untilNotRefused(func() Response { return n.Get(list) })
		body := string(response.Body)
		expect.That(t, response.Status == http.StatusOK && !strings.Contains(body, `"sick"`) && strings.Contains(body, `"well"`),
			"node %s: %s is %d %s, want the well one only", n.Name, list, response.Status, body)
	}
	delta, err := readUntilTaken(func() (map[string]Listed, error) { return n.ListingOf("/eureka/apps/delta") })
	expect.That(t, err == nil && delta["sick"].Action == "DELETED" && delta["well"].Action == "ADDED",
		"node %s: the delta is %+v, %v, want the hidden one as deleted", n.Name, delta, err)
	for _, single := range []string{"/eureka/apps/ORDERS/sick", "/eureka/instances/sick"} {
		expect.OKf(t, untilNotRefused(func() Response { return n.Get(single) }).is(404), "node %s: %s", n.Name, single)
	}
	expect.OKf(t, untilNotRefused(func() Response { return n.Renew("ORDERS", "sick") }).is(200), "node %s: a heartbeat in quarantine", n.Name)
	e, err := readUntilTaken(func() (*api.Explanation, error) { return n.Explain("ORDERS", "sick") })
	expect.That(t, err == nil && e != nil && e.State == "quarantined" && e.Quarantine != nil && e.Quarantine.Author == "ann" && e.Quarantine.Reason == "it answers nonsense",
		"node %s explains it by %+v, %v, want ann's quarantine", n.Name, e, err)
}

// mustReturnFromQuarantine hides the instance for a time and expects it back on every node, not
// earlier.
func mustReturnFromQuarantine(t *testing.T, c *Cluster, hidden time.Duration) {
	t.Helper()
	began := time.Now()
	need.OKf(t, untilNotRefused(func() Response { return c.Nodes[0].Quarantine("ORDERS", "sick", hidden, "ann", "once more") }).is(200), "quarantine")
	for _, n := range c.Nodes {
		awaitStatus(t, n, "ORDERS", "sick", "UP")
	}
	took := time.Since(began)
	expect.That(t, took >= hidden, "the quarantine ended after %v, it was set for %v", took, hidden)
}

// fargoSees are the sorted ids of an application that fargo, a stock client, finds at a node.
func fargoSees(t *testing.T, n *Node, app string) []string {
	t.Helper()
	quietFargo()
	f := fargoClient{conn: fargo.NewConn(n.Eureka())}
	picture, err := f.Discover(app)
	need.OKf(t, err, "fargo at %s", n.Name)
	return slices.Sorted(maps.Keys(picture))
}

// TestDrainReturnsWhenEveryNodeHasAppliedIt pauses a node, so that drain must go on waiting for it.
func TestDrainReturnsWhenEveryNodeHasAppliedIt(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		const settle = 2 * time.Second
		c := StartCluster(t, withSteadyLeader(Config{AP: ap})) // two nodes that run cannot do without one of them
		late := c.Nodes[2]
		if !ap {
			late = c.Others(c.Leader())[0]
		}
		addr := c.Others(late)[0].URL()
		mustRegister(t, c.Others(late)[0], Instance{App: "ORDERS", ID: "orders-1"})
		c.mustListEverywhere(t, "orders-1")
		late.Pause(t)
		drain := need.Got(Launch(t, filepath.Join(t.TempDir(), "log"), nil, "drain", "ORDERS/orders-1", "--settle", settle.String(), "--timeout", "50s", "--addr", addr))(t)
		for _, n := range c.Others(late) {
			awaitStatus(t, n, "ORDERS", "orders-1", "OUT_OF_SERVICE")
		}
		Pass(t, 2*settle)
		need.That(t, drain.Running(), "drain ended while %s had not applied it; it said:\n%s", late.Name, drain.Output(t))
		resumed := time.Now()
		late.Resume(t)
		drain.mustEndWell(t, ReadyLimit, "drain")
		took := time.Since(resumed)
		expect.That(t, took >= settle, "drain ended %v after the last node could apply it, the settle time is %v", took, settle)
		for _, n := range c.Nodes {
			listing, err := n.ListingOf("/eureka/apps?consistency=stale")
			expect.That(t, err == nil && listing["orders-1"].Status == "OUT_OF_SERVICE",
				"node %s, read stale, lists %+v, %v, want it out of service", n.Name, listing, err)
		}
	})
}
