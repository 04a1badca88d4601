package integration

import (
	"slices"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

// TestARestartedNodeBringsNoDeadInstanceBack: an instance dies while one of two nodes without consensus is
// down. Its lease there is as young as when the node stopped.
func TestARestartedNodeBringsNoDeadInstanceBack(t *testing.T) {
	t.Parallel()
	const lease = 10
	awayWhileOneDies(t, lease, 0, func(t *testing.T, away *Node) func() {
		away.Stop(t)
		return func() {
			away.Start(t)
			away.WaitReady(t)
			mustListExactly(t, away, []string{"member-01", "member-02"})
		}
	})
}

// restartedOldLeasesRound has a node away in each way, with leases long enough for comparisons to tell them.
func restartedOldLeasesRound(t *testing.T) {
	const lease, settled = 12, 11 * time.Second
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		awayWhileOneDies(t, lease, settled, func(t *testing.T, away *Node) func() {
			away.Kill()
			return func() {
				away.Start(t)
				away.WaitReady(t)
			}
		})
	})
	t.Run("paused", func(t *testing.T) {
		t.Parallel()
		awayWhileOneDies(t, lease, settled, func(t *testing.T, away *Node) func() {
			away.Pause(t)
			return func() { away.Resume(t) }
		})
	})
}

// awayWhileOneDies has three instances live for a time at two nodes. Then one node goes away, and one
// instance dies. When the other node has evicted it, the first comes back, and nobody may list the dead one
// at the other node again, or lose one that lives.
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
