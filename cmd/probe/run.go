package probe

import (
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// run makes one attempt at a check, and tells the registry if that changed its state.
func (p *Prober) run(ctx context.Context, c *check, epoch registry.Epoch) {
	limited, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	found := p.attempt(limited, c.probe, c.own)
	if ctx.Err() != nil {
		return // the attempt was ended, and says nothing of the service
	}
	p.metrics.count(c.probe, found.status)
	view, err := p.cfg.Registry.View(ctx, registry.Stale)
	if err != nil {
		return
	}
	present, ok := view.CheckOn(c.node, c.id)
	if !ok {
		return
	}
	status, settled := c.tally.judge(c.probe, present.Status, found.status)
	found.status = status
	if now := time.Now(); settled && c.tally.news(present, found, now) && p.tell(ctx, c.ref, found, epoch) {
		c.tally.told = now
	}
}

// tell has the registry set a check. If that fails the next attempt comes to the same result.
func (p *Prober) tell(ctx context.Context, c ref, r result, epoch registry.Epoch) bool {
	_, err := p.cfg.Registry.Apply(ctx, registry.FromClient, registry.SetCheck{
		Node: c.node, Check: c.id, Status: r.status, Output: r.output, Epoch: epoch,
	})
	if err != nil && ctx.Err() == nil && !p.failing.Swap(true) {
		p.cfg.Log.Warn("the result of a check was not committed", "node", c.node, "check", c.id, "err", err)
	}
	if err == nil {
		p.failing.Store(false)
	}
	return err == nil
}
