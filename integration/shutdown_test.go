package integration

import (
	"testing"
	"time"
)

// TestLeaderStopsGracefullyUnderLoad stops the leader as a service manager does: it hands leadership
// over, answers who waits, and nothing that was acknowledged is lost.
func TestLeaderStopsGracefullyUnderLoad(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{})
	leader := c.Leader()
	followers := c.Others(leader)
	l := startLoad(t, 10, 10, 4, followers)
	began := time.Now()
	leader.Stop(t)
	t.Logf("the leader ended %v after SIGTERM", time.Since(began))
	next := c.Leader(followers...)
	t.Logf("%s led %v after SIGTERM", next.Name, time.Since(began))
	l.awaitProgress(t)
	leader.Start(t)
	c.WaitReady()
	l.stop()
	l.check(t, c.Nodes)
}

// TestANodeWithoutConsensusStopsGracefullyUnderLoad: what it acknowledged and has not told yet it has on
// disk, and tells it when it is back.
func TestANodeWithoutConsensusStopsGracefullyUnderLoad(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{AP: true, Nodes: 2, Settings: map[string]string{"replication.max-delay": "2s", "data.sync": "none"}})
	l := startLoad(t, 10, 10, 4, c.Nodes)
	for _, n := range c.Nodes {
		l.awaitProgress(t)
		began := time.Now()
		n.Stop(t)
		t.Logf("%s ended %v after SIGTERM", n.Name, time.Since(began))
		l.awaitProgress(t)
		n.Start(t)
		n.WaitReady(t)
	}
	l.awaitProgress(t)
	l.stop()
	mustConverge(t, c.Nodes)
	l.check(t, c.Nodes)
}
