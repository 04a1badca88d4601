package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// registrationState is the instance as it should be registered, and as the cluster is known to have it. Safe for
// concurrent use; it sends nothing.
type registrationState struct {
	started time.Time

	mu sync.Mutex
	registrationFacts
	failure  error                   // of the last try; nil if it succeeded
	tries    chan struct{}           // closed after each try, and replaced
	endDrain context.CancelCauseFunc // ends drain; nil before the first
	// granted means that an update on demand has its token and should run, waiting that one waits for its token.
	granted, waiting bool
}

// registrationFacts are what is known at one moment.
type registrationFacts struct {
	instance *registry.Instance // as it should be registered; replaced with each change, never changed
	acked    *registry.Instance // newest registration that the cluster has acknowledged; nil before the first
	// no registration that was sent can have taken effect, so there is nothing to cancel
	absent   bool
	possible statuses // statuses that the cluster may have, after calls of unknown outcome
	// the instance was looked up after its first registration, which has taken effect or is repeated
	checked bool
	lease   leaseTimes // as the server accepted it; before that as requested
	// when the last heartbeat that the cluster acknowledged was sent; zero before the first
	lastHeartbeat time.Time
	drain         context.Context // alive while the instance drains; nil if it does not
}

// facts returns the current facts.
func (s *registrationState) facts() registrationFacts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.registrationFacts
}

func newRegistrationState(i *registry.Instance) *registrationState {
	s := &registrationState{started: time.Now(), tries: make(chan struct{})}
	s.registrationFacts = registrationFacts{instance: i, absent: true, lease: leaseOf(i, "")}
	if i.LastDirty == 0 {
		s.change(func(*registry.Instance) {})
	}
	return s
}

// change makes another state of the instance, newer than any that is known. The caller has the mutex, or has just
// made the registrationState.
func (s *registrationState) change(how func(i *registry.Instance)) {
	changed := *s.instance
	how(&changed)
	changed.LastDirty = max(time.Now().UnixMilli(), s.instance.LastDirty+1)
	s.instance = &changed
}

// first returns what to register if no registration was acknowledged yet.
func (s *registrationState) first() []*registry.Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.acked != nil {
		return nil
	}
	return s.steps()
}

// changed returns what to register if the cluster has not acknowledged the newest state.
func (s *registrationState) changed() []*registry.Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.dirty() {
		return nil
	}
	return s.steps()
}

func (s *registrationState) dirty() bool {
	return s.acked == nil || s.acked.LastDirty < s.instance.LastDirty
}

// missed returns what to register after the cluster did not find the instance in the version of a renewal, which was
// sent when acked was the newest registration: the newest state, as a new one. If a registration of that version was
// acknowledged meanwhile, the instance is found now.
func (s *registrationState) missed(dirty int64, acked *registry.Instance) []*registry.Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.acked != acked && s.acked.LastDirty >= dirty {
		return nil
	}
	s.change(func(*registry.Instance) {})
	return s.steps()
}

// steps returns the newest state, preceded by what must be registered so that it takes effect: a cluster keeps an
// instance UP that registers itself as OUT_OF_SERVICE, and the other way round (upstream's
// com.netflix.eureka.registry.rule.LeaseExistsRule), unless it was STARTING in between.
func (s *registrationState) steps() []*registry.Instance {
	if !s.possible.bar(s.instance.Status) {
		return []*registry.Instance{s.instance}
	}
	wanted := s.instance.Status
	s.change(func(i *registry.Instance) { i.Status = registry.Starting })
	between := s.instance
	s.change(func(i *registry.Instance) { i.Status = wanted })
	return []*registry.Instance{between, s.instance}
}

// registered records that the cluster acknowledged a registration.
func (s *registrationState) registered(i *registry.Instance, sent time.Time, lease leaseTimes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acked, s.absent, s.lease = i, false, lease
	s.possible = statuses(0).with(i.Status)
	s.recordHeartbeat(sent)
}

// renewed records that the cluster acknowledged a renewal.
func (s *registrationState) renewed(sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recordHeartbeat(sent)
}

func (s *registrationState) recordHeartbeat(sent time.Time) {
	if sent.After(s.lastHeartbeat) {
		s.lastHeartbeat = sent
	}
	s.finishTry(nil)
}

// registrationFailed records that a registration failed; possible says that it may have taken effect all the same.
func (s *registrationState) registrationFailed(i *registry.Instance, err error, possible bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if possible {
		s.absent = false
		s.possible = s.possible.with(i.Status)
	}
	s.finishTry(err)
}

// renewalFailed records that a renewal failed.
func (s *registrationState) renewalFailed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finishTry(err)
}

// finishTry ends a try, and wakes the callers that wait for its result.
func (s *registrationState) finishTry(err error) {
	s.failure = err
	close(s.tries)
	s.tries = make(chan struct{})
}

// outcome reports whether the cluster ever acknowledged the instance. Otherwise it returns a channel that is closed
// after the next try, and how the last one failed.
func (s *registrationState) outcome() (done bool, next <-chan struct{}, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acked != nil, s.tries, s.failure
}

