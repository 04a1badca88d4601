package order

import (
	"cmp"
	"container/heap"
)

// Ends is a heap of slots (numbers from 0, reused when they are free) by their ends as last checked, in ms of lease
// clock. The renewal of a slot does not touch the heap: an end is in the future, or is corrected when it comes to the
// top. It is derived from the owner of the slots, and so not part of a snapshot. The zero Ends is ready for use.
type Ends struct {
	slots slots
	found []uint32 // what Ended returned last; its memory is reused
}

// slots is the heap itself.
type slots struct {
	order    []uint32 // as a heap
	end      []int64  // by slot: not later than its true end
	position []int32  // by slot: where it is in order
}

// Len is a method of heap.Interface, like the next four.
func (s *slots) Len() int { return len(s.order) }

// Less orders by end, then by slot, so that the order is the same on every node.
func (s *slots) Less(i, j int) bool { return s.compare(s.order[i], s.order[j]) < 0 }

func (s *slots) compare(a, b uint32) int {
	if c := cmp.Compare(s.end[a], s.end[b]); c != 0 {
		return c
	}
	return cmp.Compare(a, b)
}

func (s *slots) Swap(i, j int) {
	s.order[i], s.order[j] = s.order[j], s.order[i]
	s.position[s.order[i]], s.position[s.order[j]] = int32(i), int32(j)
}

func (s *slots) Push(slot any) {
	s.position[slot.(uint32)] = int32(len(s.order))
	s.order = append(s.order, slot.(uint32))
}

func (s *slots) Pop() any {
	last := len(s.order) - 1
	slot := s.order[last]
	s.order = s.order[:last]
	return slot
}

// Len returns how many slots have an end.
func (e *Ends) Len() int { return len(e.slots.order) }

// Has reports whether a slot has an end.
func (e *Ends) Has(slot uint32) bool {
	s := &e.slots
	return int(slot) < len(s.position) && int(s.position[slot]) < len(s.order) && s.order[s.position[slot]] == slot
}

// Known returns the end of a slot that has one, as last checked.
func (e *Ends) Known(slot uint32) int64 { return e.slots.end[slot] }

// Compare orders two slots by their known ends, then by number.
func (e *Ends) Compare(a, b uint32) int { return e.slots.compare(a, b) }

// Add enters a slot that has no end yet.
func (e *Ends) Add(slot uint32, end int64) {
	s := &e.slots
	for int(slot) >= len(s.end) {
		s.end, s.position = append(s.end, 0), append(s.position, 0)
	}
	s.end[slot] = end
	heap.Push(s, slot)
}

// Move corrects the end of a slot.
func (e *Ends) Move(slot uint32, end int64) {
	e.slots.end[slot] = end
	heap.Fix(&e.slots, int(e.slots.position[slot]))
}

// Remove removes a slot.
func (e *Ends) Remove(slot uint32) { heap.Remove(&e.slots, int(e.slots.position[slot])) }

// Ended returns the slots that ended before now, in no order, valid until the next call. Slots whose known end is
// before now are checked against their true end, which end returns. It costs O(checked slots).
func (e *Ends) Ended(now int64, end func(slot uint32) int64) []uint32 {
	s := &e.slots
	e.found = e.found[:0]
	visit := func(at int) {
		if at < len(s.order) && s.end[s.order[at]] < now {
			e.found = append(e.found, s.order[at])
		}
	}
	visit(0)
	for i := 0; i < len(e.found); i++ { // in the heap, a slot that ends later has only such slots below it
		at := int(s.position[e.found[i]])
		visit(2*at + 1)
		visit(2*at + 2)
	}
	ended := e.found[:0]
	for _, slot := range e.found {
		if end := end(slot); end > s.end[slot] {
			e.Move(slot, end)
		}
		if s.end[slot] < now {
			ended = append(ended, slot)
		}
	}
	return ended
}

// Reorder corrects the ends of all slots, after they may have become earlier.
func (e *Ends) Reorder(end func(slot uint32) int64) {
	for _, slot := range e.slots.order {
		e.slots.end[slot] = end(slot)
	}
	heap.Init(&e.slots)
}
