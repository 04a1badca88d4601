package integration

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
)

// newProxiedCluster starts a cluster whose nodes reach each other through proxies only.
func newProxiedCluster(t *testing.T) (*Cluster, Network) {
	t.Helper()
	return newSlowLinkCluster(t, 0, nil)
}

// newSlowLinkCluster is newProxiedCluster with links that take a latency each way, and with settings for every node.
func newSlowLinkCluster(t *testing.T, latency time.Duration, settings map[string]string) (*Cluster, Network) {
	t.Helper()
	c := NewCluster(t, Config{Settings: settings})
	links := NewNetwork(t, c.Nodes, anyPair)
	links.Each(func(_, _ int, p *localcluster.Proxy) { p.SetLatency(latency) })
	c.Start()
	return c, links
}

// The requests that the isolated leader must refuse, and noticeAfter, are in minority_test.go.
func TestPartitionedLeaderIsReplacedRefusesAndCatchesUp(t *testing.T) {
	t.Parallel()
	c, links := newProxiedCluster(t)
	isolated := c.Leader()
	others := c.Others(isolated)
	mustRegister(t, isolated, Instance{App: "BEFORE", ID: "before"})
	links.Isolate(isolated)

	next := c.Leader(others...)
	for i, n := range others {
		mustRegisterSoon(t, n, Instance{App: "DURING", ID: fmt.Sprintf("during-%d", i)})
	}
	Pass(t, noticeAfter)
	mustKnowNoLeader(t, isolated)
	mustRefuseWithoutMajority(t, isolated)

	links.Heal()
	isolated.WaitReady(t)
	listing := mustList(t, isolated)
	for _, id := range []string{"before", "during-0", "during-1"} {
		_, listed := listing[id]
		expect.That(t, listed, "after healing, %s does not list %s; %s leads", isolated.Name, id, next.Name)
	}
	mustShowNothingRefused(t, c)
}

// TestPartitionOfALeaderInOneDirectionEndsInOneRegistry cuts what the leader receives (deaf), or what it sends, and nothing
// else. After healing there is one registry, with everything that was acknowledged in the meantime.
func TestPartitionOfALeaderInOneDirectionEndsInOneRegistry(t *testing.T) {
	t.Parallel()
	for _, deaf := range []bool{true, false} {
		t.Run(fmt.Sprintf("leader deaf %v", deaf), func(t *testing.T) {
			t.Parallel()
			c, links := newProxiedCluster(t)
			leader := c.Leader()
			l := startLoad(t, 10, 6, 3, c.Nodes)
			links.CutOneWay(leader, deaf)
			Pass(t, 2*noticeAfter)
			links.Heal()
			c.WaitReady()
			l.stop()
			l.check(t, c.Nodes)
		})
	}
}

// mustRegisterSoon registers through a node that may not have noticed a new leader yet.
func mustRegisterSoon(t *testing.T, n *Node, i Instance) {
	t.Helper()
	Eventually(t, ReadyLimit, "node "+n.Name+" registers "+i.ID, func() error {
		return n.Register(i).is(http.StatusNoContent)
	})
}
