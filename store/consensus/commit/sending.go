package commit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/wait"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
)

// sendUntilResult sends a batch to the node that leads, repeatedly and under the same number, until it has a result
// or its time is up.
func (c *Committer) sendUntilResult(ctx context.Context, b *batch) {
	for attempt := 0; ; attempt++ {
		changed := c.cfg.Leadership.Changed()
		if !time.Now().Before(b.deadline()) || ctx.Err() != nil {
			c.giveUp(b)
			return
		}
		if attempt > 0 {
			c.cfg.Metrics.Resent.Inc()
		}
		started := time.Now()
		res, err := c.submit(ctx, b)
		if err == nil {
			c.finish(b, res)
			return
		}
		if u, ok := errors.AsType[*unreadError](err); ok && b.sent.IsZero() {
			c.divide(ctx, b, u) // after an attempt of unknown outcome it could take effect twice
			return
		}
		if b.sent.IsZero() && !errors.Is(err, port.ErrNotSent) {
			b.sent = started
		}
		if b.sent.IsZero() {
			b.release()
		}
		wait.Pause(ctx, changed, store.RetryPause)
		if b.sent.IsZero() && !b.regain() {
			c.closeNumber(b)
			return
		}
	}
}

// finish gives every call of a batch its results.
func (c *Committer) finish(b *batch, res fsm.BatchResult) {
	c.closeNumber(b)
	want := 0
	for _, k := range b.calls {
		want += len(k.items)
	}
	if res.Refused || res.Len() != want || (res.KV != nil && len(res.KV) != want) {
		// The state machine no longer remembers the result. That cannot happen to a batch that is still open; if it
		// did, the outcome would be unknown.
		c.failCalls(b, registry.ErrUnknownOutcome)
		return
	}
	for _, k := range b.calls {
		k.results = res.Cut(len(k.items))
		close(k.done)
	}
}

// giveUp ends the calls of a batch whose time is up.
func (c *Committer) giveUp(b *batch) {
	c.closeNumber(b)
	if b.sent.IsZero() {
		c.failCalls(b, registry.ErrNoLeader)
		return
	}
	c.cfg.Metrics.Unknown.Add(float64(len(b.calls)))
	c.failCalls(b, registry.ErrUnknownOutcome)
}

func (c *Committer) failCalls(b *batch, err error) {
	for _, k := range b.calls {
		k.err = err
		close(k.done)
	}
}

// closeNumber counts a batch as finished: with the next batch, its number tells the state machine that a late copy
// must not take effect.
func (c *Committer) closeNumber(b *batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, b.id.Seq)
}

// divide sends the calls of a batch that the leader could not read again, in smaller batches with their own numbers:
// nothing was ever proposed under this batch's number. They go one after the other, because the state machine
// remembers the results of 64 open numbers per node.
func (c *Committer) divide(ctx context.Context, b *batch, u *unreadError) {
	c.closeNumber(b)
	if u.all || len(b.calls) == 1 {
		c.failCalls(b, fmt.Errorf("%w: %s", registry.ErrUnreadable, u.reason))
		return
	}
	for _, calls := range b.around(u.item) {
		c.sendUntilResult(ctx, c.reseal(calls))
	}
}

func (c *Committer) reseal(calls []*call) *batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seal(calls)
}
