package replication

import (
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/replication/link"
)

const (
	acknowledgeEvery = time.Second
	lastAcknowledge  = time.Second // at the end of Run, when the node may have no leader
)

// acknowledge stores the cursors of the current peers that moved in the state, all in one operation per second. A
// cursor whose operation fails is stored the next time.
func acknowledge(ctx context.Context, side *link.Side, current func() []*peer) error {
	tick := time.NewTicker(acknowledgeEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			acknowledgeOnce(ctx, side, current())
		case <-ctx.Done():
			return nil
		}
	}
}

func acknowledgeLast(ctx context.Context, side *link.Side, peers []*peer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastAcknowledge)
	defer cancel()
	acknowledgeOnce(ctx, side, peers)
}

func acknowledgeOnce(ctx context.Context, side *link.Side, peers []*peer) {
	var ops []registry.Op
	cursors := make(map[*peer]registry.Index)
	for _, p := range peers {
		if to, ok := p.moved(); ok {
			cursors[p] = to
			ops = append(ops, registry.AckPeer{Peer: p.Name, Cursor: to})
		}
	}
	if len(ops) == 0 {
		return
	}
	if _, err := side.Service.Apply(ctx, registry.FromClient, ops...); err != nil {
		side.Log.Debug("cursors were not acknowledged", "err", err)
		return
	}
	for p, to := range cursors {
		p.mu.Lock()
		p.acked = max(p.acked, to)
		p.mu.Unlock()
	}
}
