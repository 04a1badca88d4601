package integration

import (
	"fmt"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// TestWhoeverEvictsAliveUndoesNothing: a node that is cut off from its peers evicts an instance that renews
// at one of them. What the client told the node afterwards is older than what it told the peer then, and
// does not outrank it; nor does it undo the operator's override that the evicting node has forgotten.
func TestWhoeverEvictsAliveUndoesNothing(t *testing.T) {
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

// TestWhatWasSaidLastIsNewerThanACancelBeforeIt: a node misses that an instance was canceled and registered
// again. What the client tells it then is newer, and the override that went with the cancel stays gone.
func TestWhatWasSaidLastIsNewerThanACancelBeforeIt(t *testing.T) {
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
