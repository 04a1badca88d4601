package integration

import (
	"testing"

	"github.com/seed-20419f34/rollcall/cmd/localcluster"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// eachMode runs a test with and without consensus.
func eachMode(t *testing.T, test func(t *testing.T, ap bool)) {
	t.Helper()
	for _, ap := range []bool{false, true} {
		t.Run(map[bool]string{false: "cp", true: "ap"}[ap], func(t *testing.T) {
			t.Parallel()
			test(t, ap)
		})
	}
}

// fewer is three nodes with consensus, and without it as many as a test needs that is about what one
// node does, or two tell each other.
func fewer(ap bool, nodes int) Config {
	if !ap {
		nodes = 3
	}
	return Config{AP: ap, Nodes: nodes}
}

// steadfast lets a cluster keep its leader however busy the machine is: a change prolongs all leases.
func steadfast(c Config) Config {
	c.Settings = map[string]string{"raft.heartbeat-timeout": "4s", "raft.election-timeout": "4s", "raft.lease-timeout": "4s"}
	return c
}

// mustOnEvery expects something of every node, whose first answer must be so with consensus, and without it
// one as soon as the others have told it.
func (c *Cluster) mustOnEvery(t *testing.T, what string, probe func(n *Node) error) {
	t.Helper()
	for _, n := range c.Nodes {
		if n.Mode == localcluster.AP {
			Eventually(t, replicated, what+" on node "+n.Name, func() error { return probe(n) })
			continue
		}
		expect.OKf(t, untilTaken(func() error { return probe(n) }), "%s on node %s", what, n.Name)
	}
}

// mustListEverywhere expects every node to list these instances and no other.
func (c *Cluster) mustListEverywhere(t *testing.T, ids ...string) {
	t.Helper()
	c.mustOnEvery(t, "the listing", func(n *Node) error {
		listing, err := n.Listing()
		if err != nil {
			return err
		}
		return wantListed(ids...)(listing)
	})
}

// whoAgree are the nodes of some that tell the same history of an instance: all with consensus, and
// without it each for itself, because what one is told it writes down in its own words and at its own
// time.
func whoAgree(nodes []*Node) []*Node {
	if nodes[0].Mode == localcluster.AP {
		return nodes[:1]
	}
	return nodes
}
