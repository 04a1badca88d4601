package order

import (
	"cmp"
	"iter"
)

// Schedule is what ends at times of the lease clock (ms) that are known, in the order of time and then of a
// second key. It is derived from the state, and so no part of a snapshot.
type Schedule[K any] struct{ tree Tree[item[K]] }

type item[K any] struct {
	at  int64
	key K
}

// NewSchedule returns an empty schedule, whose keys compare orders.
func NewSchedule[K any](compare func(a, b K) int) Schedule[K] {
	return Schedule[K]{NewTree(func(a, b item[K]) int {
		if c := cmp.Compare(a.at, b.at); c != 0 {
			return c
		}
		return compare(a.key, b.key)
	})}
}

// Copy returns a copy, which costs the same whatever its length.
func (s Schedule[K]) Copy() Schedule[K] { return Schedule[K]{s.tree.Copy()} }

// Len is how many there are.
func (s Schedule[K]) Len() int { return s.tree.Len() }

// Set enters a key at a time.
func (s Schedule[K]) Set(at int64, key K) { s.tree.Set(item[K]{at, key}) }

// Delete is the inverse of Set.
func (s Schedule[K]) Delete(at int64, key K) { s.tree.Delete(item[K]{at, key}) }

// Has says whether a key is entered at a time.
func (s Schedule[K]) Has(at int64, key K) bool {
	_, ok := s.tree.Get(item[K]{at, key})
	return ok
}

// First is what ends first.
func (s Schedule[K]) First() (at int64, key K, ok bool) {
	e, ok := s.tree.Min()
	return e.at, e.key, ok
}

// Last is when the last one ends.
func (s Schedule[K]) Last() (at int64, ok bool) {
	e, ok := s.tree.Max()
	return e.at, ok
}

// Due yields what ends at a moment or before, oldest first. The schedule must not change meanwhile.
func (s Schedule[K]) Due(now int64) iter.Seq2[int64, K] {
	return func(yield func(int64, K) bool) {
		s.tree.Scan(func(e item[K]) bool { return e.at <= now && yield(e.at, e.key) })
	}
}
