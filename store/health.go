package store

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Health implements registry.Service.
//
// Suspended means that no lease can end now: no leader is known, or this node leads and all leases
// are within the grace that they were given when its leadership was established. A follower does not
// know how old the leadership is. Should leaders change faster than the shortest grace, every one of
// them says so until it loses its leadership.
func (s *Raft) Health() registry.Health {
	h := registry.Health{Ready: s.ready.Load(), Suspended: s.suspended()}
	h.Age = s.age(time.Now()) // on the leader too: it may have been paused, and another lead by now
	if s.lead.Load() != nil {
		h.Quorum, h.Leads, h.Clock = true, true, s.clock.glance() // every fetch comes here
		return h
	}
	h.Quorum, h.Clock = s.leader.Load() != nil, s.machine.View().Stamp().Lease
	return h
}

func (s *Raft) suspended() bool {
	if l := s.lead.Load(); l != nil {
		return l.young.Load()
	}
	return s.leader.Load() == nil
}

// leaseTime returns the newest view and the lease clock (ms): the running one while this node leads,
// else the stamp of the newest applied entry.
func (s *Raft) leaseTime() (*registry.View, int64) {
	v := s.machine.View()
	if s.lead.Load() == nil {
		return v, v.Stamp().Lease
	}
	now, _ := s.clock.read(time.Now())
	return v, now
}

func suspendedGauge(suspended func() bool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "rollcall", Subsystem: "store", Name: "expiry_suspended",
		Help: "1 while no lease can end: no leader is known (in AP mode: the node is not ready), or it leads (is ready) for less than the shortest grace.",
	}, func() float64 { return number(suspended()) })
}
