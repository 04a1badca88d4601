package kv

import (
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// Row is an operation as the formats and their pages know it.
type Row = codec.Row[Op]

// simple are the operations that a Once may perform. The rest of an operation stands beside its type.
var simple = codec.Rows[Op]{}.With(append(nextRows,
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
var operations = simple.With(
	row(1, "once", Once.fields),
	row(1, "restore_stage", StagePart.fields),
	row(1, "restore", Restore.fields),
	row(1, "restore_drop", DropStaged.fields),
	row(1, "access", Access.fields),
)

func row[T Op](level byte, name string, fields func(T, *codec.Codec) T) Row {
	var zero T
	return codec.RowOf[Op](zero.kind(), level, name, fields)
}

// Rows are the operations, by kind.
func Rows() []Row { return operations.All() }

// NameOf is what people call an operation.
func NameOf(op Op) string { return operations[op.kind()].Name }

// Walk walks an operation, its kind in front; where it is read, op is set.
func Walk(c *codec.Codec, op *Op) { walk(c, &operations, op) }

func walk(c *codec.Codec, t *codec.Rows[Op], op *Op) {
	var kind byte
	if !c.Reading() {
		kind = (*op).kind()
	}
	if c.Byte(&kind); t.Walk(c, kind, op) {
		return
	}
	if !c.Reading() {
		panic(fmt.Sprintf("kv: %T cannot be written here", *op))
	}
	c.Fail("operation of coordination of unknown kind %d", kind)
}
