package client

import (
	"context"
	"errors"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Why an instance is registered, as the metrics have it.
const (
	whyFirst    = "first"
	whyNotFound = "not_found"
	whyChanged  = "changed"
)

// register sends what take says is due, if there is anything. Registrations go one after the other, and
// each asks what is due when its turn has come: the later one always carries the newest state.
func (r *Registration) register(ctx context.Context, why string, take func() []*registry.Instance) error {
	if err := r.turn.take(ctx); err != nil {
		return err
	}
	defer r.turn.give()
	if r.life.Err() != nil { // ctx may learn of it later
		return context.Cause(r.life)
	}
	for _, i := range take() {
		if err := r.tell(ctx, i, why); err != nil {
			return err
		}
	}
	return nil
}

func (r *Registration) tell(ctx context.Context, i *registry.Instance, why string) error {
	sent := time.Now()
	a, err := r.client.register(ctx, i)
	if err != nil {
		r.client.metrics.registrations.WithLabelValues(why, "failed").Inc()
		r.state.unregistered(i, err, a.repeated || errors.Is(err, ErrUnknownOutcome))
		return err
	}
	r.client.metrics.registrations.WithLabelValues(why, "ok").Inc()
	lease := leaseOf(i, a.header.Get(clampedHeader))
	r.state.registered(i, sent, lease)
	r.log.Info("registered", "why", why, "status", i.Status.String(), "renewed_every", lease.interval)
	return nil
}

// turn is held by one at a time, who may wait for the network meanwhile.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// take waits until it is free, or returns why ctx ended.
func (t turn) take(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// try takes it if it is free.
func (t turn) try() bool {
	select {
	case t <- struct{}{}:
		return true
	default:
		return false
	}
}

func (t turn) give() { <-t }
