package integration

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// killLeader ends the leader as kill -9 does, waits for another one, starts the dead node again and
// waits until it has caught up. The load goes through followers throughout.
func killLeader(t *testing.T, c *Cluster, l *load) {
	t.Helper()
	dead := c.Leader()
	others := c.Others(dead)
	l.use(others)
	dead.Kill()
	leader := c.Leader(others...)
	l.use(c.Others(dead, leader))
	l.awaitProgress(t)
	dead.Start(t)
	dead.WaitReady(t)
	l.use(c.Others(leader))
	l.awaitProgress(t)
}

// TestKilledLeadersOfLogsOfBothKindsLoseNothing kills leaders whose logs are files: what a kill leaves of them is read again.
func TestKilledLeadersOfLogsOfBothKindsLoseNothing(t *testing.T) {
	t.Parallel()
	// With fewer trailing entries a node that comes back on a busy machine may never get a snapshot whose next entry is still there.
	often := map[string]string{"raft.snapshot-threshold": "100", "raft.snapshot-interval": "500ms", "raft.trailing-logs": "1000"}
	c := StartCluster(t, Config{Of: mixedLogs, Settings: often})
	l := startLoad(t, 10, 40, 8, c.Others(c.Leader()))
	for range 3 {
		killLeader(t, c, l)
	}
	l.stop()
	c.WaitReady()
	l.check(t, c.Nodes)
}

// mustRegister registers an instance and expects success in the end: a refused registration was not done, and one that
// was not answered in time may be done twice.
func mustRegister(t testing.TB, n *Node, i Instance) {
	t.Helper()
	err := untilTaken(func() error {
		if response := n.Register(i); response.Status != 204 {
			return response.failure(n, fmt.Sprintf("register %s/%s, want 204", i.App, i.ID))
		}
		return nil
	})
	need.OK(t, err)
}

// mustRegisterSoon registers through a node that may not have noticed a new leader yet.
func mustRegisterSoon(t *testing.T, n *Node, i Instance) {
	t.Helper()
	Eventually(t, ReadyLimit, "node "+n.Name+" registers "+i.ID, func() error {
		return n.Register(i).is(http.StatusNoContent)
	})
}

// mustTake expects a node to do something that may be done twice, as mustRegister does.
func mustTake(t *testing.T, n *Node, what string, act func() Response) {
	t.Helper()
	err := untilTaken(func() error {
		if response := act(); response.Outcome() != Done {
			return response.failure(n, what)
		}
		return nil
	})
	need.OK(t, err)
}

// mustOverride forces a status, as an operator does.
func mustOverride(t *testing.T, n *Node, app, id, status string) {
	t.Helper()
	mustTake(t, n, fmt.Sprintf("override %s/%s", app, id), func() Response { return n.Override(app, id, status) })
}

// mustCancel cancels a registered instance. A cancel that was not answered in time may have been done: then the
// instance is not registered any more.
func mustCancel(t *testing.T, n *Node, app, id string) {
	t.Helper()
	unknown := false
	mustTake(t, n, fmt.Sprintf("cancel %s/%s", app, id), func() Response {
		response := n.Cancel(app, id)
		if unknown && response.Outcome() == NotFound {
			return Response{Status: http.StatusOK}
		}
		unknown = unknown || response.Outcome() == Unknown
		return response
	})
}

// mustList reads the registry of a node.
func mustList(t *testing.T, n *Node) map[string]Listed {
	t.Helper()
	var listing map[string]Listed
	err := untilTaken(func() (err error) {
		listing, err = n.Listing()
		return err
	})
	need.OK(t, err)
	return listing
}

// TestLeaderStopsGracefullyUnderLoad stops the leader as a service manager does: it hands leadership
// over, responds to all waiting callers, and nothing that was acknowledged is lost. TestLeaderThatIsStoppedHandsOverUnderLoad of
// cmd/internal/sim has the times.
func TestLeaderStopsGracefullyUnderLoad(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{})
	leader := c.Leader()
	followers := c.Others(leader)
	l := startLoad(t, 10, 10, 4, followers)
	leader.Stop(t)
	c.Leader(followers...)
	l.awaitProgress(t)
	leader.Start(t)
	c.WaitReady()
	l.stop()
	l.check(t, c.Nodes)
}

// TestWithoutConsensusANodeStopsGracefullyUnderLoad: what it acknowledged and has not replicated yet is on its disk,
// and is replicated when the node is back.
func TestWithoutConsensusANodeStopsGracefullyUnderLoad(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{AP: true, Nodes: 2, Settings: map[string]string{"replication.max-delay": "2s", "data.sync": "none"}})
	l := startLoad(t, 10, 10, 4, c.Nodes)
	for _, n := range c.Nodes {
		l.awaitProgress(t)
		n.Stop(t)
		l.awaitProgress(t)
		n.Start(t)
		n.WaitReady(t)
	}
	l.awaitProgress(t)
	l.stop()
	mustConverge(t, c.Nodes)
	l.check(t, c.Nodes)
}
