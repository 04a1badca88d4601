package integration

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// replicated is how long a change may take until every node has it: more than ten times the usual second, because a
// node that was away is tried again after a pause that grows.
const replicated = 60 * time.Second

// mustConverge waits until all nodes list the same instances in the same status, and returns them.
func mustConverge(t *testing.T, nodes []*Node) map[string]string {
	t.Helper()
	var all map[string]string
	Eventually(t, replicated, "all nodes list the same", func() error {
		all = nil
		for _, n := range nodes {
			listing, err := n.Listing()
			if err != nil {
				return err
			}
			shown := statuses(listing)
			if all == nil {
				all = shown
			}
			if !maps.Equal(all, shown) {
				return fmt.Errorf("node %s lists %s, node %s %s", nodes[0].HTTP, summary(all), n.HTTP, summary(shown))
			}
		}
		return nil
	})
	return all
}

// statuses are the listed instances, by id.
func statuses(listing map[string]Listed) map[string]string {
	shown := make(map[string]string, len(listing))
	for id, instance := range listing {
		shown[id] = instance.Status + " " + instance.Overridden
	}
	return shown
}

func summary(shown map[string]string) string {
	if len(shown) > 20 {
		return fmt.Sprintf("%d instances", len(shown))
	}
	return fmt.Sprint(shown)
}

func wantListed(ids ...string) func(map[string]Listed) error {
	slices.Sort(ids)
	return func(listing map[string]Listed) error {
		got := slices.Sorted(maps.Keys(listing))
		return unless(slices.Equal(got, ids), "listed are %d: %.300s, want %d: %.300s", len(got), strings.Join(got, " "), len(ids), strings.Join(ids, " "))
	}
}

// awaitListed waits until a node's listing is as it should be.
func awaitListed(t *testing.T, n *Node, want func(map[string]Listed) error) {
	t.Helper()
	Eventually(t, replicated, "the listing of node "+n.HTTP, func() error {
		listing, err := n.Listing()
		if err != nil {
			return err
		}
		return want(listing)
	})
}

func TestWithoutConsensusNodesShareRegistrationsAndGoOnWithoutAnother(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{AP: true})
	mustRegister(t, c.Nodes[0], Instance{App: "ORDERS", ID: "first"})
	began := time.Now()
	for _, n := range c.Nodes[1:] {
		awaitListed(t, n, wantListed("first"))
	}
	t.Logf("on the others after %v", time.Since(began).Round(time.Millisecond))

	away := c.Nodes[2]
	away.Stop(t)
	mustRegister(t, c.Nodes[1], Instance{App: "ORDERS", ID: "second"})
	awaitListed(t, c.Nodes[0], wantListed("first", "second"))
	mustCancel(t, c.Nodes[0], "ORDERS", "first")
	awaitListed(t, c.Nodes[1], wantListed("second"))

	away.Start(t)
	away.WaitReady(t)
	listing, err := away.Listing()
	if err == nil {
		err = wantListed("second")(listing)
	}
	expect.OKf(t, err, "the node that was away says that it is ready, and")
}

func TestWithoutConsensusALoneNodeKeepsWhatItAcknowledgedBeforeAKill(t *testing.T) {
	t.Parallel()
	n := StartCluster(t, Config{AP: true, Nodes: 1, Settings: map[string]string{"data.sync": "always"}}).Nodes[0]
	var ids []string
	for i := range 20 {
		ids = append(ids, fmt.Sprintf("orders-%02d", i))
		mustRegister(t, n, Instance{App: "ORDERS", ID: ids[i]})
	}
	mustCancel(t, n, "ORDERS", ids[0])
	mustOverride(t, n, "ORDERS", ids[1], "OUT_OF_SERVICE")
	n.Kill()
	n.Start(t)
	n.WaitReady(t)
	listing := mustList(t, n)
	expect.OK(t, wantListed(ids[1:]...)(listing))
	got := listing[ids[1]]
	expect.That(t, got.Status == "OUT_OF_SERVICE" && got.Overridden == "OUT_OF_SERVICE", "the overridden instance is %+v", got)
}

func TestWithoutConsensusLinearizableReadsAreNotOffered(t *testing.T) {
	t.Parallel()
	n := StartCluster(t, Config{AP: true, Nodes: 1}).Nodes[0]
	for _, path := range []string{"/eureka/apps?consistency=linearizable", "/v1/rollcall/apps?consistency=leader"} {
		response := n.Get(path)
		expect.That(t, response.Status == http.StatusNotImplemented && len(response.Body) != 0, "%s: %v, want 501 with a sentence", path, response)
	}
	if response := n.Get("/eureka/apps"); response.Header.Get("X-Rollcall-Consistency") != "stale" || response.Header.Get("X-Rollcall-Age") == "" {
		t.Errorf("a plain read is labelled %v", response.Header)
	}
}

// newSeparable lays out nodes without consensus that reach each other through proxies only.
func newSeparable(t *testing.T, nodes int) (*Cluster, Network) {
	t.Helper()
	c := NewCluster(t, Config{AP: true, Nodes: nodes, Settings: map[string]string{"replication.digest-interval": "2s"}})
	links := NewNetwork(t, c.Nodes, anyPair)
	c.Start()
	return c, links
}

