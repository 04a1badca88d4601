package consensus

import (
	"context"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/internal/wait"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/membership"
)

// compareInterval is how often a leader checks whether there are digests to compare.
const compareInterval = 10 * time.Second

// compareReplicas compares the states of all nodes whenever there are new digests, while this node leads.
func (s *Raft) compareReplicas(ctx context.Context) {
	defer s.metrics.differ.Reset()
	var compared uint64
	var logged string
	wait.Every(ctx, compareInterval, func(time.Time) {
		if own := s.digests.Newest(); len(own) == 0 || own[len(own)-1].Index <= compared {
			return
		}
		s.panics.Contain(store.MeasuredReplicas, func() {
			c := s.members.Verify(ctx)
			if c.Verdict == membership.VerdictUndecided {
				return // not all have made theirs; or a node is away, which shows elsewhere
			}
			compared = c.Index
			logged = s.reportComparison(c, logged)
		})
	})
}

// reportComparison shows a comparison as a metric, and logs which nodes differ unless that is what was logged last.
// It returns what was logged last from now on.
func (s *Raft) reportComparison(c membership.Comparison, logged string) string {
	var differ []string
	s.metrics.differ.Reset() // labels of former members
	for _, n := range c.Nodes {
		differs := 0.0
		if len(n.Differs) > 0 {
			differs = 1
			differ = append(differ, n.Name+": "+strings.Join(n.Differs, ", "))
		}
		s.metrics.differ.WithLabelValues(n.Name).Set(differs)
	}
	now := strings.Join(differ, "; ")
	switch {
	case now == logged:
	case now == "":
		s.log.Info("the replicas are equal again", "index", c.Index)
	default:
		s.log.Error("replicas differ: give the nodes that are named empty data directories, one after the other, each while the others have a leader without it, and let them join again", "nodes", now, "index", c.Index)
	}
	return now
}
