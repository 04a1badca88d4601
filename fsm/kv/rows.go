package kv

import (
	"fmt"
	"reflect"

	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// maxKind bounds the numbers of operations in the formats. Never renumber one, and never use one again.
const maxKind = 63

// Row is an operation as the formats and their pages know it.
type Row struct {
	Kind  byte // its number
	Level byte // of the formats, the first that has it
	Name  string
	Type  string // as docs/reference/formats/log-entry.md calls it
	Zero  Op     // without anything
	walk  func(*codec.Codec, Op) Op
}

type table [maxKind + 1]Row

// simple are the operations that a Once may perform. The rest of an operation stands beside its type.
var simple = tableOf(append(nextRows,
	row(1, "key", KeyOp.fields),
	row(1, "txn", Txn.fields),
	row(1, "session_create", CreateSession.fields),
	row(1, "session_renew", RenewSession.fields),
	row(1, "session_destroy", DestroySession.fields),
	row(1, "session_expire", ExpireSession.fields),
	row(1, "delay_end", EndDelay.fields),
	row(1, "permit_acquire", AcquirePermit.fields),
	row(1, "permit_release", ReleasePermit.fields),
	row(1, "queue_leave", LeaveQueue.fields),
)...)

// operations are all that there are.
var operations = simple.with(
	row(1, "once", Once.fields),
	row(1, "restore_stage", StagePart.fields),
	row(1, "restore", Restore.fields),
	row(1, "restore_drop", DropStaged.fields),
	row(1, "access", Access.fields),
)

// row is the row of an operation whose fields are walked so. They are walked in a copy: what is written is not
// assigned to.
func row[T Op](level byte, name string, fields func(T, *codec.Codec) T) Row {
	var zero T
	return Row{Kind: zero.kind(), Level: level, Name: name, Type: reflect.TypeFor[T]().Name(), Zero: zero, walk: func(c *codec.Codec, op Op) Op {
		if c.Reading() {
			return fields(zero, c)
		}
		fields(op.(T), c)
		return op
	}}
}

func tableOf(rows ...Row) table { return table{}.with(rows...) }

// with is the table with more rows.
func (t table) with(rows ...Row) table {
	for _, r := range rows {
		if r.Kind == 0 || r.Kind > maxKind || t[r.Kind].walk != nil {
			panic(fmt.Sprintf("kv: kind %d of %s is another one's, or none", r.Kind, r.Type))
		}
		t[r.Kind] = r
	}
	return t
}

// Rows are the operations, by kind.
func Rows() []Row {
	var rows []Row
	for _, r := range operations {
		if r.walk != nil {
			rows = append(rows, r)
		}
	}
	return rows
}

// NameOf is what people call an operation.
func NameOf(op Op) string { return operations[op.kind()].Name }

// Walk walks an operation, its kind in front; where it is read, op is set.
func Walk(c *codec.Codec, op *Op) { walk(c, &operations, op) }

func walk(c *codec.Codec, t *table, op *Op) {
	var kind byte
	if !c.Reading() {
		kind = (*op).kind()
	}
	c.Byte(&kind)
	if kind > maxKind || t[kind].walk == nil || !c.Since(t[kind].Level, true) {
		if !c.Reading() {
			panic(fmt.Sprintf("kv: %T cannot be written here", *op))
		}
		c.Fail("operation of coordination of unknown kind %d", kind)
		return
	}
	read := t[kind].walk(c, *op)
	if c.Reading() {
		*op = read
	}
}
