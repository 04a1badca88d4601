package store

import (
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// evictor ends leases for one leadership.
type evictor struct {
	s        *Raft
	epoch    registry.Epoch
	believed int // stalls of the clock up to which this node's knowledge was confirmed
}

// round evicts what is due. After a stall (a pause of the process, a new leadership) it first makes
// sure, by a committed entry, that this node still leads and has applied what came in between.
func (e *evictor) round(ctx context.Context) {
	now, stalls := e.s.clock.read(time.Now())
	if stalls != e.believed {
		if e.s.tick(ctx) {
			e.believed = stalls
		}
		return
	}
	items := e.s.machine.Expired(now, evictionBatch)
	if len(items) == 0 {
		return
	}
	results, err := e.s.Apply(ctx, registry.FromClient, registry.Evict{Epoch: e.epoch, Items: items})
	if err != nil {
		e.s.log.Warn("eviction was not committed", "leases", len(items), "err", err)
		return
	}
	if n := results[0].Count; n > 0 {
		e.s.metrics.evicted.Add(float64(n))
		e.s.log.Info("evicted", "leases", n)
	}
}
