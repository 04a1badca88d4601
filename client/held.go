package client

import (
	"context"
	"errors"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// Held is a lock, or a permit of a semaphore, that this process holds. Safe for concurrent use. It
// must be released; Client.Close does it, too.
//
// A process that was paused for longer than the TTL holds nothing any more when it goes on, and
// Context, Err and Valid say so at the first look: they compare the time, by the monotonic clock. (That
// clock stands still while a machine is suspended.) What was looked at before the pause may still be
// under way after it; a holder that must be sure hands Fence to what it writes to.
type Held struct {
	*keeper
	permit   permit
	protocol protocol
	fence    kv.Fence
	released once // the release
}

// Fence is the acquisition: its Index is the token, which grows with each acquisition of the same name.
// A Write that carries it is refused once the lock is not held any more.
func (h *Held) Fence() kv.Fence { return h.fence }

// Session is the id of the session that holds it.
func (h *Held) Session() string { return h.session }

// Context ends when the lock is lost or released; context.Cause says which (ErrLost, ErrReleased). It
// has the values of the context that the lock was acquired with, not its end. A context that is derived
// from it does not look at the clock by itself: in a process that was paused it ends a moment later.
func (h *Held) Context() context.Context { return h.heldContext() }

// Valid says whether the lock is held.
func (h *Held) Valid() bool { return h.valid() }

// Err is nil while the lock is held, and then says why it is not: ErrLost or ErrReleased.
func (h *Held) Err() error { return h.err() }

// Release ends Context, gives the lock to the next in the queue and ends the session. It tries until ctx
// ends, or until the lock would end by itself. What it returns first it returns always; a later call
// waits for the first, unless its own ctx ends before. ErrLost: the lock was not held any more.
func (h *Held) Release(ctx context.Context) error {
	return h.released.do(ctx, "", func() error {
		defer h.client.drop(h)
		err := h.giveUp(ctx, func(ctx context.Context) error {
			defer h.endSession(ctx)
			return giveBack(ctx, ErrLost, func() (bool, error) { return h.protocol.release(ctx, h.fence) })
		})
		return wait.Annotate(err, "release %s", []any{h.permit})
	})
}

// join makes the lock a part of the client. The error says that the lock cannot be held.
func (h *Held) join() error {
	var watch func(context.Context) error
	if w, ok := h.protocol.(watched); ok {
		watch = w.watch
	}
	if err := h.startHolding(kindName(h.permit.kind), watch); err != nil {
		return err
	}
	return h.client.adopt(h)
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
	if err != nil && !noSession(err) {
		h.client.log.Info("session not ended, it will end by itself", "session", h.session, "err", err)
	}
}

// abandon leaves the queue, and gives back the lock that the session may have got meanwhile: a session that ends
// as a holder would leave a lock delay behind.
func (h *Held) abandon(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	_ = h.close(ctx, ErrReleased) // it does not matter whether the session was lost
	if _, err := h.protocol.release(ctx, kv.Fence{}); err != nil {
		h.client.log.Info("queue not left", "session", h.session, "err", err)
	}
	h.endSession(ctx)
}

// protocol is how a session gets one lock or permit, and gives it back. It is used by one goroutine at a
// time, but for watch.
type protocol interface {
	// acquire waits until the session has the permit, and returns the acquisition. The session may have it also after an error.
	acquire(ctx context.Context) (kv.Fence, error)
	// release gives the permit back, in one try, and says whether the session had it. Without an Index the session leaves the
	// queue as well.
	release(ctx context.Context, fence kv.Fence) (bool, error)
}

// watched is a protocol whose locks may be lost although their session lasts.
type watched interface {
	// watch returns nil when ctx has ended, and otherwise why the lock is not held any more.
	watch(ctx context.Context) error
}
