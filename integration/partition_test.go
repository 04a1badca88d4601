package integration

import (
	"net/http"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/localcluster"
)

// noticeAfter is when a node must know that its majority is gone.
const noticeAfter = 3 * time.Second

// newSlowLinkCluster starts a cluster whose nodes reach each other through proxies only, over links that take a latency each way,
// with settings for every node.
func newSlowLinkCluster(t *testing.T, latency time.Duration, settings map[string]string) (*Cluster, Network) {
	t.Helper()
	c := NewCluster(t, Config{Settings: settings})
	links := NewNetwork(t, c.Nodes, anyPair)
	links.Each(func(_, _ int, p *localcluster.Proxy) { p.SetLatency(latency) })
	c.Start()
	return c, links
}

// mustRegisterSoon registers through a node that may not have noticed a new leader yet.
func mustRegisterSoon(t *testing.T, n *Node, i Instance) {
	t.Helper()
	Eventually(t, ReadyLimit, "node "+n.Name+" registers "+i.ID, func() error {
		return n.Register(i).is(http.StatusNoContent)
	})
}
