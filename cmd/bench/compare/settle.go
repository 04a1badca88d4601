package compare

import (
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

const (
	settleWithin      = 15 * time.Second
	settleWithinQuick = 8 * time.Second
	settlePoll        = 50 * time.Millisecond
	// evictionLag is from the end of a lease until the instance must be gone: an eviction round each second, and the
	// lease clock, which is up to a second behind.
	evictionLag = 3 * time.Second
)

// leaseEnds is how long after its last sign of life an instance must not be listed any more.
func (r *run) leaseEnds() time.Duration {
	return r.turn.scenario.Load.Lease.Duration() + evictionLag
}

// settle waits until every node lists what was acknowledged before the last fault ended, and until the leases of the
// dead have ended, then until it lists what was acknowledged at all; in bounded time. The second mark comes after the
// first wait, for it would count what came after the fault as not healed.
func (r *run) settle(ctx context.Context, faults []trial.Fault) {
	within := settleWithin
	if r.config.Plan.Quick {
		within = settleWithinQuick
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	ended := r.began.Add(r.deaths(faults))
	await(ctx, settlePoll, func() bool { return r.observer.Healed() && time.Now().After(ended) })
	r.book.Mark()
	await(ctx, settlePoll, r.observer.Healed)
}

// deaths is when the leases of all instances that died must have ended, from the load's begin; 0: none died. A node
// that comes back gives each lease its time anew, and so does self-preservation once more when it goes off there.
func (r *run) deaths(faults []trial.Fault) time.Duration {
	died, last := false, time.Duration(0)
	for _, f := range faults {
		ended := max(f.To, f.Ready).Duration() + r.leaseEnds()
		if f.Kind == scenario.Die {
			died = true
		} else {
			ended += r.turn.scenario.Load.Lease.Duration()
		}
		last = max(last, ended)
	}
	if !died {
		return 0
	}
	return last
}

// await asks every so often until it is done or ctx ends.
func await(ctx context.Context, every time.Duration, done func() bool) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
