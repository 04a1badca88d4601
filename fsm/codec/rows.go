package codec

import (
	"fmt"
	"reflect"
)

// MaxKind is the greatest number of an operation: it leaves two bits of the first byte for the origin.
const MaxKind = 1<<6 - 1

// Row describes an operation to the formats, the metrics and their pages.
type Row struct {
	Kind  byte   // its number; never renumber one, and never reuse one
	Level byte   // the first level of the formats that has it
	Name  string // as metrics and people call it
	Type  string // as docs/reference/formats/log-entry.md calls it
	Zero  any    // the zero operation
	walk  func(c *Codec, op any) (read any)
}

// RowOf returns the row of an operation whose fields are walked by fields. They are walked in a copy, so writing
// assigns to nothing.
func RowOf[T any](level byte, name string, fields func(T, *Codec) T) Row {
	var zero T
	return Row{Level: level, Name: name, Type: reflect.TypeFor[T]().Name(), Zero: zero, walk: func(c *Codec, op any) any {
		if c.Reading() {
			return fields(zero, c)
		}
		fields(op.(T), c)
		return nil
	}}
}

// Table has the operations of one half of the state.
type Table[Op any] struct {
	what string        // what they are, for errors
	kind func(Op) byte // the number of an operation
	rows [MaxKind + 1]Row
}

// TableOf returns a table. It panics if two operations have the same kind.
func TableOf[Op any](what string, kind func(Op) byte, rows ...Row) *Table[Op] {
	return (&Table[Op]{what: what, kind: kind}).With(rows...)
}

// With returns the table with more operations.
func (t *Table[Op]) With(rows ...Row) *Table[Op] {
	all := *t
	for _, r := range rows {
		r.Kind = t.kind(r.Zero.(Op))
		if r.Kind == 0 || r.Kind > MaxKind || all.rows[r.Kind].walk != nil {
			panic(fmt.Sprintf("codec: kind %d of %s is another one's, or none", r.Kind, r.Type))
		}
		all.rows[r.Kind] = r
	}
	return &all
}

// Rows returns the rows, by kind.
func (t *Table[Op]) Rows() (all []Row) {
	for _, r := range t.rows {
		if r.walk != nil {
			all = append(all, r)
		}
	}
	return all
}

// Kind returns the number of an operation.
func (t *Table[Op]) Kind(op Op) byte { return t.kind(op) }

// Name returns the name of an operation in metrics and for people.
func (t *Table[Op]) Name(op Op) string { return t.rows[t.kind(op)].Name }

// Fields walks an operation with its kind in front, and sets op when reading.
func (t *Table[Op]) Fields(c *Codec, op *Op) {
	var kind byte
	if !c.Reading() {
		kind = t.kind(*op)
	}
	c.Byte(&kind)
	t.Walk(c, kind, op)
}

// Walk does what Fields does, for an operation whose kind was already walked. It panics if it must write an operation
// that the table, or the level, does not have.
func (t *Table[Op]) Walk(c *Codec, kind byte, op *Op) {
	switch {
	case kind > MaxKind || t.rows[kind].walk == nil || !c.Since(t.rows[kind].Level, true):
		if !c.Reading() {
			panic(fmt.Sprintf("codec: %T cannot be written here", *op))
		}
		c.Fail("%s of unknown kind %d", t.what, kind)
	case c.Reading():
		*op = t.rows[kind].walk(c, nil).(Op)
	default:
		t.rows[kind].walk(c, *op)
	}
}
