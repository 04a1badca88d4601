package fsm

import (
	"encoding/binary"
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// opKind is the lower six bits of an operation's first byte. The upper two are the origin's kind, so
// that a client's operation, the common one, spends no byte on it. Never renumber one.
type opKind byte

const (
	opRenewHandle opKind = iota + 1
	opRenewKey
	opRegister
	opCancel
	opSetOverride
	opDeleteOverride
	opUpdateMetadata
	opEvict
	opRenewHandleOverride // a replicated renewal whose sender knew the handle

	// Since version 2 of a batch.
	opSetOverrideBy    // with its end, author or reason
	opDeleteOverrideBy // with its author or reason
	opEndOverride
	opQuarantine
	opEndQuarantine
	opSelfPreservation

	lastOfVersion1 = opRenewHandleOverride
)

const (
	opKindMask  = 0x3f
	originShift = 6
	minItemSize = 3 // kind and two empty strings (Cancel)
)

func appendItem(dst []byte, it Item) []byte {
	kind := kindOf(it.Op)
	dst = append(dst, byte(kind)|byte(it.Origin.Kind)<<originShift)
	if it.Origin.Kind == registry.RemoteDC {
		dst = appendString(dst, it.Origin.DC)
	}
	return appendOp(dst, kind, it.Op)
}

func (d *decoder) item() Item {
	first := d.byte()
	origin := registry.Origin{Kind: registry.OriginKind(first >> originShift)}
	if byte(origin.Kind) > lastOrigin {
		d.fail("origin %d, want at most %d", origin.Kind, lastOrigin)
	}
	if origin.Kind == registry.RemoteDC {
		origin.DC = d.string()
	}
	return Item{Origin: origin, Op: d.op(opKind(first & opKindMask))}
}

func kindOf(op registry.Op) opKind {
	switch op := op.(type) {
	case registry.Renew:
		return renewKind(op)
	case registry.Register:
		return opRegister
	case registry.Cancel:
		return opCancel
	case registry.SetOverride:
		return setOverrideKind(op)
	case registry.DeleteOverride:
		return deleteOverrideKind(op)
	case registry.UpdateMetadata:
		return opUpdateMetadata
	case registry.Evict:
		return opEvict
	case registry.EndOverride:
		return opEndOverride
	case registry.Quarantine:
		return opQuarantine
	case registry.EndQuarantine:
		return opEndQuarantine
	case registry.SelfPreservation:
		return opSelfPreservation
	}
	panic(fmt.Sprintf("fsm: %T has no encoding: the set of operations is closed", op))
}

func renewKind(op registry.Renew) opKind {
	switch {
	case op.Handle.Gen == 0: // names nothing
		return opRenewKey
	case op.Overridden == registry.Unknown:
		return opRenewHandle
	}
	return opRenewHandleOverride
}

func appendOp(dst []byte, kind opKind, op registry.Op) []byte {
	switch op := op.(type) {
	case registry.Renew:
		return appendRenew(dst, kind, op)
	case registry.Register:
		start := len(dst)
		return prefixLength(appendInstance(dst, op.Instance), start)
	case registry.Cancel:
		return appendKey(dst, op.Key)
	case registry.SetOverride:
		return appendSetOverride(dst, kind, op)
	case registry.DeleteOverride:
		return appendDeleteOverride(dst, kind, op)
	case registry.UpdateMetadata:
		return appendPairs(appendKey(dst, op.Key), op.Pairs)
	case registry.Evict:
		return appendEvict(dst, op)
	case registry.EndOverride:
		return appendEnd(dst, op)
	case registry.Quarantine:
		return appendAct(appendInt64(appendKey(dst, op.Key), op.For), op.By)
	case registry.EndQuarantine:
		return appendEnd(dst, registry.EndOverride(op))
	case registry.SelfPreservation:
		return appendSelfPreservation(dst, op)
	}
	return dst // unreachable: kindOf has seen op
}

// op is the inverse of appendOp. It returns nil if kind is unknown to the version that is read.
func (d *decoder) op(kind opKind) registry.Op {
	if kind > lastOfVersion1 {
		return d.op2(kind)
	}
	switch kind {
	case opRenewHandle, opRenewHandleOverride, opRenewKey:
		return d.renew(kind)
	case opRegister:
		return d.register()
	case opCancel:
		return registry.Cancel{Key: d.key()}
	case opSetOverride:
		return d.setOverride()
	case opDeleteOverride:
		return d.deleteOverride()
	case opUpdateMetadata:
		return registry.UpdateMetadata{Key: d.key(), Pairs: d.pairs()}
	case opEvict:
		return d.evict()
	}
	return d.unknown(kind)
}

// op2 reads the operations that version 2 brought.
func (d *decoder) op2(kind opKind) registry.Op {
	if d.format < 2 {
		return d.unknown(kind)
	}
	switch kind {
	case opSetOverrideBy:
		return d.setOverrideBy()
	case opDeleteOverrideBy:
		return d.deleteOverrideBy()
	case opEndOverride:
		return d.endOverride()
	case opQuarantine:
		return registry.Quarantine{Key: d.key(), For: d.int64(), By: d.act()}
	case opEndQuarantine:
		return registry.EndQuarantine(d.endOverride())
	case opSelfPreservation:
		return d.selfPreservation()
	}
	return d.unknown(kind)
}

func (d *decoder) unknown(kind opKind) registry.Op {
	d.fail("operation of unknown kind %d", kind)
	return nil
}

func appendRenew(dst []byte, kind opKind, op registry.Renew) []byte {
	if kind == opRenewKey {
		dst = appendInt64(appendKey(dst, op.Key), op.LastDirty)
		return append(dst, byte(op.Overridden))
	}
	dst = appendInt64(appendHandle(dst, op.Handle), op.LastDirty)
	if kind == opRenewHandleOverride {
		dst = append(dst, byte(op.Overridden))
	}
	return dst
}

func (d *decoder) renew(kind opKind) registry.Renew {
	if kind == opRenewKey {
		return registry.Renew{Key: d.key(), LastDirty: d.int64(), Overridden: d.status()}
	}
	op := registry.Renew{Handle: d.handle(), LastDirty: d.int64()}
	if op.Handle.Gen == 0 {
		d.fail("renewal of a handle without a generation")
	}
	if kind == opRenewHandleOverride {
		if op.Overridden = d.status(); op.Overridden == registry.Unknown {
			d.fail("an override of UNKNOWN, which is no override")
		}
	}
	return op
}

// register decodes the instance from a copy of its own: entry buffers are large, and none of their
// other content may be kept alive by a registration.
func (d *decoder) register() registry.Register {
	if d.err != nil {
		return registry.Register{}
	}
	body := newSharing(d.bytes())
	op := registry.Register{Instance: body.instance()}
	if err := body.end(); d.err == nil && err != nil {
		d.err = fmt.Errorf("instance that ends at byte %d: %w", d.off, err)
	}
	return op
}

func appendEvict(dst []byte, op registry.Evict) []byte {
	dst = appendEpoch(dst, op.Epoch)
	dst = binary.AppendUvarint(dst, uint64(len(op.Items)))
	for _, it := range op.Items {
		dst = appendHandle(dst, it.Handle)
		dst = binary.AppendUvarint(dst, uint64(it.Registered))
		dst = appendInt64(dst, it.RenewedAt)
	}
	return dst
}

func (d *decoder) evict() registry.Evict {
	op := registry.Evict{Epoch: d.epoch()}
	n := d.count(4) // four numbers
	if n == 0 {
		return op
	}
	op.Items = make([]registry.EvictItem, n)
	for i := range op.Items {
		op.Items[i] = registry.EvictItem{Handle: d.handle(), Registered: d.index(), RenewedAt: d.int64()}
	}
	return op
}
