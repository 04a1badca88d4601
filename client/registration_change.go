package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/wait"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// SetStatus changes the status, and ends a Drain. It says whether the cluster is told at once: if not,
// the token bucket is empty, and it is told with whatever else changes meanwhile when a token comes
// free.
func (r *Registration) SetStatus(s registry.Status) (atOnce bool) {
	r.state.stopDraining()
	return r.change(func(i *registry.Instance) { i.Status = s })
}

// SetMetadata adds or replaces entries of the metadata. It returns what SetStatus returns.
func (r *Registration) SetMetadata(entries ...registry.Pair) (atOnce bool) {
	return r.change(func(i *registry.Instance) { i.Metadata = setMetadata(i.Metadata, entries) })
}

// DeleteMetadata removes entries of the metadata. It returns what SetStatus returns.
func (r *Registration) DeleteMetadata(keys ...string) (atOnce bool) {
	return r.change(func(i *registry.Instance) { i.Metadata = deleteMetadata(i.Metadata, keys) })
}

func (r *Registration) change(how func(i *registry.Instance)) (atOnce bool) {
	if !r.state.differs(how) {
		_, waiting := r.state.demand()
		return !waiting
	}
	return r.announce()
}

// differs makes a change, unless it changes nothing.
func (s *registrationState) differs(how func(i *registry.Instance)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if would := *s.instance; !alters(&would, how) {
		return false
	}
	s.change(how)
	return true
}

// alters applies a change to an instance, and says whether it is another one then.
func alters(i *registry.Instance, how func(i *registry.Instance)) bool {
	status, metadata := i.Status, i.Metadata
	how(i)
	return i.Status != status || !slices.Equal(i.Metadata, metadata)
}

// judge takes what Health said, unless the instance began to drain while it was asked.
func (s *registrationState) judge(status registry.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drain == nil && status != s.instance.Status {
		s.change(func(i *registry.Instance) { i.Status = status })
	}
}

// startDraining takes the instance out of service, and keeps Health from being asked. What it returns
// ends with life, or when the status is set.
func (s *registrationState) startDraining(life context.Context) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drain == nil {
		s.drain, s.endDrain = context.WithCancelCause(life)
	}
	if s.instance.Status != registry.OutOfService {
		s.change(func(i *registry.Instance) { i.Status = registry.OutOfService })
	}
	return s.drain
}

func (s *registrationState) stopDraining() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drain != nil {
		s.endDrain(errStatusSet)
		s.drain = nil
	}
}

// want notes an update on demand, which has its token or waits for one.
func (s *registrationState) want(atOnce bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.demanded, s.waiting = s.demanded || atOnce, !atOnce
}

// demand says what want noted since the last satisfy. What a heartbeat brought meanwhile waits no more.
func (s *registrationState) demand() (demanded, waiting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.demanded, s.waiting && s.dirty()
}

// satisfy notes that an update is about to take what is wanted so far.
func (s *registrationState) satisfy() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.demanded, s.waiting = false, false
}

// heartbeats is the first of a Registration's loops: it registers the instance, and renews its lease
// once per interval from when the last renewal was sent.
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

// beatPause is the time until the next try after so many failures of a heartbeat or registration: at
// most a tenth of the interval, and twice as much after each failure, up to half the interval; at random
// in the upper half of that, so that the instances that failed together do not come back together.
//
// A lease of three intervals, the usual one, has two left when its first heartbeat fails. In these there
// are five tries at least, and it outlives each outage that ends half an interval before it would.
// Upstream's back-off, which doubles the interval itself up to ten of them
// (com.netflix.discovery.TimedSupervisorTask), would try once, and lose leases in an outage that is much
// shorter than they are.
func beatPause(interval time.Duration, failures int) time.Duration {
	longest := min(interval/10<<min(failures-1, 3), interval/2)
	return longest/2 + rand.N(longest/2)
}

