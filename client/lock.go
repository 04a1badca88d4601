package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// AcquireLock waits for a lock, in order of arrival, until it has it or ctx ends, and keeps it
// until Release or Client.Close. It creates a session of its own for that, so a holder that acquires the lock again
// waits for itself. While no server can be reached it keeps trying, unless LockOptions.Try is set.
//
// It uses the locks of Rollcall's own API. For ErrNotAcquired see LockOptions.Try. ErrClosed means that the client was
// closed, or is being closed.
func (c *Client) AcquireLock(ctx context.Context, o LockOptions) (*Held, error) {
	return c.acquire(ctx, permit{kind: kv.Lock, LockOptions: o})
}

// AcquireSemaphore is AcquireLock for one of the permits of a semaphore. ErrLimit means that the semaphore is in use
// with another limit.
func (c *Client) AcquireSemaphore(ctx context.Context, o SemaphoreOptions) (*Held, error) {
	if o.Limit < 1 {
		return nil, fmt.Errorf("acquire semaphore %q: limit %d is not at least 1", o.Name, o.Limit)
	}
	return c.acquire(ctx, permit{kind: kv.Semaphore, limit: o.Limit, LockOptions: o.LockOptions})
}

// acquire acquires with one session after the other: a session that ends while it waits loses its place.
func (c *Client) acquire(ctx context.Context, p permit) (*Held, error) {
	if p.Name == "" {
		return nil, fmt.Errorf("acquire a %s: no name is given", kindName(p.kind))
	}
	ctx, opening, err := c.acquiring(ctx)
	if err != nil {
		return nil, fmt.Errorf("acquire %s: %w", p, err)
	}
	defer opening.finish()
	for failures := 0; ; failures++ {
		held, err := c.acquireOnce(ctx, p)
		if err == nil {
			return held, nil
		}
		if p.Try || isPermanent(err) || !wait.For(ctx, wait.Retry(failures)) {
			return nil, fmt.Errorf("acquire %s: %w", p, opening.reason(ctx, err))
		}
		if errors.Is(err, ErrLost) {
			failures = 0 // it had a session until now
		}
		if failures == 0 {
			c.log.Warn("not acquired, trying again", kindName(p.kind), p.Name, "err", err)
		}
	}
}

func (c *Client) acquireOnce(ctx context.Context, p permit) (*Held, error) {
	k, err := c.newKeeper(ctx, SessionOptions{Name: p.sessionName(), TTL: p.TTL, LockDelay: p.LockDelay})
	if err != nil {
		return nil, err
	}
	h := &Held{keeper: k, permit: p}
	if h.fence, err = h.acquire(ctx); err == nil {
		err = k.startHolding(kindName(p.kind), h)
	}
	if err == nil {
		return h, nil
	}
	// It leaves the queue, and gives back the lock that the session may have got meanwhile: a session that ends as a
	// holder would leave a lock delay behind.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	_ = k.close(ctx, ErrReleased) // it does not matter whether the session was lost
	if _, err := h.release(ctx, kv.Fence{}); err != nil {
		c.log.Info("queue not left", "session", k.session, "err", err)
	}
	h.endSession(ctx)
	return nil, err
}

// Elect takes part in an election until ctx ends: it waits for the lock with that name and calls lead while it holds
// it. The context passed to lead ends when leadership is lost, or ctx ends; lead should return then, and nothing is
// given back before it has. If leadership was lost, Elect takes part again.
//
// It returns what lead returned if leadership lasted until then (the lock is released), nil if ctx ended first, and
// an error if the cluster refuses the lock or the client was closed. (Client.Close ends the context of lead, and
// waits until lead has returned before it gives the lock back.) As with every lock, a leader that was paused may go
// on for a moment without knowing that it no longer leads: hand Held.Fence to what it writes to.
func (c *Client) Elect(ctx context.Context, o LockOptions, lead func(ctx context.Context, h *Held) error) error {
	for {
		again, err := c.term(ctx, o, lead)
		if !again {
			return err
		}
		c.log.Warn("leadership lost, taking part again", "lock", o.Name)
	}
}

// term waits for leadership and leads. again reports that leadership was lost before lead returned.
func (c *Client) term(ctx context.Context, o LockOptions, lead func(context.Context, *Held) error) (again bool, err error) {
	returned := make(chan struct{})
	h, err := c.acquire(ctx, permit{kind: kv.Lock, LockOptions: o, until: returned})
	switch {
	case err != nil && ctx.Err() != nil && !errors.Is(err, ErrClosed):
		return false, nil
	case err != nil:
		return false, err
	}
	// Leadership is given back even when ctx has ended. Deferred, so that it also happens if lead panics.
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
		defer cancel()
		if err := h.Release(ctx); err != nil && !errors.Is(err, ErrLost) {
			c.log.Warn("leadership not given back, it will be free when its session has ended", "lock", o.Name, "err", err)
		}
	}()
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

// lead calls the caller's function with a context that ends with leadership and with ctx.
func (h *Held) lead(ctx context.Context, lead func(context.Context, *Held) error) error {
	if ctx.Err() != nil {
		return nil
	}
	leading, cancel := context.WithCancelCause(h.keeper.ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	return lead(keptContext{leading, h.keeper}, h)
}
