package kv

import "github.com/seed-20419f34/rollcall/fsm/codec"

// simple lists the operations that a Once may perform. The rest of an operation is next to its type.
var simple = codec.TableOf("operation of coordination", Op.kind,
	codec.RowOf(1, "key", KeyOp.fields),
	codec.RowOf(1, "txn", Txn.fields),
	codec.RowOf(1, "session_create", CreateSession.fields),
	codec.RowOf(1, "session_renew", RenewSession.fields),
	codec.RowOf(1, "session_destroy", DestroySession.fields),
	codec.RowOf(1, "session_expire", ExpireSession.fields),
	codec.RowOf(1, "delay_end", EndDelay.fields),
	codec.RowOf(1, "permit_acquire", AcquirePermit.fields),
	codec.RowOf(1, "permit_release", ReleasePermit.fields),
	codec.RowOf(1, "queue_leave", LeaveQueue.fields),
).With(nextRows...)

// Operations lists every operation of coordination.
var Operations = simple.With(
	codec.RowOf(1, "once", Once.fields),
	codec.RowOf(1, "restore_stage", StagePart.fields),
	codec.RowOf(1, "restore", Restore.fields),
	codec.RowOf(1, "restore_drop", DropStaged.fields),
	codec.RowOf(1, "access", Access.fields),
)
