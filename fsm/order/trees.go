package order

import (
	"cmp"

	"github.com/tidwall/btree"
)

// Tree is an ordered set that is cheap to copy. It is searched with an element that compares as equal.
//
// Tree and Map are interfaces because every package that knows a type of btree compiles all of its methods again: the
// packages above this one know views and states, with some twenty trees in them, and took 17 s each.
type Tree[T any] interface {
	Len() int
	Get(like T) (T, bool)
	Set(T) (before T, replaced bool)
	Delete(like T) (before T, deleted bool)
	// Scan and Ascend call do with one element after the other until it returns false: from the first, and from the
	// first that is not less than from.
	Scan(do func(T) bool)
	Ascend(from T, do func(T) bool)
	Copy() Tree[T]
}

// Cursor is a position in a Tree that does not change meanwhile: at an element, or before the first one.
type Cursor[T any] interface {
	// First and Next report whether there is such an element.
	First() bool
	Next() bool
	Item() T
}

// Map is an ordered map that is cheap to copy.
type Map[K cmp.Ordered, V any] interface {
	Len() int
	Get(K) (V, bool)
	GetAt(int) (K, V, bool)
	Set(K, V) (before V, replaced bool)
	Delete(K) (before V, deleted bool)
	Min() (K, V, bool)
	Max() (K, V, bool)
	PopMin() (K, V, bool)
	// Scan and Ascend work as in Tree. Reverse goes backwards from the last element.
	Scan(do func(K, V) bool)
	Ascend(from K, do func(K, V) bool)
	Reverse(do func(K, V) bool)
	Keys() []K
	Values() []V
	Copy() Map[K, V]
}

// mapCursor is a Cursor for a Map.
type mapCursor[K cmp.Ordered, V any] interface {
	// Seek, Last, Next and Prev report whether there is such an element. Seek looks for the first that is not less.
	Seek(K) bool
	Last() bool
	Next() bool
	Prev() bool
	Key() K
	Value() V
}

// Degree keeps the nodes of trees small: each change copies a path of them.
const Degree = 16

type tree[T any] btree.BTreeG[T]

// NewTree returns an empty tree.
func NewTree[T any](compare func(a, b T) int) Tree[T] { return (*tree[T])(newTree(compare)) }

func newTree[T any](compare func(a, b T) int) *btree.BTreeG[T] {
	less := func(a, b T) bool { return compare(a, b) < 0 }
	return btree.NewBTreeGOptions(less, btree.Options{Degree: Degree, NoLocks: true})
}

func (t *tree[T]) of() *btree.BTreeG[T]           { return (*btree.BTreeG[T])(t) }
func (t *tree[T]) Len() int                       { return t.of().Len() }
func (t *tree[T]) Get(like T) (T, bool)           { return t.of().Get(like) }
func (t *tree[T]) Set(x T) (T, bool)              { return t.of().Set(x) }
func (t *tree[T]) Delete(like T) (T, bool)        { return t.of().Delete(like) }
func (t *tree[T]) Scan(do func(T) bool)           { t.of().Scan(do) }
func (t *tree[T]) Ascend(from T, do func(T) bool) { t.of().Ascend(from, do) }
func (t *tree[T]) Copy() Tree[T]                  { return (*tree[T])(t.of().Copy()) }

// boxedTree has its elements in boxes: one tree type in the program for all of them, where each would take 40 kB.
type boxedTree[T any] btree.BTreeG[*T]

// NewBoxedTree returns an empty tree for elements that are not pointers, if searches are rare.
func NewBoxedTree[T any](compare func(a, b T) int) Tree[T] {
	return (*boxedTree[T])(newTree(func(a, b *T) int { return compare(*a, *b) }))
}

func (t *boxedTree[T]) of() *btree.BTreeG[*T]          { return (*btree.BTreeG[*T])(t) }
func (t *boxedTree[T]) Len() int                       { return t.of().Len() }
func (t *boxedTree[T]) Get(like T) (T, bool)           { return open(t.of().Get(&like)) }
func (t *boxedTree[T]) Set(x T) (T, bool)              { return open(t.of().Set(&x)) }
func (t *boxedTree[T]) Delete(like T) (T, bool)        { return open(t.of().Delete(&like)) }
func (t *boxedTree[T]) Scan(do func(T) bool)           { t.of().Scan(unboxed(do)) }
func (t *boxedTree[T]) Ascend(from T, do func(T) bool) { t.of().Ascend(&from, unboxed(do)) }
func (t *boxedTree[T]) Copy() Tree[T]                  { return (*boxedTree[T])(t.of().Copy()) }

func unboxed[T any](do func(T) bool) func(*T) bool {
	return func(box *T) bool { return do(*box) }
}

// NewCursor returns a cursor for a tree made by NewTree.
func NewCursor[T any](t Tree[T]) Cursor[T] {
	at := t.(*tree[T]).of().Iter()
	return &at
}

type treeMap[K cmp.Ordered, V any] btree.Map[K, V]

