package node

import (
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// nodesWith are nodes with votes in these roles, named n1, n2 and so on.
func nodesWith(roles ...string) (nodes []api.NodeStatus) {
	for i, role := range roles {
		nodes = append(nodes, api.NodeStatus{ID: "n" + string(rune('1'+i)), Role: role, Voter: role != "learner" && role != "serving"})
	}
	return nodes
}

func TestStatusSaysInASentenceHowTheClusterIs(t *testing.T) {
	behind := nodesWith("leader", "follower", "follower")
	behind[2].Lag = 10_001
	silentLearner := append(nodesWith("leader", "follower", "follower"), api.NodeStatus{ID: "n4", Role: "unreachable"})
	for name, tc := range map[string]struct {
		status    api.Status
		condition string
		summary   string
	}{
		"three well":         {api.Status{Leader: "n1", Nodes: nodesWith("leader", "follower", "follower")}, well, "Healthy: one node may fail."},
		"five well":          {api.Status{Leader: "n1", Nodes: nodesWith("leader", "follower", "follower", "follower", "follower")}, well, "Healthy: two nodes may fail."},
		"one alone":          {api.Status{Leader: "n1", Nodes: nodesWith("leader")}, well, "Healthy: no node may fail."},
		"a learner":          {api.Status{Leader: "n1", Nodes: nodesWith("leader", "follower", "learner")}, well, "Healthy: no node may fail."},
		"one of three down":  {api.Status{Leader: "n1", Nodes: nodesWith("leader", "follower", "unreachable")}, degraded, "Degraded: n3 cannot be reached; no node may fail."},
		"one of five down":   {api.Status{Leader: "n1", Nodes: nodesWith("leader", "follower", "follower", "follower", "unreachable")}, degraded, "Degraded: n5 cannot be reached; one node may fail."},
		"one behind":         {api.Status{Leader: "n1", Nodes: behind}, degraded, "Degraded: n3 is 10001 entries behind; no node may fail."},
		"two of three down":  {api.Status{Leader: "n1", Nodes: nodesWith("leader", "unreachable", "unreachable")}, degraded, "Degraded: n2 cannot be reached, n3 cannot be reached; a majority of the voters is not there."},
		"a learner down":     {api.Status{Leader: "n1", Nodes: silentLearner}, degraded, "Degraded: n4 cannot be reached; one node may fail."},
		"no leader":          {api.Status{Nodes: nodesWith("candidate", "unreachable", "unreachable")}, leaderless, "No leader: nothing can be written, and reads are stale, until a majority of the voters is in touch. Of these, n1 hears no leader, n2 cannot be reached, n3 cannot be reached."},
		"a leader unheard":   {api.Status{Nodes: nodesWith("follower", "leader", "follower")}, leaderless, "This node hears no leader yet, and n2 says that it leads: ask again in a second."},
		"ap, all well":       {api.Status{Mode: "ap", Nodes: nodesWith("serving", "serving")}, well, "Healthy: one node may fail."},
		"ap, one is lacking": {api.Status{Mode: "ap", Nodes: nodesWith("serving", "unreachable")}, degraded, "Degraded: n2 cannot be reached."},
	} {
		describe(&tc.status)
		expect.That(t, tc.status.Condition == tc.condition && tc.status.Summary == tc.summary, "%s: got %s, %q, want %s, %q", name, tc.status.Condition, tc.status.Summary, tc.condition, tc.summary)
	}
}

func TestStatusWarnsOfAZoneThatHasAMajority(t *testing.T) {
	for zones, want := range map[string]bool{"a a b": true, "a b c": false, "a a a": true, "- - -": false, "a - -": false, "a": false} {
		var nodes []api.NodeStatus
		for _, zone := range strings.Fields(zones) {
			nodes = append(nodes, api.NodeStatus{Voter: true, Zone: strings.Trim(zone, "-")})
		}
		s := api.Status{Leader: "n1", Nodes: nodes}
		describe(&s)
		expect.That(t, (s.Warning != "") == want, "zones %s: warned %q, want a warning: %v", zones, s.Warning, want)
	}
}
