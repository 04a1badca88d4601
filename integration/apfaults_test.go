package integration

import (
	"slices"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// TestWithoutConsensusNodesKilledUnderLoadLoseNothing kills one node after the other, while clients turn to the others.
// Registrations that only a dead node knew come back with the node, because its disk has what it acknowledged; those
// that were cancelled meanwhile do not.
func TestWithoutConsensusNodesKilledUnderLoadLoseNothing(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{AP: true, Settings: map[string]string{"data.sync": "always", "replication.max-delay": "2s"}})
	l := startLoad(t, 10, 20, 6, c.Nodes)
	for _, victim := range c.Nodes {
		l.awaitProgress(t)
		victim.Kill()
		l.awaitProgress(t)
		victim.Start(t)
		victim.WaitReady(t)
	}
	l.awaitProgress(t)
	l.stop()
	mustConverge(t, c.Nodes)
	l.check(t, c.Nodes)
	for _, n := range c.Nodes {
		mustAgreeWithPeers(t, n)
	}
}

// TestWithoutConsensusAPausedNodeEvictsNoInstanceThatRenewsElsewhere freezes a node for longer than a lease, while its
// clients turn to the others. A lease lasts, as by default, a few times longer than the others wait at most before they
// try a node again.
func TestWithoutConsensusAPausedNodeEvictsNoInstanceThatRenewsElsewhere(t *testing.T) {
	t.Parallel()
	const lease = 9 // seconds
	c := StartCluster(t, Config{AP: true, Settings: map[string]string{"replication.max-delay": "2s", "replication.read-timeout": "1s"}})
	asleep, others := c.Nodes[2], c.Nodes[:2]
	h := startHerdOf(t, "HERD", 7, lease, c.Nodes) // with two more, too few for self-preservation
	dead, alive := h.ids()[:1], h.ids()[1:]
	mustRegister(t, asleep, Instance{App: "ORDERS", ID: "canceled"})
	c.mustListEverywhere(t, append(h.ids(), "canceled")...)
	before := map[*Node]string{}
	for _, n := range c.Nodes {
		before[n] = index(t, n)
	}

	h.use(others)
	h.silence(len(dead))
	asleep.Pause(t)
	mustRegister(t, others[0], Instance{App: "ORDERS", ID: "new"})
	mustCancel(t, others[1], "ORDERS", "canceled")
	left := append(slices.Clone(alive), "new")
	for _, n := range others {
		awaitListed(t, n, wantListed(left...)) // so that it lasted longer than a lease
	}
	asleep.Resume(t)
	c.mustListEverywhere(t, left...)
	Pass(t, lease*time.Second) // in which it would evict instances whose renewals it has not received
	c.mustListEverywhere(t, left...)
	for _, n := range c.Nodes {
		for _, change := range mustPoll(t, n, "wait=0s&app=herd&index="+before[n]).Changes {
			if slices.Contains(alive, change.ID) { // its heartbeats are no changes
				t.Errorf("%s says at %s of %s, which renewed elsewhere: %s %s", n.Name, change.Index, change.ID, change.Action, change.Why)
			}
		}
	}
	h.stop()
	h.check(t)
	for _, n := range c.Nodes {
		mustAgreeWithPeers(t, n)
	}
}

// poll is the response to a long poll.
type poll struct {
	Changes []api.Change
}

// mustPoll asks a node for changes.
func mustPoll(t *testing.T, n *Node, query string) poll {
	t.Helper()
	return need.Got(readUntilTaken(func() (poll, error) { return ask[poll](n, "/v1/rollcall/watch?"+query) }))(t)
}
