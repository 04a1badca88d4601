package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// verify looks the instance up once, after the first registration. A process that ended without a cancel may have
// left the instance behind. The cluster then responds with 204 and keeps its own copy: all of it if that is newer by
// its lastDirtyTimestamp, as after a clock was set back, or its status if it was drained (see
// registrationState.steps). Renewals would keep that copy alive forever, so the instance is registered anew, which
// takes effect. A lookup that fails is repeated after the next heartbeat.
func (r *Registration) verify() {
	if now := r.state.facts(); now.acked == nil || now.checked {
		return
	}
	a, err := r.client.cluster.Perform(r.life, r.client.cluster.Reading(ofInstance(http.MethodGet, r.key)), "")
	var found *registry.Instance // nil if the cluster does not show it
	if !errors.Is(err, ErrNotRegistered) {
		if err != nil {
			return
		}
		lease, err := eureka.DecodeInstance(a.Body, eureka.Format{})
		if err != nil {
			return
		}
		found = lease.Instance
	}
	if !r.state.verified(found) {
		return
	}
	// A failure is left to the next heartbeat, whose response is 404 then.
	_ = r.register(r.life, whyChanged, r.state.changed)
}

// heartbeats is the first of a Registration's loops: it registers the instance, and renews its lease one interval
// after each renewal was sent.
func (r *Registration) heartbeats() {
	outage := &wait.Outage{Log: r.log}
	for failures := 0; ; {
		sent := time.Now()
		err := r.beat()
		if r.life.Err() != nil {
			return
		}
		report(outage, err, "heartbeat")
		if err == nil {
			r.verify()
		}
		pause := time.Until(sent.Add(r.Interval()))
		if failures++; err == nil {
			failures = 0
		} else {
			pause = beatPause(r.Interval(), failures)
		}
		if !wait.For(r.life, pause) {
			return
		}
	}
}

// beatPause returns the time until the next try after a number of failed heartbeats or registrations: at most a tenth
// of the interval, doubled after each failure, up to half the interval. It is drawn from the upper half of that, so
// that instances that failed together do not come back together.
//
// A lease of three intervals, the usual one, has two left when its first heartbeat fails. In these there are at least
// five tries, and the lease outlives every outage that ends half an interval before the lease would. Upstream's
// back-off, which doubles the interval itself up to ten of them (com.netflix.discovery.TimedSupervisorTask), would
// try once, and lose leases in an outage that is much shorter than they are.
func beatPause(interval time.Duration, failures int) time.Duration {
	longest := min(interval/10<<min(failures-1, 3), interval/2)
	return longest/2 + rand.N(longest/2)
}

// beat does what is due: the first registration, or a renewal, which carries the newest state's version, acknowledged
// or not. A cluster that knows no instance or an older state responds with 404, and gets a registration.
func (r *Registration) beat() error {
	now := r.state.facts()
	dirty, acked := now.instance.LastDirty, now.acked
	if acked == nil {
		return r.register(r.life, whyFirst, r.state.first)
	}
	sent := time.Now()
	err := r.client.Renew(r.life, r.key, dirty)
	outcome := "failed"
	switch {
	case err == nil:
		outcome = "ok"
	case errors.Is(err, ErrNotRegistered):
		outcome = "not_found"
	}
	r.client.metrics.heartbeats.WithLabelValues(outcome).Inc()
	switch {
	case err == nil:
		r.state.renewed(sent)
	case errors.Is(err, ErrNotRegistered):
		return r.register(r.life, whyNotFound, func() []*registry.Instance { return r.state.missed(dirty, acked) })
	default:
		r.state.renewalFailed(err)
	}
	return err
}

// report logs that the instance cannot be registered or renewed, or can again.
func report(o *wait.Outage, err error, what string) {
	o.Report(err, "the cluster could not be told, trying again", "the cluster can be told again", "what", what)
}

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
