package observe

import (
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// machine records every second what the machine did. A failed look is left out, and the judge of the trial will miss
// it.
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
