package order

import (
	"cmp"
	"iter"

	"github.com/tidwall/btree"
)

// Schedule holds things that end at known times of the lease clock (ms), in the order of time and then of a second
// key. It is derived from the state, and so not part of a snapshot. For why it is an interface, see Tree.
type Schedule[K any] interface {
	Len() int
	// Set enters a key at a time, Delete is its inverse, and Has reports whether it is there.
	Set(at int64, key K)
	Delete(at int64, key K)
	Has(at int64, key K) bool
	// First returns what ends first, and Last when the last one ends.
	First() (at int64, key K, ok bool)
	Last() (at int64, ok bool)
	// Due yields what ends at a moment or before, oldest first. The schedule must not change meanwhile.
	Due(now int64) iter.Seq2[int64, K]
	// Copy costs the same whatever the length.
	Copy() Schedule[K]
}

// schedule has its items in boxes, for the same reason as boxedMap.
type schedule[K any] struct{ tree *btree.BTreeG[*item[K]] }

type item[K any] struct {
	at  int64
	key K
}

// NewSchedule returns an empty schedule, with keys ordered by compare.
func NewSchedule[K any](compare func(a, b K) int) Schedule[K] {
	return schedule[K]{newTree(func(a, b *item[K]) int {
		if c := cmp.Compare(a.at, b.at); c != 0 {
			return c
		}
		return compare(a.key, b.key)
	})}
}

func (s schedule[K]) Copy() Schedule[K]      { return schedule[K]{s.tree.Copy()} }
func (s schedule[K]) Len() int               { return s.tree.Len() }
func (s schedule[K]) Set(at int64, key K)    { s.tree.Set(&item[K]{at, key}) }
func (s schedule[K]) Delete(at int64, key K) { s.tree.Delete(&item[K]{at, key}) }

func (s schedule[K]) Has(at int64, key K) bool {
	_, ok := s.tree.Get(&item[K]{at, key})
	return ok
}

func (s schedule[K]) First() (at int64, key K, ok bool) {
	e, ok := open(s.tree.Min())
	return e.at, e.key, ok
}

func (s schedule[K]) Last() (at int64, ok bool) {
	e, ok := open(s.tree.Max())
	return e.at, ok
}

func (s schedule[K]) Due(now int64) iter.Seq2[int64, K] {
	return func(yield func(int64, K) bool) {
		s.tree.Scan(func(e *item[K]) bool { return e.at <= now && yield(e.at, e.key) })
	}
}
