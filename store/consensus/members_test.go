package consensus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/level"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/membership"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/disk"
)

func TestStatusNamesEveryNodeAndTheLeader(t *testing.T) {
	c := startCluster(t, 3, nil)
	leader := c.nodes[c.leader()].cfg.Node
	for _, n := range c.nodes {
		var st Status
		eventually(t, "all nodes reach "+n.cfg.Node, func() bool {
			st = n.Status(context.Background())
			for _, node := range st.Nodes {
				if !node.Reachable {
					return false
				}
			}
			return st.Leader == leader
		})
		expect.That(t, st.ClusterID != "" && st.Term != 0 && len(st.Nodes) == 3, "%s: %+v", n.cfg.Node, st)
		for _, node := range st.Nodes {
			expect.Equal(t, node.Role, map[bool]string{true: "leader", false: "follower"}[node.ID == leader], "%s says that %s is", n.cfg.Node, node.ID)
		}
	}
}

func TestStatusSaysWhichNodesHaveAppliedAChange(t *testing.T) {
	c := startCluster(t, 3, nil)
	change := c.nodes[0].apply(t, registry.Register{Instance: instance("A", "i", 90)}).Index
	for _, n := range c.nodes {
		eventually(t, n.cfg.Node+" knows that all nodes have applied it", func() bool {
			st := n.Status(context.Background())
			for _, node := range st.Nodes {
				if node.Index < change {
					return false
				}
			}
			return len(st.Nodes) == 3
		})
	}
}

func TestNodeThatLostItsDataIsTakenInOnlyAfterTheOldOneWasRemoved(t *testing.T) {
	c := startCluster(t, 3, nil)
	c.nodes[0].apply(t, registry.Register{Instance: instance("A", "i", 90)})
	lost := (c.leader() + 1) % 3
	need.OK(t, c.nodes[lost].halt())
	need.OK(t, os.RemoveAll(c.nodes[lost].cfg.DataDir))
	c.nodes[lost] = c.start(c.nodes[lost].cfg)
	name := c.nodes[lost].cfg.Node
	ask := func() error { return c.nodes[lost].members.Search(context.Background()) }
	eventually(t, "the search of the new "+name+" is refused, and the remedy named", func() bool {
		err := ask() // the others may answer too late
		return err != nil && strings.Contains(err.Error(), "members remove "+name)
	})
	other := c.nodes[(lost+1)%3]
	need.OK(t, other.RemoveMember(context.Background(), name))
	c.waitReady(lost)
	got := c.nodes[lost].read(t, registry.Linearizable).Len()
	expect.That(t, got == 1, "the new %s has %d instances, want 1", name, got)
	eventually(t, "the newcomer votes", func() bool {
		members := need.Got(other.members.All())(t)
		for _, m := range members {
			if disk.NodeName(string(m.ID)) == name {
				return m.Suffrage == 0
			}
		}
		return false
	})
}

func TestNodeThatMovedTellsTheCluster(t *testing.T) {
	c := startCluster(t, 3, nil)
	moved := (c.leader() + 1) % 3
	need.OK(t, c.nodes[moved].halt())
	cfg := c.nodes[moved].cfg
	cfg.ClusterAddr = freeAddr(t)
	c.nodes[moved] = c.start(cfg)
	c.waitReady(moved)
	for _, node := range c.nodes {
		eventually(t, node.cfg.Node+" knows the new address", func() bool {
			for _, n := range node.Status(context.Background()).Nodes {
				if n.ID == cfg.Node {
					return n.Cluster == cfg.ClusterAddr
				}
			}
			return false
		})
	}
}

func TestNodeThatCannotReadTheLevelIsNotTakenIn(t *testing.T) {
	c := startCluster(t, 1, nil)
	leader := c.nodes[c.leader()]
	later := level.Reads{Version: "0.9", Oldest: codec.Newest + 1, Newest: codec.Newest + 2}
	refused := leader.members.Join(membership.JoinArgs{ServerID: "n9.aa", Addr: freeAddr(t), Reads: later})
	expect.That(t, refused.Answer == port.Refused && strings.Contains(refused.Reason, fmt.Sprintf("runs 0.9, which reads %d to %d", later.Oldest, later.Newest)), "got %+v, want a refusal that says what the node reads", refused)
	nodes := leader.Status(context.Background()).Nodes
	expect.That(t, len(nodes) == 1, "the cluster has %d nodes, want 1", len(nodes))
}

func TestEveryNodeKnowsTheIndexOfTheCommittedMembers(t *testing.T) {
	c := startCluster(t, 3, func(cfg *store.Config) { cfg.TrailingLogs = 1 })
	newcomer := membership.JoinArgs{ServerID: "n9.aa", Addr: freeAddr(t), Reads: level.Own("", 0, codec.Oldest)}
	changed := c.nodes[c.leader()].members.Join(newcomer)
	need.That(t, changed.Answer == port.OK, "take a node in: %+v", changed)
	know := func(what string) uint64 {
		var index uint64
		for _, n := range c.nodes {
			eventually(t, n.cfg.Node+" knows the newcomer "+what, func() bool {
				look, err := n.members.Committed()
				if err != nil || len(look.Servers) != 4 {
					return false
				}
				if index == 0 {
					index = look.Index
				}
				need.That(t, look.Index == index, "%s has members of index %d, another node of %d", n.cfg.Node, look.Index, index)
				return true
			})
		}
		return index
	}
	index := know("from the log")
	for i := range 5 {
		c.nodes[0].apply(t, registry.Register{Instance: instance("A", fmt.Sprint(i), 90)})
	}
	c.stopAll() // each takes a snapshot
	for i, n := range c.nodes {
		c.nodes[i] = c.start(n.cfg)
	}
	c.elect()
	again := know("from the snapshot")
	expect.That(t, again == index && index != 0, "the index was %d before and is %d after the restart, want the same, above 0", index, again)
}

