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
	Iter() Cursor[T]
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
	Iter() MapCursor[K, V]
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

type tree[T any] struct{ *btree.BTreeG[T] }

// NewTree returns an empty tree.
func NewTree[T any](compare func(a, b T) int) Tree[T] {
	less := func(a, b T) bool { return compare(a, b) < 0 }
	return tree[T]{btree.NewBTreeGOptions(less, btree.Options{Degree: Degree, NoLocks: true})}
}

// Iter implements Tree.
func (t tree[T]) Iter() Cursor[T] {
	at := t.BTreeG.Iter()
	return &at
}

// Copy implements Tree.
func (t tree[T]) Copy() Tree[T] { return tree[T]{t.BTreeG.Copy()} }

type treeMap[K cmp.Ordered, V any] struct{ *btree.Map[K, V] }

// NewMap returns an empty map, whose nodes have a degree; 0: that of btree, which is larger.
func NewMap[K cmp.Ordered, V any](degree int) Map[K, V] {
	return treeMap[K, V]{btree.NewMap[K, V](degree)}
}

// Iter implements Map.
func (m treeMap[K, V]) Iter() MapCursor[K, V] {
	at := m.Map.Iter()
	return &at
}

// Copy implements Map.
func (m treeMap[K, V]) Copy() Map[K, V] { return treeMap[K, V]{m.Map.Copy()} }