// beat does what is due: the first registration, or a renewal, which says the newest state's version, told or not. A
// cluster that knows nothing or something older answers 404, and is told.
func (r *Registration) beat() error {
	now := r.state.facts()
	dirty, told := now.instance.LastDirty, now.told
	if told == nil {
		return r.register(r.life, whyFirst, r.state.first)
	}
	sent := time.Now()
	err := r.client.Renew(r.life, r.key, dirty)
	r.client.metrics.heartbeats.WithLabelValues(beatOutcome(err)).Inc()
	switch {
	case err == nil:
		r.state.renewed(sent)
	case errors.Is(err, ErrNotRegistered):
		return r.register(r.life, whyNotFound, func() []*registry.Instance { return r.state.missed(dirty, told) })
	default:
		r.state.unheard(err)
	}
	return err
}

func beatOutcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, ErrNotRegistered):
		return "not_found"
	}
	return "failed"
}

// report logs that the cluster cannot be told of the instance, or can again.
func report(o *wait.Outage, err error, what string) {
	o.Report(err, "the cluster could not be told, trying again", "the cluster can be told again", "what", what)
}

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
		r.state.unregistered(i, err, a.Repeated || errors.Is(err, ErrUnknownOutcome))
		return err
	}
	r.client.metrics.registrations.WithLabelValues(why, "ok").Inc()
	lease := leaseOf(i, a.Header.Get(clampedHeader))
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

// replicate is the second loop of a Registration, upstream's InstanceInfoReplicator: it registers what
// has changed, at its checks and on demand.
//
// A check asks Health first, in a goroutine of its own, and goes on when that has answered. If Health is
// still busy with the one before, the check does without it.
func (r *Registration) replicate() {
	outage := &wait.Outage{Log: r.log}
	check, token := time.NewTimer(r.config.ReplicationDelay), newStoppedTimer()
	defer check.Stop()
	defer token.Stop()
	for {
		next := r.config.ReplicationInterval
		select {
		case <-r.life.Done():
			return
		case <-check.C:
			check.Reset(next)
			if !r.askHealth() {
				r.update(outage)
			}
		case status := <-r.answers:
			r.state.judge(status)
			r.update(outage)
		case <-r.wake:
			if demanded, waiting := r.state.demand(); demanded {
				r.update(outage)
				check.Reset(next)
			} else if waiting {
				token.Reset(r.bucket.Wait(r.config.ReplicationBurst, r.rate))
			}
		case <-token.C:
			r.redeem()
		}
	}
}

// update registers what has changed, with all that waits for a token.
func (r *Registration) update(outage *wait.Outage) {
	r.state.satisfy()
	err := r.register(r.life, whyChanged, r.state.changed)
	if r.life.Err() == nil {
		report(outage, err, "update")
	}
}

// announce has a change told on demand: at once if there is a token, else when one comes free.
func (r *Registration) announce() (atOnce bool) {
	if r.life.Err() != nil {
		return false
	}
	atOnce = r.bucket.Acquire(r.config.ReplicationBurst, r.rate)
	if !atOnce {
		r.client.metrics.limited.Inc()
	}
	r.want(atOnce)
	return atOnce
}

// redeem takes the token that is due. If somebody was faster, the loop waits for the next one.
func (r *Registration) redeem() {
	if _, waiting := r.state.demand(); waiting {
		r.want(r.bucket.Acquire(r.config.ReplicationBurst, r.rate))
	}
}

func (r *Registration) want(atOnce bool) {
	r.state.want(atOnce)
	select {
	case r.wake <- struct{}{}:
	default: // it looks anyway
	}
}

// askHealth lets Health say the status for the next check; false: it is not to be asked, or has not
// answered yet.
func (r *Registration) askHealth() bool {
	if r.config.Health == nil || r.state.facts().drain != nil || !r.asking.try() {
		return false
	}
	go func() { // leave waits for the turn, and so for this
		defer r.asking.give()
		select {
		case r.answers <- r.health():
		case <-r.life.Done():
		}
	}()
	return true
}

// health calls the callback. A panic counts as DOWN.
func (r *Registration) health() (status registry.Status) {
	current := r.state.facts().instance.Status
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		status = registry.Down
		if current != status {
			r.log.Error("the health callback panicked, so the instance is DOWN", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	return r.config.Health(r.life, current)
}

func newStoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}
