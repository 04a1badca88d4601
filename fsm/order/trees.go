package order

import (
	"cmp"

	"github.com/tidwall/btree"
)

// Tree is an ordered set of which a copy costs little. What is in one is found by an element that compares as equal.
//
// Tree and Map are interfaces because every package that knows a type of btree compiles all of its methods anew: the packages
// above this one know views and states, with some twenty trees in them, and took 17 s each.
type Tree[T any] interface {
	Len() int
	Get(like T) (T, bool)
	Set(T) (before T, replaced bool)
	Delete(like T) (before T, deleted bool)
	Min() (T, bool)
	Max() (T, bool)
	// Scan, Ascend and Reverse call do with one after the other, from the first one, from the first that is not less, and from the
	// last one, until it returns false.
	Scan(do func(T) bool)
	Ascend(from T, do func(T) bool)
	Reverse(do func(T) bool)
	Copy() Tree[T]
}

// Cursor stands at an element of a Tree that does not change meanwhile, or before the first one.
type Cursor[T any] interface {
	// First and Next say whether there is one.
	First() bool
	Next() bool
	Item() T
}

// Map is an ordered map of which a copy costs little.
type Map[K cmp.Ordered, V any] interface {
	Len() int
	Get(K) (V, bool)
	GetAt(int) (K, V, bool)
	Set(K, V) (before V, replaced bool)
	Delete(K) (before V, deleted bool)
	Min() (K, V, bool)
	Max() (K, V, bool)
	PopMin() (K, V, bool)
	// Scan, Ascend and Reverse are those of Tree.
	Scan(do func(K, V) bool)
	Ascend(from K, do func(K, V) bool)
	Reverse(do func(K, V) bool)
	Descend(from K, do func(K, V) bool)
	Keys() []K
	Values() []V
	Copy() Map[K, V]
}

// MapCursor is a Cursor of a Map.
type MapCursor[K cmp.Ordered, V any] interface {
	// Seek, Last, Next and Prev say whether there is one. Seek looks for the first one that is not less.
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
func (t *tree[T]) Min() (T, bool)                 { return t.of().Min() }
func (t *tree[T]) Max() (T, bool)                 { return t.of().Max() }
func (t *tree[T]) Scan(do func(T) bool)           { t.of().Scan(do) }
func (t *tree[T]) Ascend(from T, do func(T) bool) { t.of().Ascend(from, do) }
func (t *tree[T]) Reverse(do func(T) bool)        { t.of().Reverse(do) }
func (t *tree[T]) Copy() Tree[T]                  { return (*tree[T])(t.of().Copy()) }

// NewCursor returns a cursor of a tree of this package.
func NewCursor[T any](t Tree[T]) Cursor[T] {
	at := t.(*tree[T]).of().Iter()
	return &at
}

type treeMap[K cmp.Ordered, V any] btree.Map[K, V]

// NewMap returns an empty map, whose nodes have a degree; 0: that of btree, which is larger.
func NewMap[K cmp.Ordered, V any](degree int) Map[K, V] {
	return (*treeMap[K, V])(btree.NewMap[K, V](degree))
}

func (m *treeMap[K, V]) of() *btree.Map[K, V]               { return (*btree.Map[K, V])(m) }
func (m *treeMap[K, V]) Len() int                           { return m.of().Len() }
func (m *treeMap[K, V]) Get(k K) (V, bool)                  { return m.of().Get(k) }
func (m *treeMap[K, V]) GetAt(i int) (K, V, bool)           { return m.of().GetAt(i) }
func (m *treeMap[K, V]) Set(k K, v V) (V, bool)             { return m.of().Set(k, v) }
func (m *treeMap[K, V]) Delete(k K) (V, bool)               { return m.of().Delete(k) }
func (m *treeMap[K, V]) Min() (K, V, bool)                  { return m.of().Min() }
func (m *treeMap[K, V]) Max() (K, V, bool)                  { return m.of().Max() }
func (m *treeMap[K, V]) PopMin() (K, V, bool)               { return m.of().PopMin() }
func (m *treeMap[K, V]) Scan(do func(K, V) bool)            { m.of().Scan(do) }
func (m *treeMap[K, V]) Ascend(from K, do func(K, V) bool)  { m.of().Ascend(from, do) }
func (m *treeMap[K, V]) Reverse(do func(K, V) bool)         { m.of().Reverse(do) }
func (m *treeMap[K, V]) Descend(from K, do func(K, V) bool) { m.of().Descend(from, do) }
func (m *treeMap[K, V]) Keys() []K                          { return m.of().Keys() }
func (m *treeMap[K, V]) Values() []V                        { return m.of().Values() }
func (m *treeMap[K, V]) Copy() Map[K, V]                    { return (*treeMap[K, V])(m.of().Copy()) }

// NewMapCursor returns a cursor of a map of this package.
func NewMapCursor[K cmp.Ordered, V any](m Map[K, V]) MapCursor[K, V] {
	at := m.(*treeMap[K, V]).of().Iter()
	return &at
}
