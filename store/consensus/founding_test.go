package consensus

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store/consensus/membership"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// startApart starts n nodes that have never been in a cluster. see says which of them a node has in its
// cluster.join; expect is the same for all.
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
	for _, n := range c.nodes { // so that none finds only a part of the others there
		n.run()
	}
	t.Cleanup(c.stopAll)
	return c
}

// clusters returns the distinct ids of the clusters that the nodes belong to, "" among them for a node
// without one.
func (c *testCluster) clusters() []string {
	var ids []string
	for _, n := range c.nodes {
		ids = append(ids, n.identity.Cluster())
	}
	return slices.Compact(slices.Sorted(slices.Values(ids)))
}

// mustFoundOne waits until all nodes are in a cluster, and fails if it is not the same one.
func (c *testCluster) mustFoundOne(t *testing.T) {
	t.Helper()
	eventually(t, "every node is in a cluster", func() bool { return !slices.Contains(c.clusters(), "") })
	ids := c.clusters()
	need.That(t, len(ids) == 1, "%d clusters were founded: %v", len(ids), ids)
}

func allSeen(int, int) bool { return true }

// without is a network in which one connection does not work, in either direction.
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
				err := c.nodes[0].members.Search(context.Background())
				expect.ErrorSays(t, err, tt.want, "got")
				expect.Equal(t, c.nodes[0].identity.Cluster(), "", "the node founded cluster")
			})
		})
	}
}

// proposal is what a test does by hand that a proposing node does.
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

// TestFounderThatCrashedBeforeItSavedTheClusterTellsTheOthers: it is the only one that knows of the cluster, which
// cannot begin without the others.
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

// TestStateOfANodeIsSeenWhileItsDiskIsSlow: the others would take a node without a reply for absent.
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

// TestJoinListThatGrowsChangesNothingForNodesWithData: three nodes found a cluster; then all lists name five,
// of which cluster.bootstrap-expect is no longer more than half. A node of the longer list joins.
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

// TestNodesOfAnotherClusterAreNoticedByTheLeaderToo: at an address of cluster.join a node of another cluster
// comes up.
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
			return leader.Health().Leads && slices.Equal(leader.Status(context.Background()).Foreign, want)
		})
	})
}
