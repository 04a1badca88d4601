package kv

import (
	"cmp"
	"slices"
)

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
