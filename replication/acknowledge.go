package replication

import (
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

const (
	acknowledgeEvery = time.Second
	lastAcknowledge  = time.Second // at the end of Run, when the node may have no leader
)

// acknowledge has the state keep the cursors that moved, all in one operation per second. What fails is
// acknowledged the next time.
func (r *Replicator) acknowledge(ctx context.Context) error {
	tick := time.NewTicker(acknowledgeEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.acknowledgeOnce(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

func (r *Replicator) acknowledgeLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastAcknowledge)
	defer cancel()
	r.acknowledgeOnce(ctx)
}

func (r *Replicator) acknowledgeOnce(ctx context.Context) {
	var ops []registry.Op
	cursors := make(map[*peer]registry.Index)
	for _, p := range r.peers {
		if to, ok := p.moved(); ok {
			cursors[p] = to
			ops = append(ops, registry.AckPeer{Peer: p.Name, Cursor: to})
		}
	}
	if len(ops) == 0 {
		return
	}
	if _, err := r.config.Service.Apply(ctx, registry.FromClient, ops...); err != nil {
		r.config.Log.Debug("cursors were not acknowledged", "err", err)
		return
	}
	for p, to := range cursors {
		p.acknowledged(to)
	}
}
