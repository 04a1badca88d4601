package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

func TestNodeIsNotRemovedIfTheOthersCouldNotAgreeWithoutIt(t *testing.T) {
	c := startCluster(t, 3, nil)
	leader := c.leader()
	down, up := c.nodes[(leader+1)%3], c.nodes[(leader+2)%3]
	if err := down.halt(); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*testNode{up, c.nodes[leader]} {
		err := n.RemoveMember(context.Background(), up.cfg.Node)
		if !errors.Is(err, ErrMembership) || !strings.Contains(err.Error(), "start or remove "+down.cfg.Node+" first") {
			t.Errorf("%s: got %v, want a refusal that names %s", n.cfg.Node, err, down.cfg.Node)
		}
	}
	if err := up.RemoveMember(context.Background(), down.cfg.Node); err != nil {
		t.Errorf("remove the node that is down: %v", err)
	}
	up.apply(t, registry.Register{Instance: instance("A", "i", 90)})
}

func TestTheOnlyVoterIsNotRemoved(t *testing.T) {
	c := startCluster(t, 1, nil)
	err := c.nodes[0].RemoveMember(context.Background(), c.nodes[0].cfg.Node)
	if !errors.Is(err, ErrMembership) || !strings.Contains(err.Error(), "no other node has a vote") {
		t.Errorf("got %v, want a refusal", err)
	}
}

func TestTheLeaderCanBeRemovedThroughAnyNode(t *testing.T) {
	c := startCluster(t, 3, nil)
	leader := c.leader()
	other := c.nodes[(leader+1)%3]
	if err := other.RemoveMember(context.Background(), c.nodes[leader].cfg.Node); err != nil {
		t.Fatal(err)
	}
	err := <-c.nodes[leader].done
	c.nodes[leader].done <- nil // stopAll looks again
	if err == nil || !strings.Contains(err.Error(), "removed from cluster") {
		t.Errorf("the removed leader ended with %v", err)
	}
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
		if err := n.halt(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the loss is noticed", func() bool { return !left.Health().Quorum })
	if err := left.RemoveMember(context.Background(), c.nodes[1].cfg.Node); !errors.Is(err, registry.ErrNoLeader) {
		t.Errorf("got %v, want ErrNoLeader", err)
	}
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
		if got := removalReply(tc.err).removal(); !errors.Is(got, tc.want) {
			t.Errorf("%v: got %v, want %v", tc.err, got, tc.want)
		}
	}
}