// silence returns how long the cluster has acknowledged no heartbeat: since the start if it never did.
func (s *registrationState) silence() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.silent()
}

func (s *registrationState) silent() time.Duration {
	if s.lastHeartbeat.IsZero() {
		return time.Since(s.started)
	}
	return time.Since(s.lastHeartbeat)
}

// health returns nil while the lease is believed alive.
func (s *registrationState) health() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, why := s.instance.Key(), cmp.Or(s.failure, errors.New("no response yet"))
	switch {
	case s.lastHeartbeat.IsZero():
		return fmt.Errorf("the cluster has not heard of %s in the %v since the start: %w", key, s.silent(), why)
	case s.silent() > s.lease.duration:
		return fmt.Errorf("the cluster has not heard of %s for %v, and its lease is %v: %w", key, s.silent(), s.lease.duration, why)
	}
	return nil
}

// statuses is a set of statuses.
type statuses uint64

func (s statuses) with(one registry.Status) statuses { return s | 1<<one }

// bar reports whether an instance cannot get a status directly, because the cluster may have it under the other of
// two statuses that exclude each other.
func (s statuses) bar(wanted registry.Status) bool {
	switch wanted {
	case registry.Up:
		return s&statuses(0).with(registry.OutOfService) != 0
	case registry.OutOfService:
		return s&statuses(0).with(registry.Up) != 0
	}
	return false
}

// verified compares with what the cluster shows, and reports whether the instance must be registered again.
func (s *registrationState) verified(shown *registry.Instance) (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case shown == nil: // hidden from lists, or evicted, which the next renewal finds out
		s.checked = true
	case shown.LastDirty != 0 && shown.LastDirty < s.acked.LastDirty:
		// A server that lags; the next lookup decides.
	case shown.LastDirty > s.instance.LastDirty:
		s.checked = true
		s.possible = s.possible.with(shown.Status)
		newer := *s.instance
		newer.LastDirty = shown.LastDirty
		s.instance = &newer
		s.change(func(*registry.Instance) {})
	case shown.Overridden == registry.Unknown && statuses(0).with(shown.Status).bar(s.acked.Status):
		s.checked = true
		s.possible = s.possible.with(shown.Status)
		s.change(func(*registry.Instance) {})
	default:
		s.checked = true
	}
	return s.dirty()
}

// errStatusSet ends a Drain.
var errStatusSet = errors.New("the status was set meanwhile")

// clampedHeader says, in the response to a registration, which lease times were out of the server's bounds, and what
// it uses instead, as "renewalIntervalInSecs=3600, durationInSecs=86400".
const clampedHeader = "X-Rollcall-Lease-Clamped"

// leaseTimes are an instance's times in force.
type leaseTimes struct {
	interval time.Duration // between two heartbeats
	duration time.Duration // how long the instance lives after the last one
}

// leaseOf returns what a server makes of an instance's lease: the instance's own times, or defaults, within our
// bounds, unless clamped (the header of that name) says that it uses others.
func leaseOf(i *registry.Instance, clamped string) leaseTimes {
	interval, duration := parseClamped(clamped)
	interval, duration, _ = registry.ClampLease(cmp.Or(interval, i.RenewalInterval), cmp.Or(duration, i.Duration))
	return leaseTimes{time.Duration(interval) * time.Second, time.Duration(duration) * time.Second}
}

// parseClamped reads the header's times, in seconds. 0 means that it names none, or nothing sensible.
func parseClamped(header string) (interval, duration int32) {
	for part := range strings.SplitSeq(header, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		seconds, err := strconv.ParseInt(value, 10, 32)
		if err != nil || seconds <= 0 {
			continue
		}
		switch name {
		case "renewalIntervalInSecs":
			interval = int32(seconds)
		case "durationInSecs":
			duration = int32(seconds)
		}
	}
	return interval, duration
}

// differs makes a change, unless it changes nothing.
func (s *registrationState) differs(how func(i *registry.Instance)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	would := *s.instance
	how(&would)
	if would.Status == s.instance.Status && slices.Equal(would.Metadata, s.instance.Metadata) {
		return false
	}
	s.change(how)
	return true
}

// setHealth sets the status that Health returned, unless the instance began to drain while Health was asked.
func (s *registrationState) setHealth(status registry.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drain == nil && status != s.instance.Status {
		s.change(func(i *registry.Instance) { i.Status = status })
	}
}

// startDraining takes the instance out of service, and keeps Health from being asked. The returned context ends with
// life, or when the status is set.
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

// requestUpdate records an update on demand, which has its token or waits for one.
func (s *registrationState) requestUpdate(atOnce bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.granted, s.waiting = s.granted || atOnce, !atOnce
}

// request returns what requestUpdate recorded since the last clearRequest. A change that a heartbeat registered
// meanwhile no longer waits.
func (s *registrationState) request() (granted, waiting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.granted, s.waiting && s.dirty()
}

// clearRequest is called when an update is about to register everything that was requested.
func (s *registrationState) clearRequest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.granted, s.waiting = false, false
}
