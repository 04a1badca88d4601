package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm/kv"
)

// Elect takes part in an election until ctx ends: it waits for the lock of that name and calls lead
// while it holds it. The context that lead gets ends when leadership is lost, or ctx ends; lead should
// return then, and nothing is given back before it has. If leadership was lost it takes part again.
//
// It returns what lead returned if leadership lasted until then (the lock is released), nil if ctx ended
// first, and an error if the cluster refuses the lock or the client was closed. (Client.Close ends the
// context of lead, and waits until it has returned before it gives the lock back.) As with every lock, a
// leader that was paused may go on for a moment without knowing that it is one no more: hand
// Held.Fence to what it writes to.
func (c *Client) Elect(ctx context.Context, o LockOptions, lead func(ctx context.Context, h *Held) error) error {
	for {
		again, err := c.term(ctx, o, lead)
		if !again {
			return err
		}
		c.log.Warn("leadership lost, taking part again", "lock", o.Name)
	}
}

// term waits for leadership and leads. again says that it was lost before lead returned.
func (c *Client) term(ctx context.Context, o LockOptions, lead func(context.Context, *Held) error) (again bool, err error) {
	returned := make(chan struct{})
	h, err := c.acquire(ctx, permit{kind: kv.Lock, LockOptions: o, until: returned})
	switch {
	case err != nil && ctx.Err() != nil && !errors.Is(err, ErrClosed):
		return false, nil
	case err != nil:
		return false, err
	}
	// Also if lead panics.
	defer h.resign(ctx)
	defer close(returned)
	err = h.lead(ctx, lead)
	switch over := h.Err(); {
	case errors.Is(over, ErrClosed):
		return false, fmt.Errorf("lead by lock %q: the client was %w", o.Name, ErrClosed)
	case ctx.Err() != nil:
		return false, nil
	case errors.Is(over, ErrLost):
		return true, nil
	}
	return false, err
}

// lead calls it with a context that ends with leadership and with ctx.
func (h *Held) lead(ctx context.Context, lead func(context.Context, *Held) error) error {
	if ctx.Err() != nil {
		return nil
	}
	leading, cancel := context.WithCancelCause(h.keeper.ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	return lead(keptContext{leading, h.keeper}, h)
}

// resign gives leadership back, also when ctx has ended.
func (h *Held) resign(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if err := h.Release(ctx); err != nil && !errors.Is(err, ErrLost) {
		h.keeper.client.log.Warn("leadership not given back, it will be free when its session has ended", "lock", h.permit.Name, "err", err)
	}
}

// Leader returns who leads an election, which is who holds the lock of that name (not the key of
// LockOptions.Recipe). ErrNoLeader: nobody does.
func (c *Client) Leader(ctx context.Context, name string) (Holder, error) {
	p, err := c.Lock(ctx, name)
	if err == nil && len(p.Holders) == 0 {
		err = fmt.Errorf("lock %q: %w", name, ErrNoLeader)
	}
	if err != nil {
		return Holder{}, fmt.Errorf("find the leader: %w", err)
	}
	return p.Holders[0], nil
}
