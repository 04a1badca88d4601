package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm/kv"
)

// Held is a lock, or a permit of a semaphore, that this process holds. Safe for concurrent use. It
// must be released; Client.Close does it, too.
//
// A process that was paused for longer than the TTL holds nothing any more when it goes on, and
// Context, Err and Valid say so at the first look: they compare the time, by the monotonic clock. (That
// clock stands still while a machine is suspended.) What was looked at before the pause may still be
// under way after it; whoever must be sure hands Fence to what it writes to.
type Held struct {
	keeper   *keeper
	permit   permit
	protocol protocol
	fence    kv.Fence
	ending   ending
}

// Fence is the acquisition: its Index is the token, which grows with each acquisition of the same name.
// A Write that carries it is refused once the lock is not held any more.
func (h *Held) Fence() kv.Fence { return h.fence }

// Session is the id of the session that holds it.
func (h *Held) Session() string { return h.keeper.session }

// Context ends when the lock is lost or released; context.Cause says which (ErrLost, ErrReleased). It
// has the values of the context that the lock was acquired with, not its end. A context that is derived
// from it does not look at the clock by itself: in a process that was paused it ends a moment later.
func (h *Held) Context() context.Context { return keptContext{h.keeper.ctx, h.keeper} }

// Valid says whether the lock is held.
func (h *Held) Valid() bool { return h.keeper.valid() }

// Err is nil while the lock is held, and then says why it is not: ErrLost or ErrReleased.
func (h *Held) Err() error { return h.keeper.err() }

// Release ends Context, gives the lock to the next in the queue and ends the session. It tries until ctx
// ends, or until the lock would end by itself. What it returns first it returns always; a later call
// waits for the first, unless its own ctx ends before. ErrLost: the lock was not held any more.
func (h *Held) Release(ctx context.Context) error {
	return h.ending.do(ctx, func() error {
		defer h.keeper.client.drop(h)
		if err := h.release(ctx); err != nil {
			return fmt.Errorf("release %s: %w", h.permit, err)
		}
		return nil
	})
}

func (h *Held) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.keeper.lasts())
	defer cancel()
	lost := h.keeper.close(ctx, ErrReleased)
	err := h.giveBack(ctx)
	h.endSession(ctx)
	if lost != nil {
		return lost
	}
	if errors.Is(err, ErrLost) {
		h.keeper.countLost()
	}
	return err
}

// begin makes it a part of the client. The error says that it cannot be held.
func (h *Held) begin() error {
	var watch func(context.Context) error
	if w, ok := h.protocol.(watched); ok {
		watch = w.watch
	}
	if err := h.keeper.hold(kindName(h.permit.kind), watch); err != nil {
		return err
	}
	return h.keeper.client.adopt(h)
}

// stop is the client's end.
func (h *Held) stop(ctx context.Context) error {
	h.keeper.finish(errReleasedByClose)
	return h.keeper.await(ctx)
}

// leave gives back what was not lost, once it may.
func (h *Held) leave(ctx context.Context) error {
	if h.permit.until != nil {
		select {
		case <-h.permit.until:
		case <-ctx.Done():
			return fmt.Errorf("release %s: it is in use: %w", h.permit, context.Cause(ctx))
		}
	}
	if err := h.Release(ctx); !errors.Is(err, ErrLost) {
		return err
	}
	return nil
}

// giveBack releases the permit, and tries again while nobody knows the outcome.
func (h *Held) giveBack(ctx context.Context) error {
	repeated := false
	for failures := 0; ; failures++ {
		released, err := h.protocol.release(ctx, h.fence)
		switch {
		case err == nil && (released || repeated):
			return nil
		case err == nil:
			return ErrLost
		case hopeless(err):
			return err
		}
		repeated = repeated || errors.Is(err, ErrUnknownOutcome)
		if !wait(ctx, retryPause(failures)) {
			return err
		}
	}
}

// endSession ends the session, so that its name is not left behind until its TTL has passed.
func (h *Held) endSession(ctx context.Context) {
	err := h.keeper.client.DestroySession(ctx, h.keeper.session)
	if err != nil && !noSession(err) {
		h.keeper.client.log.Info("session not ended, it will end by itself", "session", h.keeper.session, "err", err)
	}
}

// abandon leaves the queue, and gives back what it may have been given meanwhile: a session that ends
// with it would leave a lock-delay behind.
func (h *Held) abandon(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	_ = h.keeper.close(ctx, ErrReleased) // it does not matter whether it was lost
	if _, err := h.protocol.release(ctx, kv.Fence{}); err != nil {
		h.keeper.client.log.Info("queue not left", "session", h.keeper.session, "err", err)
	}
	h.endSession(ctx)
}
