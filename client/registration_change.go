package client

import (
	"context"
	"slices"

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

func (s *registrationState) drains() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drain != nil
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
