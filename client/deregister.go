package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-20419f34/rollcall/internal/wait"
)

// Deregister ends the Registration: it stops the timers and cancels the instance, unless it was never registered or
// should Stay. Later calls return what the first returned. An instance that is not registered any longer is not an
// error.
func (r *Registration) Deregister(ctx context.Context) error {
	defer r.client.drop(r)
	return errors.Join(r.stop(ctx), r.withdraw(ctx))
}

// stop ends both loops, which interrupts what they are waiting for, and waits for them.
func (r *Registration) stop(ctx context.Context) error {
	r.cancel(ErrClosed)
	return wait.Until(ctx, r.stopped, "wait for the heartbeats of %s to end", r.key)
}

// withdraw cancels the instance once, for the first caller; the others wait for that.
func (r *Registration) withdraw(ctx context.Context) error {
	return r.left.do(ctx, fmt.Sprintf("wait until %s is canceled", r.key), func() error {
		err := r.unregister(ctx)
		// The callback comes last, so that one which hangs does not keep the instance registered.
		if r.healthTurn.tryAcquire() {
			return err
		}
		if late := r.healthTurn.acquire(ctx); late != nil {
			err = errors.Join(err, fmt.Errorf("wait for the health callback of %s to return: %w", r.key, late))
		}
		return err
	})
}

// unregister cancels the instance if the cluster may have it. It keeps the turn of registrations, so that no
// registration follows.
func (r *Registration) unregister(ctx context.Context) error {
	if err := r.turn.acquire(ctx); err != nil {
		return fmt.Errorf("cancel %s: %w", r.key, err)
	}
	if r.config.Stay || r.state.facts().absent {
		return nil
	}
	if err := r.client.Cancel(ctx, r.key); err != nil && !errors.Is(err, ErrNotRegistered) {
		return err
	}
	r.log.Info("canceled")
	return nil
}
