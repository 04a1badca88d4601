package consensus

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/membership"
)

// voteLimit is how long a change of who votes may take: ten times the 10 s for which a newcomer must have kept up before.
const voteLimit = 100 * time.Second

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
	c := startCluster(t, 3, nil)
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
}

func TestLeadershipIsNotHandedOverToANodeThatLags(t *testing.T) {
	c := startCluster(t, 3, nil)
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
}

func TestNodeThatIsNotToVoteServesWithoutAVote(t *testing.T) {
	c := startCluster(t, 3, nil)
	n := c.join("n4", func(cfg *store.Config) { cfg.NoVote = true })
	eventually(t, "n4 is ready", func() bool { return n.Health().Ready })
	n.apply(t, registry.Register{Instance: instance("A", "by-n4", 90)})
	lose := c.nodes[(c.leader()+1)%3]
	need.OK(t, lose.halt())
	cfg := lose.cfg
	cfg.NoVote, cfg.Metrics = true, nil
	again := c.start(cfg)
	c.nodes[slices.Index(c.nodes, lose)] = again
	eventuallyWithin(t, voteLimit, cfg.Node+" has lost its vote, and n4 has got none", func() bool {
		roles := rolesOf(n)
		return roles[cfg.Node] == "learner" && roles["n4"] == "learner"
	})
	again.apply(t, registry.Register{Instance: instance("A", "afterwards", 90)})
}

func TestDeadVoterIsReplacedByANewcomer(t *testing.T) {
	c := startCluster(t, 3, func(cfg *store.Config) { cfg.DeadAfter = time.Second })
	dead := c.nodes[(c.leader()+1)%3]
	need.OK(t, dead.halt())
	n := c.join("n4", func(*store.Config) {})
	eventuallyWithin(t, voteLimit, "n4 has taken the place of "+dead.cfg.Node, func() bool {
		roles := rolesOf(n)
		_, there := roles[dead.cfg.Node]
		return !there && roles["n4"] == "follower" && len(roles) == 3
	})
}
