package integration

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// voteLimit is how long a newcomer may take until it votes: ten times the 10 s for which it must
// have kept up before.
const voteLimit = 100 * time.Second

// TestMemberThatLostItsDataComesBackAfterItsRemoval does what docs/run/change-nodes.md tells operators to do.
func TestMemberThatLostItsDataComesBackAfterItsRemoval(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, withSteadyLeader(Config{})) // two nodes that run cannot do without one of them
	leader := c.Leader()
	lost, other := c.Others(leader)[0], c.Others(leader)[1]
	mustRegister(t, leader, Instance{App: "orders", ID: "before"})

	lost.Kill()
	need.OK(t, os.RemoveAll(lost.Dir))
	mustRegister(t, leader, Instance{App: "orders", ID: "meanwhile"})
	lost.Start(t)
	mustBeToldToRemove(t, lost)

	rollcall(t, "members", "remove", lost.Name, "--addr", other.URL())
	lost.WaitReady(t)
	own := need.Got(lost.ListingOf("/eureka/apps?consistency=stale"))(t)
	for _, id := range []string{"before", "meanwhile"} {
		_, ok := own[id]
		expect.That(t, ok, "the new %s does not have %q", lost.Name, id)
	}

	awaitVote(t, leader, lost)
	other.Kill() // the majority is now the leader and the newcomer
	c.WaitReady()
	mustRegister(t, lost, Instance{App: "orders", ID: "after"})
}

// mustBeToldToRemove waits until the log of a node that is not let in names the remedy.
func mustBeToldToRemove(t *testing.T, n *Node) {
	t.Helper()
	Eventually(t, ReadyLimit, "the log of "+n.Name+" names the remedy", func() error {
		return unless(strings.Contains(n.Output(t), "rollcall members remove "+n.Name), "it says:\n%s", n.LastWords(5))
	})
	expect.That(t, n.Ready() != nil, "%s is ready though it is no member", n.Name)
}

// awaitVote waits until a newcomer is a follower, no longer a learner, in the list of members.
func awaitVote(t *testing.T, through, newcomer *Node) {
	t.Helper()
	Eventually(t, voteLimit, newcomer.Name+" votes", func() error {
		var members []api.NodeStatus
		decode(t, rollcall(t, "members", "-o", "json", "--addr", through.URL()), &members)
		i := slices.IndexFunc(members, func(m api.NodeStatus) bool { return m.ID == newcomer.Name })
		return unless(i >= 0 && members[i].Role == "follower", "the members are %+v", members)
	})
}
