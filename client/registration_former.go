package client

import (
	"errors"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// verify looks once at what the cluster made of the first registration. A process that ended without a
// cancel may have left the instance behind, and the cluster then answers 204 and keeps what it has: the
// whole of it if it is newer by its lastDirtyTimestamp, as after a clock that was set back; its status if
// it was drained (see registrationState.steps). Renewals would keep that alive for ever. What is found
// is registered anew, so that it takes effect. A look that fails is repeated after the next heartbeat.
func (r *Registration) verify() {
	if !r.state.unverified() {
		return
	}
	found, err := r.find()
	if err != nil || !r.state.verified(found) {
		return
	}
	// What fails here is left to the next heartbeat, which is answered 404 then.
	_ = r.register(r.life, whyChanged, r.state.changed)
}

// find is the instance as the cluster shows it; nil: it does not.
func (r *Registration) find() (*registry.Instance, error) {
	a, err := r.client.readEureka(r.life, instancePath(r.key)...)
	if err == nil {
		err = a.want()
	}
	if errors.Is(err, ErrNotRegistered) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	lease, err := eureka.DecodeInstance(a.body, eureka.Format{})
	if err != nil {
		return nil, err
	}
	return lease.Instance, nil
}

func (s *registrationState) unverified() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.told != nil && !s.looked
}

// verified takes what the cluster shows, and says whether it has to be told again.
func (s *registrationState) verified(shown *registry.Instance) (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case shown == nil: // hidden from lists, or evicted, which the next renewal finds out
		s.looked = true
	case shown.LastDirty != 0 && shown.LastDirty < s.told.LastDirty:
		// A server that lags; the next look will tell.
	case shown.LastDirty > s.instance.LastDirty:
		s.looked = true
		s.maybe = s.maybe.with(shown.Status)
		newer := *s.instance
		newer.LastDirty = shown.LastDirty
		s.instance = &newer
		s.change(func(*registry.Instance) {})
	case shown.Overridden == registry.Unknown && statuses(0).with(shown.Status).bar(s.told.Status):
		s.looked = true
		s.maybe = s.maybe.with(shown.Status)
		s.change(func(*registry.Instance) {})
	default:
		s.looked = true
	}
	return s.dirty()
}
