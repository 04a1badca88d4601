package observe

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// leaderEvery is how often a node is asked who leads.
const leaderEvery = 100 * time.Millisecond

// leaders asks a node who leads, and notes what changes. A node that does not answer knows no leader.
func (o *Observer) leaders(ctx context.Context, node int) {
	if o.config.Mode != scenario.CP {
		return
	}
	asker := o.asker(node)
	var last *trial.Leader
	repeat(ctx, leaderEvery, func() time.Duration {
		l := trial.Leader{At: o.at(time.Now()), Node: node, Leader: -1}
		l.Leader, l.Term = o.leader(ctx, asker)
		if ctx.Err() != nil || last != nil && last.Leader == l.Leader && last.Term == l.Term {
			return 0
		}
		last = &l
		o.note(func(t *trial.Trial) { t.Leaders = append(t.Leaders, l) })
		return 0
	})
}

// leader is the number of the leader that a node knows, -1 if it knows none, and its term.
func (o *Observer) leader(ctx context.Context, a *asker) (leader int, term uint64) {
	var status client.Status
	answer, err := a.find(ctx, "/v1/rollcall/status")
	if err != nil || json.Unmarshal(answer.body, &status) != nil {
		return -1, 0
	}
	return slices.Index(o.config.Names, status.Leader), status.Term
}
