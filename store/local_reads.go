package store

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// View implements registry.Service: ErrNotOffered for anything but Stale.
func (s *Local) View(_ context.Context, read registry.Consistency) (*registry.View, error) {
	if read != registry.Stale {
		return nil, fmt.Errorf("%v read: %w", read, registry.ErrNotOffered)
	}
	return s.view.Load(), nil
}

// Changes implements registry.Service.
func (s *Local) Changes(ctx context.Context, after registry.Index, which registry.Selector) (registry.Changes, error) {
	return awaitChanges(ctx, s.closing, &s.watchers, s.view.Load, after, which)
}

// Health implements registry.Service. Nobody leads; Quorum is there as soon as the node is ready, because
// nothing but itself is needed to serve. Suspended means that no lease can end now: the node is not
// ready, or all leases are within the grace that they were given when it became so. By Clock other nodes are told
// how old renewals are.
func (s *Local) Health() registry.Health {
	ready := s.ready.Load()
	return registry.Health{Ready: ready, Quorum: ready, Age: s.cfg.Age(), Suspended: s.suspended(), Clock: s.clockToTell()}
}

// clockToTell is the lease clock (ms) by which other nodes are told how old renewals are. After a pause of this node
// the sender may go on before the clock ticks: by the clock of before, a lease that ended meanwhile would be young.
func (s *Local) clockToTell() int64 {
	now := time.Now()
	if s.clock.stands(now) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stamp(now)
	}
	return s.clock.glance()
}

func (s *Local) suspended() bool { return !s.ready.Load() || s.lead.Load().young.Load() }

// leaseTime returns the newest view and the lease clock (ms).
func (s *Local) leaseTime() (*registry.View, int64) {
	now, _ := s.clock.read(time.Now())
	return s.view.Load(), now
}
