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
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/membership"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/disk"
)

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
				for _, n := range node.members.Status(context.Background()).Nodes {
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
		later := codec.Reads{Version: "0.9", Oldest: codec.Newest + 1, Newest: codec.Newest + 2}
		refused := leader.members.Join(membership.JoinArgs{ServerID: "n9.aa", Addr: freeAddr(t), Reads: later})
		expect.That(t, refused.Answer == port.Refused && strings.Contains(refused.Reason, fmt.Sprintf("runs 0.9, which reads %d to %d", later.Oldest, later.Newest)), "got %+v, want a refusal that says what the node reads", refused)
		nodes := leader.members.Status(context.Background()).Nodes
		expect.That(t, len(nodes) == 1, "the cluster has %d nodes, want 1", len(nodes))
	})
}

func TestEveryNodeKnowsTheIndexOfTheCommittedMembers(t *testing.T) {
	inCluster(t, 3, func(cfg *store.Config) { cfg.TrailingLogs = 1 }, func(t *testing.T, c *testCluster) {
		newcomer := membership.JoinArgs{ServerID: "n9.aa", Addr: freeAddr(t), Reads: codec.OwnReads("", 0, codec.Oldest)}
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
		first := membership.JoinArgs{ServerID: "n9.aa", Addr: freeAddr(t), Reads: codec.OwnReads("", 0, codec.Oldest)}
		reply := leader.members.Add(look, first)
		need.That(t, reply.Answer == port.OK, "take a node in: %+v", reply)
		reply = leader.members.Add(look, membership.JoinArgs{ServerID: "n9.bb", Addr: freeAddr(t)})
		expect.That(t, reply.Answer == port.Refused, "a second directory of the same name was taken in by the same look: %+v", reply)
		with := need.Got(leader.members.Committed())(t)
		need.OK(t, leader.members.RemoveMember(context.Background(), "n9"))
		leader.members.Promoter().Promote(context.Background(), raft.Server{ID: raft.ServerID(first.ServerID), Address: raft.ServerAddress(first.Addr)}, with.Index)
		members := need.Got(leader.members.All())(t)
		expect.That(t, len(members) == 3, "the members are %v, want the first three", members)
	})
}

func TestRemoveOfAnUnknownNodeSaysSo(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *testCluster) {
		expect.ErrorIs(t, c.nodes[0].members.RemoveMember(context.Background(), "n9"), membership.ErrUnknownMember, "got")
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
			err := n.members.RemoveMember(context.Background(), up.cfg.Node)
			expect.That(t, errors.Is(err, membership.ErrMembership) && strings.Contains(err.Error(), "start or remove "+down.cfg.Node+" first"),
				"%s: got %v, want a refusal that names %s", n.cfg.Node, err, down.cfg.Node)
		}
		expect.OKf(t, up.members.RemoveMember(context.Background(), down.cfg.Node), "remove the node that is down")
		up.apply(t, registry.Register{Instance: instance("A", "i", 90)})
	})
}

func TestRemoveRefusesTheOnlyVoter(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *testCluster) {
		err := c.nodes[0].members.RemoveMember(context.Background(), c.nodes[0].cfg.Node)
		expect.That(t, errors.Is(err, membership.ErrMembership) && strings.Contains(err.Error(), "no other node has a vote"), "got %v, want a refusal", err)
	})
}

func TestRemoveOfTheLeaderWorksThroughAnyNode(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *testCluster) {
		leader := c.leader()
		other := c.nodes[(leader+1)%3]
		need.OK(t, other.members.RemoveMember(context.Background(), c.nodes[leader].cfg.Node))
		err := <-c.nodes[leader].done
		c.nodes[leader].done <- nil // stopAll reads it again
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
		expect.ErrorIs(t, left.members.RemoveMember(context.Background(), c.nodes[1].cfg.Node), registry.ErrNoLeader, "got")
	})
}

// Each removal alone leaves a majority. Both together leave one node of three, or, with a node down, none that could
// ever be elected again.
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
				expect.That(t, errors.Is(err, membership.ErrMembership) && strings.Contains(err.Error(), "look at the members again"),
					"remove %s by the same look: got %v, want a refusal that says what to do", second, err)
				c.nodes[leader].apply(t, registry.Register{Instance: instance("A", "i", 90)})
				awaitRemoved(t, others[tt.down])
			})
		})
	}
}

// awaitRemoved waits until a removed node has stopped for that reason.
func awaitRemoved(t *testing.T, n *testNode) {
	t.Helper()
	err := <-n.done
	n.done <- nil // stopAll reads it again
	expect.ErrorSays(t, err, "removed from cluster", "%s ended with", n.cfg.Node)
}

// rolesOf returns the roles of the nodes, as one node sees them.
func rolesOf(n *testNode) map[string]string {
	roles := map[string]string{}
	for _, node := range n.members.Status(context.Background()).Nodes {
		roles[node.ID] = node.Role
	}
	return roles
}

