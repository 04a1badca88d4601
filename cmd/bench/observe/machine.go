package observe

import (
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// machine records every second what the machine did. A look that fails is left out, and missed by who judges the trial.
func (o *Observer) machine(ctx context.Context) {
	if o.config.Machine == nil {
		return
	}
	repeat(ctx, time.Second, func() time.Duration {
		h, err := o.config.Machine()
		h.At = o.at(time.Now())
		if err == nil {
			o.add(func(t *trial.Trial) { t.Machine = append(t.Machine, h) })
		}
		return 0
	})
}
