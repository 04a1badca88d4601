package consensus

import (
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store/consensus/membership"
)

// Members returns this node's part in its cluster: the members, how they are, and how they change.
func (s *Raft) Members() *membership.Members { return s.members }

// Leader returns the name of the node that leads, or "" if this node knows none.
func (s *Raft) Leader() string { return s.leadership.Name() }

// Health implements registry.Service.
//
// Suspended means that no lease can end now: no leader is known, or this node leads and all leases are still within
// the grace they got when its leadership was established. A follower does not know how old the leadership is. If
// leaders change faster than the shortest grace, each of them reports Suspended until it loses its leadership.
func (s *Raft) Health() registry.Health {
	h := registry.Health{Ready: s.ready.Load(), Suspended: s.suspended()}
	h.Unheard = !s.reader.Heard()
	h.Age = s.reader.Age(time.Now()) // on the leader too: it may have been paused, and another node may lead by now
	if s.leadership.Own() != nil {
		h.Quorum, h.Leads, h.Clock = true, true, s.clock.Glance() // every fetch comes here
		return h
	}
	h.Quorum, h.Clock = s.leadership.Leader() != nil, s.machine.View().Stamp().Lease
	return h
}

func (s *Raft) suspended() bool {
	if l := s.leadership.Own(); l != nil {
		return l.Young()
	}
	return s.leadership.Leader() == nil
}

// leaseTime returns the newest view and the lease clock (ms): the running clock while this node leads, otherwise the
// stamp of the newest applied entry.
func (s *Raft) leaseTime() (*registry.View, int64) {
	v := s.machine.View()
	if s.leadership.Own() == nil {
		return v, v.Stamp().Lease
	}
	now, _ := s.clock.Read(time.Now())
	return v, now
}

// LeaderDiskFull reports whether another node leads and its disk is nearly full. Without a reply it returns false.
func (s *Raft) LeaderDiskFull(ctx context.Context) bool { return s.reader.LeaderDiskFull(ctx) }