// join adds another node to the cluster.
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
		to, err := others[1].members.Transfer(t.Context(), others[0].cfg.Node)
		expect.That(t, err == nil && to == others[0].cfg.Node, "from a node that does not lead: got %q, %v", to, err)
		eventually(t, to+" leads", func() bool { return others[0].leadership.Own() != nil })
		to, err = others[0].members.Transfer(t.Context(), "")
		expect.That(t, err == nil && to != others[0].cfg.Node && to != "", "to whichever is furthest: got %q, %v", to, err)
		eventually(t, to+" leads", func() bool { return leader.leadership.Name() == to && c.nodes[c.leader()].cfg.Node == to })
		leads := c.nodes[c.leader()]
		for name, want := range map[string]error{"n9": membership.ErrUnknownMember, leads.cfg.Node: membership.ErrMembership} {
			_, err = leads.members.Transfer(t.Context(), name)
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
		_, err := leader.members.Transfer(t.Context(), behind.cfg.Node)
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

// startApart starts n nodes that have never been in a cluster. see says which others a node has in its cluster.join;
// expect is the same for all.
func startApart(t *testing.T, n, expect int, see func(from, to int) bool) *testCluster {
	t.Helper()
	c := &testCluster{t: t, dir: t.TempDir()}
	addresses := make([]string, n)
	for i := range addresses {
		addresses[i] = freeAddr(t)
	}
	for i := range n {
		var join []string
		for j := range n {
			if i == j || see(i, j) {
				join = append(join, addresses[j])
			}
		}
		cfg := c.config(i, addresses, expect)
		cfg.Join = join
		c.nodes = append(c.nodes, c.prepare(cfg))
	}
	for _, n := range c.nodes { // so that none finds only some of the others there
		n.run()
	}
	t.Cleanup(c.stopAll)
	return c
}

// clusters returns the distinct ids of the clusters that the nodes belong to, "" among them for a node without one.
func (c *testCluster) clusters() []string {
	var ids []string
	for _, n := range c.nodes {
		ids = append(ids, n.identity.Cluster())
	}
	return slices.Compact(slices.Sorted(slices.Values(ids)))
}

// mustFoundOne waits until all nodes are in a cluster, and fails unless it is the same one.
func (c *testCluster) mustFoundOne(t *testing.T) {
	t.Helper()
	eventually(t, "every node is in a cluster", func() bool { return !slices.Contains(c.clusters(), "") })
	ids := c.clusters()
	need.That(t, len(ids) == 1, "%d clusters were founded: %v", len(ids), ids)
}

func allSeen(int, int) bool { return true }

// without is a network where one connection does not work, in either direction.
func without(a, b int) func(from, to int) bool {
	return func(from, to int) bool { return !(from == a && to == b || from == b && to == a) }
}

func TestOneClusterIsFoundedThoughALinkIsBroken(t *testing.T) {
	inBubble(t, func(t *testing.T) { startApart(t, 4, 3, without(0, 3)).mustFoundOne(t) })
}

func TestMoreNodesThanAreExpectedFoundOneCluster(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startApart(t, 4, 3, allSeen)
		c.mustFoundOne(t)
		for i := range c.nodes {
			c.waitReady(i)
		}
	})
}

func TestHalfOfTheNodesFoundNoClusterAndSaySo(t *testing.T) {
	for _, tt := range []struct {
		name      string
		n, expect int
		want      string
	}{
		{"half", 4, 2, "cluster.bootstrap-expect 2 is not more than half of the 4 nodes in cluster.join; to found a cluster set it to 3 or more"},
		{"one, as by default, that sees no other", 2, 1, "cluster.bootstrap-expect 1 is not more than half of the 2 nodes in cluster.join"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				c := startApart(t, tt.n, tt.expect, allSeen)
				for _, n := range c.nodes[1:] {
					need.OK(t, n.halt())
				}
				expect.ErrorSays(t, c.nodes[0].members.Search(context.Background()), tt.want, "got")
				expect.Equal(t, c.nodes[0].identity.Cluster(), "", "the node founded cluster")
			})
		})
	}
}

// step makes by hand a step that a proposing node would make.
func (n *testNode) step(t *testing.T, args membership.FoundArgs) membership.FoundReply {
	t.Helper()
	return n.members.Found(args)
}

// lonely starts a node that waits for others.
func lonely(t *testing.T) (*testCluster, *testNode) {
	c := startApart(t, 1, 2, allSeen)
	return c, c.nodes[0]
}

