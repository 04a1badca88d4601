package consensus

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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
	inCluster(t, 3, nil, func(t *testing.T, c *testCluster) {
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
	})
}

func TestNodeThatMovedTellsTheCluster(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *testCluster) {
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
	})
}

func TestNodeThatCannotReadTheLevelIsNotTakenIn(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *testCluster) {
		leader := c.nodes[c.leader()]
		later := level.Reads{Version: "0.9", Oldest: codec.Newest + 1, Newest: codec.Newest + 2}
		refused := leader.members.Join(membership.JoinArgs{ServerID: "n9.aa", Addr: freeAddr(t), Reads: later})
		expect.That(t, refused.Answer == port.Refused && strings.Contains(refused.Reason, fmt.Sprintf("runs 0.9, which reads %d to %d", later.Oldest, later.Newest)), "got %+v, want a refusal that says what the node reads", refused)
		nodes := leader.Status(context.Background()).Nodes
		expect.That(t, len(nodes) == 1, "the cluster has %d nodes, want 1", len(nodes))
	})
}

func TestEveryNodeKnowsTheIndexOfTheCommittedMembers(t *testing.T) {
	inCluster(t, 3, func(cfg *store.Config) { cfg.TrailingLogs = 1 }, func(t *testing.T, c *testCluster) {
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
		again := know("from the snapshot")
		expect.That(t, again == index && index != 0, "the index was %d before and is %d after the restart, want the same, above 0", index, again)
	})
}

func TestMembershipChangeDecidedOnAnOlderConfigurationIsNotMade(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *testCluster) {
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
	})
}

func TestRemoveOfAnUnknownNodeSaysSo(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *testCluster) {
		expect.ErrorIs(t, c.nodes[0].RemoveMember(context.Background(), "n9"), ErrUnknownMember, "got")
	})
}

func TestDataOfAnotherClusterIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
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
	})
}

func TestRemoveRefusesANodeWithoutWhichTheOthersCouldNotAgree(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *testCluster) {
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
	})
}

func TestRemoveRefusesTheOnlyVoter(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *testCluster) {
		err := c.nodes[0].RemoveMember(context.Background(), c.nodes[0].cfg.Node)
		expect.That(t, errors.Is(err, ErrMembership) && strings.Contains(err.Error(), "no other node has a vote"), "got %v, want a refusal", err)
	})
}

func TestRemoveOfTheLeaderWorksThroughAnyNode(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *testCluster) {
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
	})
}

func TestRemoveDoesNothingWithoutALeader(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *testCluster) {
		left := c.nodes[0]
		for _, n := range c.nodes[1:] {
			need.OK(t, n.halt())
		}
		eventually(t, "the loss is noticed", func() bool { return !left.Health().Quorum })
		expect.ErrorIs(t, left.RemoveMember(context.Background(), c.nodes[1].cfg.Node), registry.ErrNoLeader, "got")
	})
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
			inCluster(t, tt.nodes, nil, func(t *testing.T, c *testCluster) {
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

// rolesOf are the roles of the nodes, as a node sees them.
func rolesOf(n *testNode) map[string]string {
	roles := map[string]string{}
	for _, node := range n.Status(context.Background()).Nodes {
		roles[node.ID] = node.Role
	}
	return roles
}

// join has a further node join the cluster of the others.
func (c *testCluster) join(name string, tune func(*store.Config)) *testNode {
	c.t.Helper()
	cfg := c.nodes[c.leader()].cfg
	cfg.Join = []string{cfg.ClusterAddr}
	cfg.Node, cfg.DataDir, cfg.ClusterAddr = name, c.t.TempDir(), freeAddr(c.t)
	cfg.Metrics = nil
	tune(&cfg)
	n := c.start(cfg)
	c.nodes = append(c.nodes, n)
	return n
}

func TestLeadershipIsHandedOverToANodeThatDoesNotLag(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *testCluster) {
		leader := c.nodes[c.leader()]
		others := slices.DeleteFunc(slices.Clone(c.nodes), func(n *testNode) bool { return n == leader })
		to, err := others[1].TransferLeadership(t.Context(), others[0].cfg.Node)
		expect.That(t, err == nil && to == others[0].cfg.Node, "from a node that does not lead: got %q, %v", to, err)
		eventually(t, to+" leads", func() bool { return others[0].leadership.Own() != nil })
		to, err = others[0].TransferLeadership(t.Context(), "")
		expect.That(t, err == nil && to != others[0].cfg.Node && to != "", "to whichever is furthest: got %q, %v", to, err)
		eventually(t, to+" leads", func() bool { return leader.leadership.Name() == to && c.nodes[c.leader()].cfg.Node == to })
		leads := c.nodes[c.leader()]
		for name, want := range map[string]error{"n9": membership.ErrUnknownMember, leads.cfg.Node: membership.ErrMembership} {
			_, err = leads.TransferLeadership(t.Context(), name)
			expect.ErrorIs(t, err, want, "to %s: got", name)
		}
	})
}

func TestLeadershipIsNotHandedOverToANodeThatLags(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *testCluster) {
		leader := c.nodes[c.leader()]
		behind := c.nodes[(c.leader()+1)%3]
		behind.disk.SlowDown(time.Second)
		defer behind.disk.SlowDown(0)
		eventually(t, behind.cfg.Node+" lags", func() bool {
			for range 50 {
				leader.tick(t.Context())
			}
			return behind.machine.Index()+200 < leader.machine.Index()
		})
		_, err := leader.TransferLeadership(t.Context(), behind.cfg.Node)
		expect.That(t, errors.Is(err, membership.ErrMembership) && strings.Contains(err.Error(), "entries behind"), "got %v, want that it lags", err)
		expect.That(t, leader.leadership.Own() != nil, "the leader leads no longer")
	})
}

func TestNodeThatIsNotToVoteServesWithoutAVote(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *testCluster) {
		n := c.join("n4", func(cfg *store.Config) { cfg.NoVote = true })
		eventually(t, "n4 is ready", func() bool { return n.Health().Ready })
		n.apply(t, registry.Register{Instance: instance("A", "by-n4", 90)})
		lose := c.nodes[(c.leader()+1)%3]
		need.OK(t, lose.halt())
		cfg := lose.cfg
		cfg.NoVote, cfg.Metrics = true, nil
		again := c.start(cfg)
		c.nodes[slices.Index(c.nodes, lose)] = again
		eventually(t, cfg.Node+" has lost its vote, and n4 has got none", func() bool {
			roles := rolesOf(n)
			return roles[cfg.Node] == "learner" && roles["n4"] == "learner"
		})
		again.apply(t, registry.Register{Instance: instance("A", "afterwards", 90)})
	})
}

func TestDeadVoterIsReplacedByANewcomer(t *testing.T) {
	inCluster(t, 3, func(cfg *store.Config) { cfg.DeadAfter = time.Second }, func(t *testing.T, c *testCluster) {
		dead := c.nodes[(c.leader()+1)%3]
		need.OK(t, dead.halt())
		n := c.join("n4", func(*store.Config) {})
		eventually(t, "n4 has taken the place of "+dead.cfg.Node, func() bool {
			roles := rolesOf(n)
			_, there := roles[dead.cfg.Node]
			return !there && roles["n4"] == "follower" && len(roles) == 3
		})
	})
}
