package codec

import (
	"fmt"
	"reflect"
)

// MaxKind is the greatest number of an operation: it leaves two bits of the first byte for the origin.
const MaxKind = 1<<6 - 1

// Row is an operation as the formats, the metrics and their pages know it.
type Row[Op any] struct {
	Kind  byte   // its number; never renumber one, and never use one again
	Level byte   // of the formats, the first that has it
	Name  string // as metrics and people call it
	Type  string // as docs/reference/formats/log-entry.md calls it
	Zero  Op     // without anything
	walk  func(*Codec, Op) Op
}

// RowOf returns the row of an operation whose fields are walked so. They are walked in a copy: what is written is not
// assigned to.
func RowOf[Op, T any](kind, level byte, name string, fields func(T, *Codec) T) Row[Op] {
	var zero T
	op := func(of T) Op { return any(of).(Op) }
	return Row[Op]{Kind: kind, Level: level, Name: name, Type: reflect.TypeFor[T]().Name(), Zero: op(zero), walk: func(c *Codec, given Op) Op {
		if c.Reading() {
			return op(fields(zero, c))
		}
		fields(any(given).(T), c)
		return given
	}}
}

// Rows has operations by their kinds.
type Rows[Op any] [MaxKind + 1]Row[Op]

// With returns the rows and more of them. It panics if two have one kind.
func (t Rows[Op]) With(rows ...Row[Op]) Rows[Op] {
	for _, r := range rows {
		if r.Kind == 0 || r.Kind > MaxKind || t[r.Kind].walk != nil {
			panic(fmt.Sprintf("codec: kind %d of %s is another one's, or none", r.Kind, r.Type))
		}
		t[r.Kind] = r
	}
	return t
}

// All returns the rows, by kind.
func (t *Rows[Op]) All() (all []Row[Op]) {
	for _, r := range t {
		if r.walk != nil {
			all = append(all, r)
		}
	}
	return all
}

// Walk walks an operation of a kind, and sets op where it is read. It reports whether the level has that kind.
func (t *Rows[Op]) Walk(c *Codec, kind byte, op *Op) bool {
	if kind > MaxKind || t[kind].walk == nil || !c.Since(t[kind].Level, true) {
		return false
	}
	if read := t[kind].walk(c, *op); c.Reading() {
		*op = read
	}
	return true
}