// NewMap returns an empty map whose nodes have a degree; 0 stands for btree's own, which is larger. Its values are
// pointers; for other values use NewBoxedMap.
func NewMap[K cmp.Ordered, V any](degree int) Map[K, V] {
	return (*treeMap[K, V])(btree.NewMap[K, V](degree))
}

func (m *treeMap[K, V]) of() *btree.Map[K, V]              { return (*btree.Map[K, V])(m) }
func (m *treeMap[K, V]) Len() int                          { return m.of().Len() }
func (m *treeMap[K, V]) Get(k K) (V, bool)                 { return m.of().Get(k) }
func (m *treeMap[K, V]) GetAt(i int) (K, V, bool)          { return m.of().GetAt(i) }
func (m *treeMap[K, V]) Set(k K, v V) (V, bool)            { return m.of().Set(k, v) }
func (m *treeMap[K, V]) Delete(k K) (V, bool)              { return m.of().Delete(k) }
func (m *treeMap[K, V]) Min() (K, V, bool)                 { return m.of().Min() }
func (m *treeMap[K, V]) Max() (K, V, bool)                 { return m.of().Max() }
func (m *treeMap[K, V]) PopMin() (K, V, bool)              { return m.of().PopMin() }
func (m *treeMap[K, V]) Scan(do func(K, V) bool)           { m.of().Scan(do) }
func (m *treeMap[K, V]) Ascend(from K, do func(K, V) bool) { m.of().Ascend(from, do) }
func (m *treeMap[K, V]) Reverse(do func(K, V) bool)        { m.of().Reverse(do) }
func (m *treeMap[K, V]) Keys() []K                         { return m.of().Keys() }
func (m *treeMap[K, V]) Values() []V                       { return m.of().Values() }
func (m *treeMap[K, V]) Copy() Map[K, V]                   { return (*treeMap[K, V])(m.of().Copy()) }

// boxedMap has its values in boxes: one tree type in the program for all of them, where each would take 40 kB.
type boxedMap[K cmp.Ordered, V any] treeMap[K, *V]

// NewBoxedMap does what NewMap does, for values that are not pointers.
func NewBoxedMap[K cmp.Ordered, V any](degree int) Map[K, V] {
	return (*boxedMap[K, V])(btree.NewMap[K, *V](degree))
}

func (m *boxedMap[K, V]) of() *btree.Map[K, *V]             { return (*btree.Map[K, *V])(m) }
func (m *boxedMap[K, V]) Len() int                          { return m.of().Len() }
func (m *boxedMap[K, V]) Get(k K) (V, bool)                 { return open(m.of().Get(k)) }
func (m *boxedMap[K, V]) GetAt(i int) (K, V, bool)          { return openKeyed(m.of().GetAt(i)) }
func (m *boxedMap[K, V]) Set(k K, v V) (V, bool)            { return open(m.of().Set(k, &v)) }
func (m *boxedMap[K, V]) Delete(k K) (V, bool)              { return open(m.of().Delete(k)) }
func (m *boxedMap[K, V]) Min() (K, V, bool)                 { return openKeyed(m.of().Min()) }
func (m *boxedMap[K, V]) Max() (K, V, bool)                 { return openKeyed(m.of().Max()) }
func (m *boxedMap[K, V]) PopMin() (K, V, bool)              { return openKeyed(m.of().PopMin()) }
func (m *boxedMap[K, V]) Scan(do func(K, V) bool)           { m.of().Scan(opened(do)) }
func (m *boxedMap[K, V]) Ascend(from K, do func(K, V) bool) { m.of().Ascend(from, opened(do)) }
func (m *boxedMap[K, V]) Reverse(do func(K, V) bool)        { m.of().Reverse(opened(do)) }
func (m *boxedMap[K, V]) Keys() []K                         { return m.of().Keys() }
func (m *boxedMap[K, V]) Copy() Map[K, V]                   { return (*boxedMap[K, V])(m.of().Copy()) }

func (m *boxedMap[K, V]) Values() []V {
	values := make([]V, 0, m.Len())
	m.Scan(func(_ K, v V) bool {
		values = append(values, v)
		return true
	})
	return values
}

func open[V any](box *V, ok bool) (v V, _ bool) {
	if ok {
		v = *box
	}
	return v, ok
}

func openKeyed[K, V any](k K, box *V, ok bool) (K, V, bool) {
	v, _ := open(box, ok)
	return k, v, ok
}

func opened[K, V any](do func(K, V) bool) func(K, *V) bool {
	return func(k K, box *V) bool { return do(k, *box) }
}

type boxedCursor[K cmp.Ordered, V any] struct{ mapCursor[K, *V] }

// Value implements mapCursor.
func (c boxedCursor[K, V]) Value() V { return *c.mapCursor.Value() }

// NewMapCursor returns a cursor for a map of this package.
func NewMapCursor[K cmp.Ordered, V any](m Map[K, V]) mapCursor[K, V] {
	if boxed, ok := m.(*boxedMap[K, V]); ok {
		at := boxed.of().Iter()
		return boxedCursor[K, V]{&at}
	}
	at := m.(*treeMap[K, V]).of().Iter()
	return &at
}
