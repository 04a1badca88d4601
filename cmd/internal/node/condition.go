package node

import (
	"fmt"
	"strings"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// Conditions of a cluster.
const (
	well       = "well"
	degraded   = "degraded"
	leaderless = "leaderless"
)

// behindBy is how many entries a node may be behind and still count as well: that many are written while it is asked.
const behindBy = 10_000

// describe sets the condition of a cluster, in a word and in sentences.
func describe(s *api.Status) {
	var troubles []string
	leads := "" // by its own account
	for _, n := range s.Nodes {
		if n.Role == "leader" {
			leads = n.ID
		}
		if trouble := troubleOf(n); trouble != "" {
			troubles = append(troubles, n.ID+" "+trouble)
		}
	}
	voters, healthy := votersOf(s.Nodes)
	s.Warning = sharedZone(s.Nodes, voters)
	trouble := strings.Join(troubles, ", ")
	if s.Mode == config.AP {
		s.Condition, s.Summary = well, fmt.Sprintf("Healthy: %s.", api.MayFail(max(len(s.Nodes)-1, 0), ""))
		if trouble != "" {
			s.Condition, s.Summary = degraded, fmt.Sprintf("Degraded: %s.", trouble)
		}
		return
	}
	may := api.MayFail(tolerance(voters, healthy), "")
	switch {
	case s.Leader == "" && leads != "":
		s.Condition, s.Summary = leaderless, fmt.Sprintf("This node hears no leader yet, and %s says that it leads: ask again in a second.", leads)
	case s.Leader == "":
		s.Condition, s.Summary = leaderless, "No leader: nothing can be written, and reads are stale, until a majority of the voters is in touch."
		if trouble != "" {
			s.Summary += " Of these, " + trouble + "."
		}
	case voters == 0:
		s.Condition, s.Summary = degraded, "This node does not know the members of its cluster yet: ask again in a second."
	case trouble != "":
		s.Condition, s.Summary = degraded, fmt.Sprintf("Degraded: %s; %s.", trouble, may)
	default:
		s.Condition, s.Summary = well, fmt.Sprintf("Healthy: %s.", may)
	}
}

// votersOf counts the voters, and the healthy ones among them.
func votersOf(nodes []api.NodeStatus) (voters, healthy int) {
	for _, n := range nodes {
		if n.Voter {
			voters++
			if troubleOf(n) == "" {
				healthy++
			}
		}
	}
	return voters, healthy
}

// tolerance returns how many more voters may fail while a majority remains; a negative number means that they
// have no majority now.
func tolerance(voters, healthy int) int { return healthy - (voters/2 + 1) }

// unreachable is the role of a node that does not respond.
const unreachable = "unreachable"

// troubleOf says what is wrong with a node, or returns "".
func troubleOf(n api.NodeStatus) string {
	switch {
	case n.Role == unreachable:
		return "cannot be reached"
	case n.Role == "stopped":
		return "has stopped"
	case n.Role == "candidate":
		return "hears no leader"
	case n.Lag > behindBy:
		return fmt.Sprintf("is %d entries behind", n.Lag)
	}
	return ""
}

// sharedZone warns of a zone that has a majority of the voters, or returns "".
func sharedZone(nodes []api.NodeStatus, voters int) string {
	counts := map[string]int{}
	for _, n := range nodes {
		if n.Voter && n.Zone != "" {
			counts[n.Zone]++
			if voters > 1 && counts[n.Zone] > voters/2 {
				return fmt.Sprintf("A majority of the voters stands in zone %s: without it the cluster has no leader.", n.Zone)
			}
		}
	}
	return ""
}
