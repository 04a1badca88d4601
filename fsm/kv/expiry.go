package kv

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
)

// expiry is a heap of the sessions with a TTL by the end that was known when each was last looked at.
// Renewals do not touch it: an end lies in the future or is corrected when it comes to the top. It
// is derived from the sessions and their renewals, and so no part of a snapshot.
type expiry struct{ order []*living }

// Len is a method of heap.Interface, as the next four are.
func (e *expiry) Len() int { return len(e.order) }

// Less orders by end, then by id, so that the order is the same on every node.
func (e *expiry) Less(i, j int) bool { return compareEnds(e.order[i], e.order[j]) < 0 }

func compareEnds(a, b *living) int {
	return cmp.Or(cmp.Compare(a.end, b.end), strings.Compare(a.session.ID, b.session.ID))
}

func (e *expiry) Swap(i, j int) {
	e.order[i], e.order[j] = e.order[j], e.order[i]
	e.order[i].position, e.order[j].position = i, j
}

func (e *expiry) Push(l any) {
	l.(*living).position = len(e.order)
	e.order = append(e.order, l.(*living))
}

func (e *expiry) Pop() any {
	last := len(e.order) - 1
	l := e.order[last]
	e.order[last] = nil
	e.order = e.order[:last]
	return l
}

func (e *expiry) add(l *living, end int64) {
	l.end = end
	heap.Push(e, l)
}

// move corrects the end of a session that is in the heap.
func (e *expiry) move(l *living, end int64) {
	l.end = end
	heap.Fix(e, l.position)
}

func (e *expiry) remove(l *living) { heap.Remove(e, l.position) }

// ended returns the sessions whose known end is before now, in no order. Below one that is not there
// is none, so it costs O(those returned).
func (e *expiry) ended(now int64) (found []*living) {
	visit := func(at int) {
		if at < len(e.order) && e.order[at].end < now {
			found = append(found, e.order[at])
		}
	}
	visit(0)
	for i := 0; i < len(found); i++ {
		at := found[i].position
		visit(2*at + 1)
		visit(2*at + 2)
	}
	return found
}

// expired returns the sessions that have ended at now, oldest end first, and corrects the ends of those
// that were renewed since they were last looked at.
func (s *State) expired(now int64) []*living {
	found := s.expiry.ended(now)
	expired := found[:0]
	for _, l := range found {
		if end := s.ends(l); end > l.end {
			s.expiry.move(l, end)
		}
		if l.end < now {
			expired = append(expired, l)
		}
	}
	slices.SortFunc(expired, compareEnds)
	return expired
}
