package client

import (
	"context"
	"errors"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// Held is a lock, or a permit of a semaphore, that this process holds. Safe for concurrent use. It must be released,
// which Client.Close does too.
//
// A process that was paused for longer than the TTL holds nothing when it goes on. Context, Err and Valid say so at
// the first check: they compare the time, by the monotonic clock. (That clock stands still while a machine is
// suspended.) Work that checked them before the pause may still be in progress after it; a holder that must be sure
// hands Fence to what it writes to.
type Held struct {
	*keeper
	permit   permit
	fence    kv.Fence
	released once // the release
}

// Fence returns the acquisition: its Index is the token, which grows with each acquisition of the same name. A Write
// that carries it is refused once the lock is released or lost.
func (h *Held) Fence() kv.Fence { return h.fence }

// Session returns the id of the session that holds it.
func (h *Held) Session() string { return h.session }

// Context returns a context that ends when the lock is lost or released; context.Cause says which (ErrLost,
// ErrReleased). It has the values of the context that the lock was acquired with, not its end. A context derived from
// it does not check the clock: in a process that was paused it ends a moment later.
func (h *Held) Context() context.Context { return h.heldContext() }

// Valid reports whether the lock is held.
func (h *Held) Valid() bool { return h.valid() }

// Err returns nil while the lock is held, and afterwards why it is not: ErrLost or ErrReleased.
func (h *Held) Err() error { return h.err() }

// Release ends Context, gives the lock to the next in the queue and ends the session. It tries until ctx ends, or
// until the lock would expire. It always returns what it returned first; a later call waits for the first, unless its
// own ctx ends before. ErrLost means that the lock was no longer held.
func (h *Held) Release(ctx context.Context) error {
	return h.released.do(ctx, "", func() error {
		defer h.client.drop(h)
		err := h.giveUp(ctx, func(ctx context.Context) error {
			defer h.endSession(ctx)
			return giveBack(ctx, ErrLost, func() (bool, error) { return h.release(ctx, h.fence) })
		})
		return wait.Annotate(err, "release %s", []any{h.permit})
	})
}

// withdraw gives the lock back unless it was lost, when permit.until allows that.
func (h *Held) withdraw(ctx context.Context) error {
	if h.permit.until != nil {
		if err := wait.Until(ctx, h.permit.until, "release %s: it is in use", h.permit); err != nil {
			return err
		}
	}
	if err := h.Release(ctx); !errors.Is(err, ErrLost) {
		return err
	}
	return nil
}

// endSession ends the session, so that its name is not left behind until its TTL has passed.
func (h *Held) endSession(ctx context.Context) {
	err := h.client.DestroySession(ctx, h.session)
	if err != nil && !errors.Is(err, ErrNoSession) {
		h.client.log.Info("session not ended, it will expire", "session", h.session, "err", err)
	}
}
