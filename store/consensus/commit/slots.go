package commit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/wait"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/membership"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// Run fills the slots until ctx ends, and then ends the calls that still wait.
func (c *Committer) Run(ctx context.Context) {
	var flying sync.WaitGroup
	defer c.shut()
	defer flying.Wait()
	for {
		select {
		case c.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		own, proposals, err := c.next(ctx)
		if err != nil {
			return
		}
		e, proposals, err := c.launch(own, proposals)
		release := func() { <-c.slots }
		if c.sendAside(own, proposals, e) {
			release()
			release = c.returnAside
		}
		flying.Go(func() {
			defer release()
			c.finishEntry(ctx, own, proposals, e, err)
		})
	}
}

// next waits until there is something to send, and returns it.
func (c *Committer) next(ctx context.Context) (*batch, []*proposal, error) {
	for {
		select {
		case <-c.wake:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
		if c.holdBack(time.Now()) {
			continue
		}
		own, proposals := c.closeBatch()
		if own != nil || len(proposals) > 0 {
			return own, proposals, nil
		}
	}
}

// closeBatch closes the current batch, and the proposals that may share its entry.
func (c *Committer) closeBatch() (*batch, []*proposal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls, size := c.nextCalls()
	n := 0
	for n < len(c.proposals) && (n == 0 || size < maxEntryBytes) && !(c.cfg.NoBatching && n+len(calls) > 0) {
		size += len(c.proposals[n].batch)
		n++
	}
	proposals := c.proposals[:n:n]
	c.proposals = c.proposals[n:]
	if len(c.calls) > 0 || len(c.proposals) > 0 {
		c.signal()
	}
	if len(calls) == 0 {
		return nil, proposals
	}
	return c.seal(calls), proposals
}

// launch proposes what next returned as one entry, if this node leads. It refuses proposals that have waited beyond
// their bound, and returns the others. Those come first in the entry: renewals among them may have waited, and this
// node's own batch may hold an eviction.
func (c *Committer) launch(own *batch, proposals []*proposal) (*Entry, []*proposal, error) {
	l, now := c.cfg.Leadership.Own(), time.Now()
	if l == nil {
		return nil, proposals, fmt.Errorf("%w: %w", port.ErrNotSent, membership.ErrNotLeader)
	}
	encoded := make([][]byte, 0, 1+len(proposals))
	kept := proposals[:0]
	for _, p := range proposals {
		if !l.Permits(p.bound, now) {
			c.refuse([]*proposal{p}, fmt.Errorf("%w: %w", port.ErrNotSent, errLate))
			continue
		}
		kept = append(kept, p)
		encoded = append(encoded, p.batch)
	}
	if own != nil {
		encoded = append(encoded, own.encode(c.cfg.Proposer.Level(), l.Bound(own.giveUpAt(now))))
	}
	c.mu.Lock()
	c.renewals.newest = now
	c.mu.Unlock()
	e, err := c.cfg.Proposer.Propose(encoded...) // an entry without batches does no harm
	return e, kept, err
}

// finishEntry waits for an entry that launch proposed, and gives every call its result. If this node does not lead,
// or no longer, its own batch goes to the leader.
func (c *Committer) finishEntry(ctx context.Context, own *batch, proposals []*proposal, e *Entry, err error) {
	var results []fsm.BatchResult
	if err == nil {
		results, err = e.Results(ctx)
	}
	if err != nil {
		c.refuse(proposals, err)
		if own != nil {
			if !errors.Is(err, port.ErrNotSent) {
				own.sent = e.started
			}
			c.sendUntilResult(ctx, own)
		}
		return
	}
	for i, p := range proposals {
		p.res = results[i]
		close(p.done)
	}
	switch {
	case own == nil:
	case results[len(proposals)].Late:
		c.sendUntilResult(ctx, own)
	default:
		c.finish(own, results[len(proposals)])
	}
}

// lookAgain is the pause between looks at waiting calls.
const lookAgain = store.NoLeaderWait / 40

// Sweep ends calls that found no slot in time: they certainly took no effect. It looks more often while there are
// calls.
func (c *Committer) Sweep(ctx context.Context) {
	for ctx.Err() == nil {
		now, pause := time.Now(), expiry.ClockInterval
		c.pauses.beat(now)
		before := now.Add(-c.noLeader())
		c.mu.Lock()
		for _, k := range c.calls {
			if !k.arrived.Before(before) {
				break // the queue is in order of arrival
			}
			k.abandon(registry.ErrNoLeader)
		}
		if len(c.calls) > 0 {
			pause = lookAgain
		}
		c.mu.Unlock()
		wait.Pause(ctx, nil, pause)
	}
}
