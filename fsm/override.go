package fsm

import (
	"encoding/binary"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

func setOverrideKind(op registry.SetOverride) opKind {
	if op.For == 0 && op.By == (registry.Act{}) {
		return opSetOverride
	}
	return opSetOverrideBy
}

func appendSetOverride(dst []byte, kind opKind, op registry.SetOverride) []byte {
	dst = appendInt64(append(appendKey(dst, op.Key), byte(op.Status)), op.LastDirty)
	if kind == opSetOverrideBy {
		dst = appendAct(appendInt64(dst, op.For), op.By)
	}
	return dst
}

func (d *decoder) setOverride() registry.SetOverride {
	return registry.SetOverride{Key: d.key(), Status: d.status(), LastDirty: d.int64()}
}

func (d *decoder) setOverrideBy() registry.SetOverride {
	op := d.setOverride()
	op.For, op.By = d.int64(), d.act()
	if setOverrideKind(op) != opSetOverrideBy {
		d.fail("details of an override that are none")
	}
	return op
}

func deleteOverrideKind(op registry.DeleteOverride) opKind {
	if op.By == (registry.Act{}) {
		return opDeleteOverride
	}
	return opDeleteOverrideBy
}

func appendDeleteOverride(dst []byte, kind opKind, op registry.DeleteOverride) []byte {
	dst = appendInt64(append(appendKey(dst, op.Key), byte(op.Fallback)), op.LastDirty)
	if kind == opDeleteOverrideBy {
		dst = appendAct(dst, op.By)
	}
	return dst
}

func (d *decoder) deleteOverride() registry.DeleteOverride {
	return registry.DeleteOverride{Key: d.key(), Fallback: d.status(), LastDirty: d.int64()}
}

func (d *decoder) deleteOverrideBy() registry.DeleteOverride {
	op := d.deleteOverride()
	op.By = d.act()
	if deleteOverrideKind(op) != opDeleteOverrideBy {
		d.fail("details of an override that are none")
	}
	return op
}

// appendEnd encodes an EndOverride, and an EndQuarantine, which has the same fields.
func appendEnd(dst []byte, op registry.EndOverride) []byte {
	return binary.AppendUvarint(appendHandle(appendEpoch(dst, op.Epoch), op.Handle), uint64(op.Set))
}

func (d *decoder) endOverride() registry.EndOverride {
	return registry.EndOverride{Epoch: d.epoch(), Handle: d.handle(), Set: d.index()}
}

// What an operator did to a lease: which of the two follow.
const (
	hasOverride   = 0x01
	hasQuarantine = 0x02
	lastActs      = hasOverride | hasQuarantine
)

func appendActs(dst []byte, l *registry.Lease) []byte {
	first := len(dst)
	dst = append(dst, 0)
	if o := l.Override; o != nil {
		dst[first] |= hasOverride
		dst = appendInt64(appendStamp(appendAct(dst, o.By), o.At), o.Until)
		dst = binary.AppendUvarint(append(dst, byte(o.Reported)), uint64(o.Set))
	}
	if q := l.Quarantine; q != nil {
		dst[first] |= hasQuarantine
		dst = appendInt64(appendStamp(appendAct(dst, q.By), q.At), q.Until)
		dst = binary.AppendUvarint(dst, uint64(q.Set))
	}
	return dst
}

// acts is the inverse of appendActs.
func (d *decoder) acts(l *registry.Lease) {
	which := d.enum(lastActs, "acts")
	if which&hasOverride != 0 {
		l.Override = &registry.Override{By: d.act(), At: d.stamp(), Until: d.int64(), Reported: d.status(), Set: d.index()}
	}
	if which&hasQuarantine != 0 {
		l.Quarantine = &registry.Quarantined{By: d.act(), At: d.stamp(), Until: d.int64(), Set: d.index()}
	}
}

// maxNote bounds an author or a reason, in bytes. The interfaces to operators allow less. What
// exceeds it all the same is cut off where it is encoded, because an entry that cannot be decoded
// would stop every node.
const maxNote = 1024

func appendAct(dst []byte, a registry.Act) []byte {
	return appendNote(appendNote(dst, a.Author), a.Reason)
}

func (d *decoder) act() registry.Act { return registry.Act{Author: d.note(), Reason: d.note()} }

func appendNote(dst []byte, s string) []byte { return appendString(dst, s[:min(len(s), maxNote)]) }

// note copies the string: it outlives the instance that it was read with.
func (d *decoder) note() string {
	b := d.bytes()
	if len(b) > maxNote {
		d.fail("author or reason of %d bytes, want at most %d", len(b), maxNote)
		return ""
	}
	return string(b)
}
