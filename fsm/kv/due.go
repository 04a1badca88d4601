package kv

import (
	"cmp"
	"slices"
)

// due is something to propose, and since when.
type due struct {
	since int64 // lease clock, ms
	op    Op
}

// Due returns the operations to propose at a moment (lease clock, ms), oldest first, at most limit: an ExpireSession
// for each session whose TTL and grace have passed, an EndDelay for each lock-delay that is over. It costs O(due).
func (s *State) Due(now int64, limit int) []Op {
	var all []due
	for _, l := range s.sessions.ended(now, s.sessionEnd) {
		all = append(all, due{s.sessions.ends.Known(l.slot), ExpireSession{s.epoch, l.session.ID, l.session.CreateIndex, l.renewed.Load()}})
	}
	for until, key := range s.keys.delays.ends.Due(now) {
		all = append(all, due{until, EndDelay{s.epoch, Key, key, until}})
	}
	for until, d := range s.permits.delays.Due(now) {
		n, _ := s.permits.find(d.kind, d.name).delays.Get(until)
		for range n { // one for each permit that is kept back
			all = append(all, due{until, EndDelay{s.epoch, d.kind, d.name, until}})
		}
	}
	slices.SortStableFunc(all, func(a, b due) int { return cmp.Compare(a.since, b.since) })
	ops := make([]Op, min(len(all), max(limit, 0)))
	for i := range ops {
		ops[i] = all[i].op
	}
	return ops
}

// NeedsClock reports whether anything in the state waits for a time of the lease clock: a session or a lock-delay to
// end, the wait of a session in a queue, or a restore whose sender may have fallen silent. Dropping old records does
// not count: it may happen later.
func (s *State) NeedsClock() bool {
	return s.sessions.ends.Len() > 0 || s.keys.delays.ends.Len() > 0 || s.permits.delays.Len() > 0 || s.permits.waiting > 0 || s.staged.ID != ""
}
