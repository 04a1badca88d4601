package observe

import (
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// usage notes every second what a node's process has used, beside what its clients have had of it.
func (o *Observer) usage(ctx context.Context, node int) {
	if o.config.Usage == nil {
		return
	}
	repeat(ctx, time.Second, func() time.Duration {
		at := time.Now()
		u, err := o.config.Usage(node)
		if err != nil {
			return 0 // between two processes there is none
		}
		u.At, u.Node, u.Instances = o.at(at), node, o.config.Book.Expected()
		if o.config.Renewals != nil {
			u.Renewals = o.config.Renewals()
		}
		o.note(func(t *trial.Trial) { t.Usage = append(t.Usage, u) })
		return 0
	})
}
