package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestNodeIsNotRemovedIfTheOthersCouldNotAgreeWithoutIt(t *testing.T) {
	c := startCluster(t, 3, nil)
	leader := c.leader()
	down, up := c.nodes[(leader+1)%3], c.nodes[(leader+2)%3]
	need.OK(t, down.halt())
	for _, n := range []*testNode{up, c.nodes[leader]} {
		err := n.RemoveMember(context.Background(), up.cfg.Node)
		expect.That(t, errors.Is(err, ErrMembership) && strings.Contains(err.Error(), "start or remove "+down.cfg.Node+" first"),
			"%s: got %v, want a refusal that names %s", n.cfg.Node, err, down.cfg.Node)
	}
	expect.OKf(t, up.RemoveMember(context.Background(), down.cfg.Node), "remove the node that is down")
	up.apply(t, registry.Register{Instance: instance("A", "i", 90)})
}

func TestTheOnlyVoterIsNotRemoved(t *testing.T) {
	c := startCluster(t, 1, nil)
	err := c.nodes[0].RemoveMember(context.Background(), c.nodes[0].cfg.Node)
	expect.That(t, errors.Is(err, ErrMembership) && strings.Contains(err.Error(), "no other node has a vote"), "got %v, want a refusal", err)
}

func TestTheLeaderCanBeRemovedThroughAnyNode(t *testing.T) {
	c := startCluster(t, 3, nil)
	leader := c.leader()
	other := c.nodes[(leader+1)%3]
	need.OK(t, other.RemoveMember(context.Background(), c.nodes[leader].cfg.Node))
	err := <-c.nodes[leader].done
	c.nodes[leader].done <- nil // stopAll looks again
	expect.ErrorSays(t, err, "removed from cluster", "the removed leader ended with")
	eventually(t, "the others have a leader", func() bool {
		l := other.leader.Load()
		return l != nil && nameOf(l.id) != c.nodes[leader].cfg.Node
	})
	other.apply(t, registry.Register{Instance: instance("A", "i", 90)})
}

func TestWithoutALeaderNothingIsRemoved(t *testing.T) {
	c := startCluster(t, 3, nil)
	left := c.nodes[0]
	for _, n := range c.nodes[1:] {
		need.OK(t, n.halt())
	}
	eventually(t, "the loss is noticed", func() bool { return !left.Health().Quorum })
	expect.ErrorIs(t, left.RemoveMember(context.Background(), c.nodes[1].cfg.Node), registry.ErrNoLeader, "got")
}

// TestOfTwoRemovalsOneIsRefusedIfBothWereDecidedOnOneLook: each of the two alone leaves a majority, both
// together leave one node of three, or, with a node down, none that could ever elect again.
func TestOfTwoRemovalsOneIsRefusedIfBothWereDecidedOnOneLook(t *testing.T) {
	for _, tt := range []struct {
		name        string
		nodes, down int
	}{
		{"three nodes", 3, 0},
		{"four nodes, one of them down", 4, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := startCluster(t, tt.nodes, nil)
			leader := c.leader()
			var others []*testNode
			for i := 1; i < tt.nodes; i++ {
				others = append(others, c.nodes[(leader+i)%tt.nodes])
			}
			for _, n := range others[:tt.down] {
				need.OK(t, n.halt())
			}
			look := need.Got(c.nodes[leader].membership())(t)
			first, second := others[tt.down].cfg.Node, others[tt.down+1].cfg.Node
			need.OKf(t, c.nodes[leader].putOutOf(look, first).removal(), "remove %s", first)
			err := c.nodes[leader].putOutOf(look, second).removal()
			expect.That(t, errors.Is(err, ErrMembership) && strings.Contains(err.Error(), "look at the members again"),
				"remove %s by the same look: got %v, want a refusal that says what to do", second, err)
			c.nodes[leader].apply(t, registry.Register{Instance: instance("A", "i", 90)})
			awaitRemoved(t, others[tt.down])
		})
	}
}

// awaitRemoved waits until a node that was removed has stopped with that reason.
func awaitRemoved(t *testing.T, n *testNode) {
	t.Helper()
	err := <-n.done
	n.done <- nil // stopAll looks again
	expect.ErrorSays(t, err, "removed from cluster", "%s ended with", n.cfg.Node)
}

func TestARemovalOfWhichNobodyKnowsIsSaidToBeUnknown(t *testing.T) {
	for _, tc := range []struct {
		err  error // of Raft
		want error // of RemoveMember; nil: removed
	}{
		{nil, nil},
		{raft.ErrNotLeader, registry.ErrNoLeader},
		{raft.ErrLeadershipLost, registry.ErrUnknownOutcome},
		{raft.ErrRaftShutdown, registry.ErrUnknownOutcome},
		{fmt.Errorf("%w within 3s", errNoAnswer), registry.ErrUnknownOutcome},
		{raft.ErrEnqueueTimeout, ErrMembership},
		{errors.New("configuration changed since 7"), ErrMembership},
	} {
		expect.ErrorIs(t, removalReply(tc.err).removal(), tc.want, "%v: got", tc.err)
	}
}