func TestMembershipChangeDecidedOnAnOlderConfigurationIsNotMade(t *testing.T) {
	c := startCluster(t, 3, nil)
	leader := c.nodes[c.leader()]
	look := need.Got(leader.members.Committed())(t)
	first := membership.JoinArgs{ServerID: "n9.aa", Addr: freeAddr(t), Reads: level.Own("", 0, codec.Oldest)}
	reply := leader.members.Add(look, first)
	need.That(t, reply.Answer == port.OK, "take a node in: %+v", reply)
	reply = leader.members.Add(look, membership.JoinArgs{ServerID: "n9.bb", Addr: freeAddr(t)})
	expect.That(t, reply.Answer == port.Refused, "a second directory of the same name was taken in by the same look: %+v", reply)
	with := need.Got(leader.members.Committed())(t)
	need.OK(t, leader.RemoveMember(context.Background(), "n9"))
	leader.members.Promoter().Promote(context.Background(), raft.Server{ID: raft.ServerID(first.ServerID), Address: raft.ServerAddress(first.Addr)}, with.Index)
	members := need.Got(leader.members.All())(t)
	expect.That(t, len(members) == 3, "the members are %v, want the first three", members)
}

func TestRemovedNodeStopsWithAReason(t *testing.T) {
	c := startCluster(t, 3, nil)
	gone := (c.leader() + 1) % 3
	need.OK(t, c.nodes[(gone+1)%3].RemoveMember(context.Background(), c.nodes[gone].cfg.Node))
	err := <-c.nodes[gone].done
	c.nodes[gone].done <- nil // stopAll looks again
	expect.ErrorSays(t, err, "removed from cluster", "the removed node ended with")
}

func TestRemoveOfAnUnknownNodeSaysSo(t *testing.T) {
	c := startCluster(t, 1, nil)
	expect.ErrorIs(t, c.nodes[0].RemoveMember(context.Background(), "n9"), ErrUnknownMember, "got")
}

func TestDataOfAnotherClusterIsRefused(t *testing.T) {
	a := startCluster(t, 3, nil)
	b := startCluster(t, 3, nil)
	// Node 2 of cluster a is started with the directory of node 2 of cluster b.
	for _, c := range []*testCluster{a, b} {
		need.OK(t, c.nodes[1].halt())
	}
	cfg := a.nodes[1].cfg
	cfg.DataDir = filepath.Join(b.dir, "n2")
	stray := a.start(cfg)
	err := <-stray.done
	expect.That(t, err != nil && strings.Contains(err.Error(), "belongs to cluster"),
		"the node ended with %v, want a reason that names the clusters", err)
}

func TestRemoveRefusesANodeWithoutWhichTheOthersCouldNotAgree(t *testing.T) {
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

func TestRemoveRefusesTheOnlyVoter(t *testing.T) {
	c := startCluster(t, 1, nil)
	err := c.nodes[0].RemoveMember(context.Background(), c.nodes[0].cfg.Node)
	expect.That(t, errors.Is(err, ErrMembership) && strings.Contains(err.Error(), "no other node has a vote"), "got %v, want a refusal", err)
}

func TestRemoveOfTheLeaderWorksThroughAnyNode(t *testing.T) {
	c := startCluster(t, 3, nil)
	leader := c.leader()
	other := c.nodes[(leader+1)%3]
	need.OK(t, other.RemoveMember(context.Background(), c.nodes[leader].cfg.Node))
	err := <-c.nodes[leader].done
	c.nodes[leader].done <- nil // stopAll looks again
	expect.ErrorSays(t, err, "removed from cluster", "the removed leader ended with")
	eventually(t, "the others have a leader", func() bool {
		l := other.leadership.Leader()
		return l != nil && disk.NodeName(l.ID) != c.nodes[leader].cfg.Node
	})
	other.apply(t, registry.Register{Instance: instance("A", "i", 90)})
}

func TestRemoveDoesNothingWithoutALeader(t *testing.T) {
	c := startCluster(t, 3, nil)
	left := c.nodes[0]
	for _, n := range c.nodes[1:] {
		need.OK(t, n.halt())
	}
	eventually(t, "the loss is noticed", func() bool { return !left.Health().Quorum })
	expect.ErrorIs(t, left.RemoveMember(context.Background(), c.nodes[1].cfg.Node), registry.ErrNoLeader, "got")
}

// TestRemoveRefusesOneOfTwoDecidedOnOneConfiguration: each of the two alone leaves a majority, both
// together leave one node of three, or, with a node down, none that could ever elect again.
func TestRemoveRefusesOneOfTwoDecidedOnOneConfiguration(t *testing.T) {
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
			look := need.Got(c.nodes[leader].members.Committed())(t)
			first, second := others[tt.down].cfg.Node, others[tt.down+1].cfg.Node
			need.OKf(t, c.nodes[leader].members.Delete(look, first).Removal(), "remove %s", first)
			err := c.nodes[leader].members.Delete(look, second).Removal()
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