// TestWithoutConsensusBothSidesOfACutAcceptWritesAndConverge registers, cancels and overrides on both sides of a cut.
func TestWithoutConsensusBothSidesOfACutAcceptWritesAndConverge(t *testing.T) {
	t.Parallel()
	c, links := newSeparable(t, 3)
	alone, pair := c.Nodes[0], c.Nodes[1:]
	want := map[string]string{}
	for i := range 30 {
		id := fmt.Sprintf("before-%02d", i)
		mustRegister(t, c.Nodes[i%3], Instance{App: "BEFORE", ID: id})
		want[id] = "UP UNKNOWN"
	}
	mustConverge(t, c.Nodes)

	links.Isolate(alone)
	for i := range 30 {
		id := fmt.Sprintf("during-%02d", i)
		mustRegister(t, c.Nodes[i%3], Instance{App: "DURING", ID: id})
		want[id] = "UP UNKNOWN"
	}
	for i := range 10 { // five on either side
		id, n := fmt.Sprintf("before-%02d", i), []*Node{alone, pair[0]}[i%2]
		mustCancel(t, n, "BEFORE", id)
		delete(want, id)
	}
	for i := 10; i < 20; i++ {
		id, n := fmt.Sprintf("before-%02d", i), []*Node{alone, pair[1]}[i%2]
		mustOverride(t, n, "BEFORE", id, "OUT_OF_SERVICE")
		want[id] = "OUT_OF_SERVICE OUT_OF_SERVICE"
	}
	// The same instance on both sides: registered anew here, overridden there. Both must last.
	mustRegister(t, alone, Instance{App: "BEFORE", ID: "before-20", Metadata: map[string]string{"version": "2"}})
	mustOverride(t, pair[0], "BEFORE", "before-20", "OUT_OF_SERVICE")
	want["before-20"] = "OUT_OF_SERVICE OUT_OF_SERVICE"
	links.Heal()
	began := time.Now()
	if got := mustConverge(t, c.Nodes); !maps.Equal(got, want) {
		Eventually(t, replicated, "the nodes have everything of both sides", func() error {
			got = mustConverge(t, c.Nodes)
			return unless(maps.Equal(got, want), "listed are %v\nwant %v", got, want)
		})
	}
	t.Logf("converged %v after healing", time.Since(began).Round(time.Millisecond))
	for _, n := range c.Nodes {
		instance, err := n.Lookup("BEFORE", "before-20")
		expect.That(t, err == nil && instance != nil && instance.Metadata["version"] == "2",
			"node %s shows %+v, %v of what was registered anew on one side", n.Name, instance, err)
		mustAgreeWithPeers(t, n)
	}
}

// mustAgreeWithPeers expects a node to find no difference between itself and its peers.
func mustAgreeWithPeers(t *testing.T, n *Node) {
	t.Helper()
	all, err := n.Peers()
	need.That(t, err == nil && len(all.Peers) != 0, "peers of node %s: %+v, %v", n.Name, all, err)
	for _, p := range all.Peers {
		Eventually(t, replicated, "node "+n.Name+" and "+p.Name+" are equal", func() error {
			diff, err := n.DiffWith(p.Name)
			if err == nil && diff.Apps+diff.Missing+diff.Extra != 0 {
				err = fmt.Errorf("they differ: %+v", diff)
			}
			return err
		})
	}
}

// TestWithoutConsensusSelfPreservationHoldReachesTheOtherNodes: without consensus each node has its own
// self-preservation, but an operator's act holds on all.
func TestWithoutConsensusSelfPreservationHoldReachesTheOtherNodes(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{AP: true})
	hold := Request{Method: http.MethodPost, Path: "/v1/rollcall/self-preservation/hold?for=10m&author=ann&reason=move"}
	need.OKf(t, c.Nodes[0].Do(hold).is(200), "hold")
	for _, n := range c.Nodes {
		Eventually(t, replicated, "node "+n.Name+" is held", func() error {
			p, err := n.Preservation()
			if err == nil && (p.State != "held" || p.Author != "ann" || p.Note != "move") {
				err = errors.New(p.State + " by " + p.Author)
			}
			return err
		})
	}
}

// TestWithoutConsensusNodesStartedTogetherDoNotWaitForACopy starts nodes together, at first with nothing, then each with what no
// other one has heard of.
func TestWithoutConsensusNodesStartedTogetherDoNotWaitForACopy(t *testing.T) {
	t.Parallel()
	const copyWait = 10 * time.Minute // longer than anything here is waited for
	began := time.Now()
	c := StartCluster(t, Config{AP: true, Settings: map[string]string{"replication.copy-wait": copyWait.String(), "data.sync": "always"}})
	t.Logf("ready %v after the first start", time.Since(began))
	for _, n := range c.Nodes {
		mustRegister(t, n, Instance{App: "TOGETHER", ID: "of-" + n.Name, Duration: 600})
	}
	for _, n := range c.Nodes {
		n.Kill()
	}
	began = time.Now()
	c.Start()
	t.Logf("ready %v after all were killed and started", time.Since(began))
	for _, n := range c.Nodes {
		own := mustList(t, n)
		_, kept := own["of-"+n.Name]
		expect.That(t, kept, "%s has lost what was on its own disk: %v", n.Name, own)
	}
	for _, n := range c.Nodes {
		Eventually(t, replicated, "every node has what the others had on their disks", func() error {
			all, err := n.Listing()
			if err != nil {
				return err
			}
			return notYet(len(all), len(c.Nodes))
		})
	}
}
