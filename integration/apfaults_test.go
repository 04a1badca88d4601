package integration

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
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

// twoRemovalsRound removes two nodes at the same moment, through two nodes, while a third stands still. Each removal
// alone leaves a majority. Both together would leave two voters of which one stands still: no leader could be elected
// again.
func twoRemovalsRound(t *testing.T) {
	c := StartCluster(t, Config{Nodes: 4})
	others := c.Others(c.Leader())
	still := others[2]
	still.Pause(t)
	defer still.Resume(t)

	removed := removeAtOnce(t, others[0], others[1])
	expect.That(t, len(removed) <= 1, "%v were both removed while %s stood still", removed, still.Name)
	Eventually(t, ReadyLimit, "a write is taken after the removals", func() error {
		for _, n := range c.Others(still) {
			if !n.Running() {
				continue // it was removed, and stopped
			}
			response := n.Register(Instance{App: "orders", ID: "after"})
			if response.Status == 204 {
				return nil
			}
			t.Logf("register at %s: %v", n.Name, response)
		}
		return fmt.Errorf("removed: %v, refused at every node", removed)
	})
}

// removeAtOnce removes each node by a command of its own, sent to that node, and returns which of the
// commands say that it is removed.
func removeAtOnce(t *testing.T, nodes ...*Node) []string {
	t.Helper()
	said := make([]error, len(nodes))
	var all sync.WaitGroup
	for i, n := range nodes {
		all.Go(func() {
			out, err := exec.Command(Binary(t), "members", "remove", n.Name, "--addr", n.URL()).CombinedOutput()
			if err != nil {
				said[i] = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
			}
		})
	}
	all.Wait()
	var removed []string
	for i, n := range nodes {
		if said[i] == nil {
			removed = append(removed, n.Name)
		} else {
			t.Logf("remove %s: %v", n.Name, said[i])
		}
	}
	return removed
}
