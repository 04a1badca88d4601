package kv

import (
	"cmp"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// delay keeps a key, there or not, from being acquired for some ms.
func (s *State) delay(key string, ms int64) {
	if ms > 0 {
		s.undelay(key)
		s.setDelay(Delay{Key: key, Until: order.Later(s.lease, ms)})
	}
}

func (s *State) setDelay(d Delay) {
	s.tables.delays.Set(d.Key, d.Until)
	s.tables.bytes += delayWeight + len(d.Key)
	s.delayEnds.Set(d.Until, d.Key)
}

func (s *State) undelay(key string) {
	if until, ok := s.tables.delays.Delete(key); ok {
		s.tables.bytes -= delayWeight + len(key)
		s.delayEnds.Delete(until, key)
	}
}

// delayed says whether a lock-delay keeps a key from being acquired now.
func (s *State) delayed(key string) bool {
	until, ok := s.tables.delays.Get(key)
	return ok && s.lease < until
}

// endDelay drops the record of a lock-delay. Of a key that is no change, and a view may go on to have the
// record: who asks compares the end with the clock.
func (s *State) endDelay(at At, op EndDelay) Result {
	switch {
	case !s.epoch.Leads(at.Term, op.Epoch):
		return Result{}
	case op.Kind != Key:
		return s.endPermitDelay(at, op)
	}
	if until, ok := s.tables.delays.Get(op.Name); !ok || until != op.Until || until > at.Lease {
		return Result{}
	}
	s.undelay(op.Name)
	return Result{OK: true}
}

// due is something to be proposed, and since when.
type due struct {
	since int64 // lease clock, ms
	op    Op
}

// Due returns what is to be proposed at a moment (lease clock, ms), oldest first, at most limit: an
// ExpireSession for each session whose TTL and grace have passed, an EndDelay for each lock-delay that
// is over. It costs O(those that are due).
func (s *State) Due(now int64, limit int) []Op {
	var all []due
	for _, l := range s.expired(now) {
		all = append(all, due{s.expiry.Known(l.slot), ExpireSession{s.epoch, l.session.ID, l.session.CreateIndex, l.renewed.Load()}})
	}
	endDelay := func(until int64, op EndDelay) {
		op.Epoch = s.epoch
		all = append(all, due{until, op})
	}
	for until, key := range s.delayEnds.Due(now) {
		endDelay(until, EndDelay{Kind: Key, Name: key, Until: until})
	}
	s.permitsDue(now, endDelay)
	slices.SortStableFunc(all, func(a, b due) int { return cmp.Compare(a.since, b.since) })
	ops := make([]Op, min(len(all), max(limit, 0)))
	for i := range ops {
		ops[i] = all[i].op
	}
	return ops
}

// NeedsClock says that something in the state waits for a time of the lease clock. What is only
// forgotten when it is too old does not: that may happen later.
func (s *State) NeedsClock() bool {
	return s.expiry.Len() > 0 || s.delayEnds.Len() > 0 || s.permitsNeedClock()
}

// slots numbers the sessions with a TTL. It is no part of a snapshot, and so decides nothing.
type slots struct {
	sessions []*living // by slot; nil: free
	free     []uint32
}

func (s *slots) take(l *living) (slot uint32) {
	if last := len(s.free) - 1; last >= 0 {
		slot, s.free = s.free[last], s.free[:last]
		s.sessions[slot] = l
		return slot
	}
	s.sessions = append(s.sessions, l)
	return uint32(len(s.sessions) - 1)
}

func (s *slots) release(slot uint32) {
	s.sessions[slot] = nil
	s.free = append(s.free, slot)
}

// expired returns the sessions that have ended at now, oldest end first, and corrects the ends of those
// that were renewed since they were last looked at.
func (s *State) expired(now int64) []*living {
	var expired []*living
	for _, slot := range s.expiry.Ended(now, func(slot uint32) int64 { return s.ends(s.slots.sessions[slot]) }) {
		expired = append(expired, s.slots.sessions[slot])
	}
	slices.SortFunc(expired, func(a, b *living) int {
		return cmp.Or(cmp.Compare(s.expiry.Known(a.slot), s.expiry.Known(b.slot)), strings.Compare(a.session.ID, b.session.ID))
	})
	return expired
}
