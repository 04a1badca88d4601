package registry

import "container/heap"

// renewalGrace is what a client is given, beyond one renewal interval, to come back after an epoch
// was established: one that was refused during the election tries again only at its next beat.
const renewalGrace = 5000 // ms

// expiry is a heap of the live leases by the end that was known when each was last looked at.
// Renewals do not touch it: an end lies in the future or is corrected when it comes to the top. It
// is derived from leases and renewals, and so no part of a snapshot.
type expiry struct {
	order    []uint32 // slots, as a heap
	end      []int64  // by slot, lease clock ms: not later than the lease's end
	position []int32  // by slot: where it is in order
}

// Len is a method of heap.Interface, as the next four are.
func (e *expiry) Len() int { return len(e.order) }

// Less orders by end, then by slot, so that the order is the same on every node.
func (e *expiry) Less(i, j int) bool {
	a, b := e.order[i], e.order[j]
	if e.end[a] != e.end[b] {
		return e.end[a] < e.end[b]
	}
	return a < b
}

func (e *expiry) Swap(i, j int) {
	e.order[i], e.order[j] = e.order[j], e.order[i]
	e.position[e.order[i]], e.position[e.order[j]] = int32(i), int32(j)
}

func (e *expiry) Push(slot any) {
	e.position[slot.(uint32)] = int32(len(e.order))
	e.order = append(e.order, slot.(uint32))
}

func (e *expiry) Pop() any {
	last := len(e.order) - 1
	slot := e.order[last]
	e.order = e.order[:last]
	return slot
}

// add enters a slot that is not in the heap.
func (e *expiry) add(slot uint32, end int64) {
	for int(slot) >= len(e.end) {
		e.end, e.position = append(e.end, 0), append(e.position, 0)
	}
	e.end[slot] = end
	heap.Push(e, slot)
}

// move corrects the end of a slot that is in the heap.
func (e *expiry) move(slot uint32, end int64) {
	e.end[slot] = end
	heap.Fix(e, int(e.position[slot]))
}

func (e *expiry) remove(slot uint32) { heap.Remove(e, int(e.position[slot])) }

// Expired returns leases that have ended at now (lease clock, ms), oldest end first, at most limit:
// those whose one duration has passed since their last renewal, and for which
// min(duration, renewal interval + 5 s) has passed since the epoch was established. It costs
// O(due leases), not a walk; a lease that is returned and not evicted is returned again.
func (r *Registry) Expired(now int64, limit int) []EvictItem {
	var due []EvictItem
	for len(due) < limit && r.expiry.Len() > 0 {
		slot := r.expiry.order[0]
		if now <= r.expiry.end[slot] {
			break
		}
		l := r.handles.leases[slot]
		if end := r.end(l); end > r.expiry.end[slot] {
			r.expiry.move(slot, end)
			continue
		}
		heap.Pop(&r.expiry)
		due = append(due, EvictItem{Handle: l.Handle, Registered: l.Registered, RenewedAt: r.renewed(l).Lease})
	}
	for _, item := range due {
		heap.Push(&r.expiry, item.Handle.Slot)
	}
	return due
}

// end is the last millisecond of a live lease, by the lease clock.
func (r *Registry) end(l *Lease) int64 {
	duration := int64(l.Duration) * 1000
	grace := min(duration, int64(l.Interval)*1000+renewalGrace)
	return max(r.renewed(l).Lease+duration, r.established+grace)
}