func TestFoundingPromiseOutlivesARestart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, n := lonely(t)
		founders := []disk.Founder{disk.Founder{ID: n.serverID(), Addr: n.net.Addr().String()}, {ID: "n2.aa", Addr: "127.0.0.1:1"}}
		newer, older := disk.Ballot{Round: 7, ServerID: "n2.aa"}, disk.Ballot{Round: 6, ServerID: "n9.aa"}
		if r := n.step(t, membership.FoundArgs{Step: membership.FoundPromise, Ballot: newer}); !r.OK {
			t.Fatalf("promise: %+v", r)
		}
		if r := n.step(t, membership.FoundArgs{Step: membership.FoundAccept, Ballot: newer, Founders: founders}); !r.OK {
			t.Fatalf("accept: %+v", r)
		}
		need.OK(t, n.halt())
		n = c.start(n.cfg)
		c.nodes[0] = n
		for _, step := range []uint8{membership.FoundPromise, membership.FoundAccept} {
			r := n.step(t, membership.FoundArgs{Step: step, Ballot: older, Founders: founders[:1]})
			expect.That(t, !r.OK && r.Founding.Promised == newer, "step %d of an older proposal: %+v, want a refusal that names %v", step, r, newer)
		}
		r := n.step(t, membership.FoundArgs{Step: membership.FoundPromise, Ballot: disk.Ballot{Round: 8, ServerID: "n3.aa"}})
		expect.That(t, r.OK && r.Founding.Accepted == newer && slices.Equal(r.Founding.Founders, founders),
			"a newer proposal is told %+v, want the list that was accepted at %v", r, newer)
	})
}

// It is the only one that knows of the cluster, which cannot begin without the others.
func TestFounderThatCrashedBeforeItSavedTheClusterTellsTheOthers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, n := lonely(t)
		founders := []disk.Founder{disk.Founder{ID: n.serverID(), Addr: n.net.Addr().String()}, {ID: "n2.aa", Addr: "127.0.0.1:1"}}
		if err := n.raft.BootstrapCluster(raft.Configuration{Servers: []raft.Server{
			{ID: raft.ServerID(founders[0].ID), Address: raft.ServerAddress(founders[0].Addr)},
			{ID: raft.ServerID(founders[1].ID), Address: raft.ServerAddress(founders[1].Addr)},
		}}).Error(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the node is in a cluster", func() bool { return n.identity.Cluster() != "" })
		st := n.members.State()
		if st.Cluster != disk.ClusterIDOf([]string{founders[0].ID, founders[1].ID}) || !slices.Equal(st.Founders, founders) {
			t.Errorf("the node tells of cluster %s of %v, want %s of %v", st.Cluster, st.Founders, disk.ClusterIDOf([]string{founders[0].ID, founders[1].ID}), founders)
		}
	})
}

// Otherwise the others would take a node without a reply for absent.
func TestStateOfANodeIsSeenWhileItsDiskIsSlow(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, n := lonely(t)
		release := make(chan struct{})
		writing := make(chan struct{})
		done := make(chan error, 1)
		go func() {
			done <- n.identity.Change(func(*disk.Identity) bool {
				close(writing)
				<-release
				return false
			})
		}()
		<-writing
		seen := make(chan membership.NodeState, 1)
		go func() { seen <- n.members.State() }()
		select {
		case st := <-seen:
			expect.That(t, st.ServerID == n.serverID(), "got %+v", st)
		case <-time.After(limit):
			t.Error("the node does not say how it is while it writes its identity")
		}
		close(release)
		need.OK(t, <-done)
	})
}

// Three nodes found a cluster; then all lists name five, and cluster.bootstrap-expect stops being more than half of
// them. A node with the longer list joins.
func TestJoinListThatGrowsChangesNothingForNodesWithData(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := startApart(t, 3, 2, allSeen)
		c.mustFoundOne(t)
		for i := range c.nodes {
			c.waitReady(i)
		}
		id := c.clusters()
		c.stopAll()
		longer := slices.Clone(c.nodes[0].cfg.Join)
		for len(longer) < 5 {
			longer = append(longer, freeAddr(t))
		}
		for i, n := range c.nodes {
			n.cfg.Join = longer
			c.nodes[i] = c.start(n.cfg)
		}
		c.nodes = append(c.nodes, c.open(3, longer, 2))
		for i := range c.nodes {
			c.waitReady(i)
		}
		got := c.clusters()
		expect.That(t, slices.Equal(got, id), "the nodes are in %v, want all in %v", got, id)
	})
}

// A node of another cluster comes up at an address of cluster.join.
func TestNodesOfAnotherClusterAreNoticedByTheLeaderToo(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := &testCluster{t: t, dir: t.TempDir()}
		addresses := []string{freeAddr(t), freeAddr(t), freeAddr(t), freeAddr(t)}
		for i := range 3 {
			c.nodes = append(c.nodes, c.open(i, addresses, 3))
		}
		t.Cleanup(c.stopAll)
		leader := c.nodes[c.leader()]
		eventually(t, "the leader knows that it leads", func() bool { return leader.leadership.Leader() != nil })
		alone := c.config(3, addresses, 1)
		alone.Join = nil
		c.nodes = append(c.nodes, c.start(alone))
		c.waitReady(3)
		want := []membership.ForeignNode{{ID: alone.Node, Address: alone.ClusterAddr, ClusterID: c.nodes[3].identity.Cluster()}}
		eventually(t, "the leader shows the other cluster", func() bool {
			return leader.Health().Leads && slices.Equal(leader.members.Status(context.Background()).Foreign, want)
		})
	})
}
