package integration

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
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

// restartedOldLeasesRound takes a node away in each way, with leases long enough for comparisons to show them.
func restartedOldLeasesRound(t *testing.T) {
	const lease, lived = 12, 11 * time.Second
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		awayWhileOneDies(t, lease, lived, func(t *testing.T, away *Node) func() {
			away.Kill()
			return func() {
				away.Start(t)
				away.WaitReady(t)
			}
		})
	})
	t.Run("paused", func(t *testing.T) {
		t.Parallel()
		awayWhileOneDies(t, lease, lived, func(t *testing.T, away *Node) func() {
			away.Pause(t)
			return func() { away.Resume(t) }
		})
	})
}

// awayWhileOneDies has three instances live for a time at two nodes. Then one node goes away, and one instance dies.
// When the other node has evicted it, the first comes back. The other node must not list the dead one again, and
// neither node may lose one that lives.
func awayWhileOneDies(t *testing.T, lease int, lived time.Duration, leave func(*testing.T, *Node) (comeBack func())) {
	c := StartCluster(t, Config{AP: true, Nodes: 2, Settings: map[string]string{"replication.digest-interval": "1s", "data.sync": "always", "replication.max-delay": "2s"}})
	away, stays := c.Nodes[0], c.Nodes[1]
	h := startHerdOf(t, "HERD", 3, lease, []*Node{away}) // too few for self-preservation
	c.mustListEverywhere(t, h.ids()...)
	Pass(t, lived)
	h.use([]*Node{stays})
	dead, alive := h.silence(1)[0], h.ids()[1:]
	comeBack := leave(t, away)
	awaitListed(t, stays, wantListed(alive...))
	gone := index(t, stays)

	comeBack()
	Pass(t, time.Duration(lease+2)*time.Second) // in which the node that was away would compare, and end the lease itself
	c.mustListEverywhere(t, alive...)
	for _, change := range mustPoll(t, stays, "wait=0s&app=herd&index="+gone).Changes {
		expect.That(t, change.ID != dead && !slices.Contains(alive, change.ID),
			"%s says at %s of %s: %s %s", stays.Name, change.Index, change.ID, change.Action, change.Why)
	}
	h.stop()
	h.check(t)
}

// TestLeaderStopsGracefullyUnderLoad stops the leader as a service manager does: it hands leadership
// over, responds to all waiting callers, and nothing that was acknowledged is lost.
func TestLeaderStopsGracefullyUnderLoad(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{})
	leader := c.Leader()
	followers := c.Others(leader)
	l := startLoad(t, 10, 10, 4, followers)
	began := time.Now()
	leader.Stop(t)
	t.Logf("the leader ended %v after SIGTERM", time.Since(began))
	t.Logf("%s led %v after SIGTERM", c.Leader(followers...).Name, time.Since(began))
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

// soakRounds are the faults of a soak, each a whole test on a cluster of its own. A round fails its test
// when a promise does not hold.
var soakRounds = []struct {
	name  string
	round func(*testing.T)
}{
	{"leader killed", leaderKilledRound},
	{"delayed answers", delayedResponsesRound},
	{"bit flips", bitFlipsRound},
	{"two removals at once", twoRemovalsRound},
	{"all nodes paused, slow disks", allPausedRound},
	{"blocked log", blockedLogRound},
	{"ap nodes come back with old leases", restartedOldLeasesRound},
	{"memory is given back", memoryGivenBackRound},
}

// TestSoak goes through all rounds, and again, until ROLLCALL_SOAK has passed: each round once at least.
func TestSoak(t *testing.T) {
	text := os.Getenv("ROLLCALL_SOAK")
	if text == "" {
		t.Skip("set ROLLCALL_SOAK to a duration, such as 1h")
	}
	soak, err := time.ParseDuration(text)
	need.OKf(t, err, "ROLLCALL_SOAK")
	end := time.Now().Add(soak)
	for n := 0; n == 0 || time.Now().Before(end); n++ {
		for _, r := range soakRounds {
			if n > 0 && !time.Now().Before(end) {
				return
			}
			if !t.Run(r.name, r.round) {
				return
			}
		}
	}
}

func leaderKilledRound(t *testing.T) {
	c := StartCluster(t, Config{})
	l := startLoad(t, 10, 40, 8, c.Others(c.Leader()))
	for range 5 {
		killLeader(t, c, l)
	}
	l.stop()
	c.WaitReady()
	l.check(t, c.Nodes)
}
