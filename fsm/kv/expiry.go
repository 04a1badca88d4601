package kv

import (
	"cmp"
	"slices"
	"strings"
)

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
