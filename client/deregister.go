package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-20419f34/rollcall/client/internal/wait"
)

// Deregister ends the Registration: it stops the timers and cancels the instance, unless it was never
// registered or is to Stay. Later calls return what the first returned. An instance that is not
// registered any more is no error.
func (r *Registration) Deregister(ctx context.Context) error {
	defer r.client.drop(r)
	return errors.Join(r.stop(ctx), r.leave(ctx))
}

// stop ends both loops, which cuts off what they are waiting for, and waits for them.
func (r *Registration) stop(ctx context.Context) error {
	r.end(ErrClosed)
	return wait.Until(ctx, r.stopped, "wait for the heartbeats of %s to end", r.key)
}

// leave says farewell once, for whoever comes first; the others wait for that.
func (r *Registration) leave(ctx context.Context) error {
	return r.ending.do(ctx, fmt.Sprintf("wait until %s is canceled", r.key), func() error {
		return errors.Join(r.unregister(ctx), r.awaitHealth(ctx))
	})
}

// unregister cancels the instance if it may be there. It keeps the turn of registrations, so that none
// comes after it.
func (r *Registration) unregister(ctx context.Context) error {
	if err := r.turn.take(ctx); err != nil {
		return fmt.Errorf("cancel %s: %w", r.key, err)
	}
	if r.config.Stay || r.state.facts().gone {
		return nil
	}
	if err := r.client.Cancel(ctx, r.key); err != nil && !errors.Is(err, ErrNotRegistered) {
		return err
	}
	r.log.Info("canceled")
	return nil
}

// awaitHealth waits for the callback. It comes last, so that one which hangs does not keep the instance
// registered.
func (r *Registration) awaitHealth(ctx context.Context) error {
	if r.asking.try() {
		return nil
	}
	if err := r.asking.take(ctx); err != nil {
		return fmt.Errorf("wait for the health callback of %s to return: %w", r.key, err)
	}
	return nil
}
