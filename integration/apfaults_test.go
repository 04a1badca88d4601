package integration

import (
	"bytes"
	"fmt"
	"math"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/wire"
)

// TestWithoutConsensusNodesKilledUnderLoadLoseNothing kills one node after the other, while clients turn to the others.
// Registrations that only a dead node knew come back with the node, because its disk has what it acknowledged; those
// that were cancelled meanwhile do not.
func TestWithoutConsensusNodesKilledUnderLoadLoseNothing(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{AP: true, Settings: map[string]string{"data.sync": "always", "replication.max-delay": "2s"}})
	l := startLoad(t, 10, 20, 6, c.Nodes)
	for turn := range 2 * len(c.Nodes) {
		l.awaitProgress(t)
		victim := c.Nodes[turn%len(c.Nodes)]
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

// TestEvictionOfALiveInstanceUndoesNoNewerWriteOrOverride: a node that is cut off from its peers evicts an instance
// that renews at one of them. A registration that the client sends to the node afterwards is older than the one that it
// sends to the peer then, and does not outrank it; nor does it undo the operator's override that the evicting node has
// forgotten.
func TestEvictionOfALiveInstanceUndoesNoNewerWriteOrOverride(t *testing.T) {
	t.Parallel()
	const lease = 10 // seconds
	c, links := newSeparable(t, 3)
	alone, there := c.Nodes[0], c.Nodes[1]
	h := startHerdOf(t, "HERD", 1, lease, []*Node{there})
	id := h.ids()[0]
	mustOverride(t, there, "HERD", id, "OUT_OF_SERVICE")
	c.mustOnEvery(t, "the override", func(n *Node) error { return showsVersion(n, id, "", "OUT_OF_SERVICE") })

	links.Isolate(alone)
	awaitGone(t, alone, id, lease)
	version := func(n *Node, version string) {
		mustRegister(t, n, Instance{App: "HERD", ID: id, Duration: lease, Metadata: map[string]string{"version": version}})
	}
	version(alone, "2")
	version(there, "3")
	need.OKf(t, showsVersion(alone, id, "2", "UNKNOWN"), "on the side that evicted it")
	links.Heal()
	c.mustOnEvery(t, "what was said last", func(n *Node) error { return showsVersion(n, id, "3", "OUT_OF_SERVICE") })
	h.stop()
	h.check(t)
	for _, n := range c.Nodes {
		mustAgreeWithPeers(t, n)
	}
}

// TestCancelThatANodeMissedIsOlderThanWhatTheClientSaysLater: a node misses that an instance was canceled and
// registered again. A registration that the client sends to that node later is newer, and the override that went with
// the cancel stays removed.
func TestCancelThatANodeMissedIsOlderThanWhatTheClientSaysLater(t *testing.T) {
	t.Parallel()
	c, links := newSeparable(t, 3)
	alone, there := c.Nodes[0], c.Nodes[1]
	mustRegister(t, there, Instance{App: "HERD", ID: "orders-1"})
	mustOverride(t, there, "HERD", "orders-1", "OUT_OF_SERVICE")
	c.mustOnEvery(t, "the override", func(n *Node) error { return showsVersion(n, "orders-1", "", "OUT_OF_SERVICE") })

	links.Isolate(alone)
	mustCancel(t, there, "HERD", "orders-1")
	version := func(n *Node, version string) {
		mustRegister(t, n, Instance{App: "HERD", ID: "orders-1", Metadata: map[string]string{"version": version}})
	}
	version(there, "2")
	version(alone, "3")
	links.Heal()
	c.mustOnEvery(t, "what was said last", func(n *Node) error { return showsVersion(n, "orders-1", "3", "UNKNOWN") })
	for _, n := range c.Nodes {
		mustAgreeWithPeers(t, n)
	}
}

// showsVersion returns nil if a node has an instance of the herd in a version and with an override.
func showsVersion(n *Node, id, version, override string) error {
	got, err := n.Lookup("HERD", id)
	switch {
	case err != nil:
		return err
	case got == nil:
		return fmt.Errorf("node %s does not have %s", n.Name, id)
	case got.Metadata["version"] != version || got.Overridden != override:
		return fmt.Errorf("node %s has version %q, overridden %s; want %q and %s", n.Name, got.Metadata["version"], got.Overridden, version, override)
	}
	return nil
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

// TestReplicationMessageInAnotherNodesNameDoesNotShutThatNodeOut posts, to one node without consensus, messages in the
// name of another whose clocks are far ahead. Nothing proves yet which sender may use a name; but the first node must
// accept messages of the real node as before, at once and after a restart.
func TestReplicationMessageInAnotherNodesNameDoesNotShutThatNodeOut(t *testing.T) {
	t.Parallel()
	const lease = 10
	c := StartCluster(t, Config{AP: true, Nodes: 2})
	attacked, named := c.Nodes[0], c.Nodes[1]
	h := startHerdOf(t, "HERD", 2, lease, []*Node{named})
	c.mustListEverywhere(t, h.ids()...)

	var state wire.State
	given := named.Get("/v1/rollcall/replication/state?datacenter=" + named.datacenter(t)).Body
	need.OKf(t, wire.ReadFrame(bytes.NewReader(given), &state), "the state of %s", named.Name)
	const years = 9 * 365 * 24 * 60 * 60 * 1000
	for _, forged := range []struct {
		clock  int64
		answer int
	}{{math.MaxInt64, 400}, {years, 200}} {
		message := wire.Message{Head: wire.Head{
			Datacenter: state.Datacenter, Node: named.Name, Sender: state.Sender, Incarnation: math.MaxUint64, Clock: forged.clock,
		}}
		response := attacked.Do(Request{Method: "POST", Path: messagePath, ContentType: "application/octet-stream", Body: wire.Encode(codec.Newest, &message)})
		expect.That(t, response.Status == forged.answer, "a clock of %d ms: %v, want %d", forged.clock, response, forged.answer)
		expect.That(t, response.Status != 400 || strings.Contains(string(response.Body), "no lease clock has run for longer"),
			"a clock of %d ms is refused with %q", forged.clock, response.Body)
	}
	mustRegister(t, named, Instance{App: "ORDERS", ID: "new"})
	all := append(h.ids(), "new")
	c.mustListEverywhere(t, all...)
	Pass(t, (lease+2)*time.Second) // in which a node that hears no heartbeats would end the leases
	mustListExactly(t, attacked, all)
	attacked.Stop(t)
	attacked.Start(t)
	attacked.WaitReady(t)
	c.mustListEverywhere(t, all...)
	h.stop()
	h.check(t)
}

// datacenter is the name of the node's datacenter.
func (n *Node) datacenter(t *testing.T) string {
	t.Helper()
	return need.Got(n.Peers())(t).Datacenter
}
