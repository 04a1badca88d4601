package fsm

import (
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// replicaKind is that of an instance with a lease, or of one without.
func replicaKind(op registry.Replica) opKind {
	if op.Permanent {
		return opReplicaPermanent
	}
	return opReplica
}

func appendReplica(dst []byte, op registry.Replica) []byte {
	dst = appendBody(dst, op.Instance)
	dst = appendUint32(appendUint32(dst, op.Life), op.Edit)
	dst = appendInt64(appendString(dst, op.Owner), op.Age)
	dst = appendAct(append(dst, byte(op.Overridden)), op.OverrideBy)
	dst = appendInt64(appendInt64(dst, op.OverrideFor), op.QuarantineFor)
	return appendAct(dst, op.QuarantineBy)
}

func (d *decoder) replica() registry.Replica {
	return registry.Replica{
		Instance:      d.body(),
		Life:          d.uint32(),
		Edit:          d.uint32(),
		Owner:         d.string(),
		Age:           d.int64(),
		Overridden:    d.status(),
		OverrideBy:    d.act(),
		OverrideFor:   d.int64(),
		QuarantineFor: d.int64(),
		QuarantineBy:  d.act(),
	}
}

// appendRemove takes every kind but Evicted as Canceled: there is no third that a reader accepts.
func appendRemove(dst []byte, op registry.Remove) []byte {
	dst = appendBool(appendKey(dst, op.Key), op.Kind == registry.Evicted)
	dst = appendInt64(appendUint32(dst, op.Life), op.LastDirty)
	return appendInt64(appendString(dst, op.Owner), op.Age)
}

func (d *decoder) remove() registry.Remove {
	return registry.Remove{
		Key:       d.key(),
		Kind:      d.removalKind(),
		Life:      d.uint32(),
		LastDirty: d.int64(),
		Owner:     d.string(),
		Age:       d.int64(),
	}
}

func (d *decoder) removalKind() registry.ChangeKind {
	if d.bool() {
		return registry.Evicted
	}
	return registry.Canceled
}
