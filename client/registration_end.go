package client

import (
	"context"
	"errors"
	"fmt"
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
	select {
	case <-r.stopped:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the heartbeats of %s to end: %w", r.key, context.Cause(ctx))
	}
}

// leave says farewell once, for whoever comes first; the others wait for that.
func (r *Registration) leave(ctx context.Context) error {
	if r.leaving.try() {
		defer close(r.left)
		r.result = errors.Join(r.unregister(ctx), r.awaitHealth(ctx))
		return r.result
	}
	select {
	case <-r.left:
		return r.result
	case <-ctx.Done():
		return fmt.Errorf("wait until %s is canceled: %w", r.key, context.Cause(ctx))
	}
}

// unregister cancels the instance if it may be there. It keeps the turn of registrations, so that none
// comes after it.
func (r *Registration) unregister(ctx context.Context) error {
	if err := r.turn.take(ctx); err != nil {
		return fmt.Errorf("cancel %s: %w", r.key, err)
	}
	if r.config.Stay || !r.state.mayBeThere() {
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
