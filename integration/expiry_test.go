package integration

import (
	"errors"
	"testing"
	"time"
)

// TestPausedLeaderIsReplacedByOneThatEvictsOnlyTheDead pauses the leader for longer than a lease, while all instances but one
// renew through followers.
func TestPausedLeaderIsReplacedByOneThatEvictsOnlyTheDead(t *testing.T) {
	t.Parallel()
	const lease, mortal = 9, 6 // seconds: of the instances that renew, and of the dead one
	c := StartCluster(t, Config{})
	leader := c.Leader()
	others := c.Others(leader)
	l := startLoad(t, lease, 6, 0, others)
	mustRegister(t, others[0], Instance{App: "MORTAL", ID: "dead", Duration: mortal})
	leader = c.Leader() // a busy machine may have changed it
	others = c.Others(leader)
	l.use(others)
	paused := time.Now()
	leader.Pause(t)
	c.Leader(others...)
	for _, n := range others {
		awaitGone(t, n, "dead", mortal)
	}
	Pass(t, time.Until(paused.Add((lease+1)*time.Second))) // the newest renewal that it knows is longer ago than a lease lasts
	leader.Resume(t)
	leader.WaitReady(t)
	l.use(c.Nodes)
	Pass(t, lease*time.Second) // in which an earlier leader would evict
	l.stop()
	l.check(t, c.Nodes)
}

// awaitGone waits until a node does not list an instance whose lease has so many seconds.
func awaitGone(t *testing.T, n *Node, id string, lease int) {
	t.Helper()
	Eventually(t, max(ReadyLimit, 10*time.Duration(lease)*time.Second), id+" is gone from node "+n.Name, func() error {
		if _, listed := mustList(t, n)[id]; listed {
			return errors.New("still listed")
		}
		return nil
	})
}
