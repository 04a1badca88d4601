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
	opSetOverrideBy       // with its end, author or reason
	opDeleteOverrideBy    // with its author or reason
	opEndOverride
	opQuarantine
	opEndQuarantine
	opSelfPreservation
	opReplica
	opRemove
	opRenewLife // by name, with its life or its age
	opContact
	opAckPeer
	opPausePeer
	opRegisterCatalog
	opDeregisterCatalog
	opSetCheck
	opExpireCheck
	opCoordination // of package kv; a second byte says which
	opReplicaPermanent
	opForgetSender
)

const (
	opKindMask  = 0x3f
	originShift = 6
	minItemSize = 3 // kind and two empty strings (Cancel)
)

func appendItem(dst []byte, it Item) []byte {
	if it.KV != nil {
		return appendKVOp(append(dst, byte(opCoordination)), it.KV)
	}
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
	if kind := opKind(first & opKindMask); kind != opCoordination {
		return Item{Origin: origin, Op: d.op(kind)}
	}
	if origin.Kind != registry.Client {
		d.fail("operation of coordination from origin %d, want a client's", origin.Kind)
	}
	return Item{KV: d.kvOp()}
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
	return kindOfReplication(op)
}

// kindOfReplication is kindOf for what other servers tell, and what is remembered of them.
func kindOfReplication(op registry.Op) opKind {
	switch op := op.(type) {
	case registry.Replica:
		return replicaKind(op)
	case registry.Remove:
		return opRemove
	case registry.Contact:
		return opContact
	case registry.AckPeer:
		return opAckPeer
	case registry.PausePeer:
		return opPausePeer
	case registry.ForgetSender:
		return opForgetSender
	}
	return kindOfCatalog(op)
}

// kindOfCatalog is kindOf for Consul's nodes, services and checks.
func kindOfCatalog(op registry.Op) opKind {
	switch op.(type) {
	case registry.RegisterCatalog:
		return opRegisterCatalog
	case registry.DeregisterCatalog:
		return opDeregisterCatalog
	case registry.SetCheck:
		return opSetCheck
	case registry.ExpireCheck:
		return opExpireCheck
	}
	panic(fmt.Sprintf("fsm: %T has no encoding: the set of operations is closed", op))
}

func renewKind(op registry.Renew) opKind {
	switch {
	case op.Life != 0 || op.Age != 0:
		return opRenewLife // by name, whether there is a handle or not
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
		return appendBody(dst, op.Instance)
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
	case registry.Replica:
		return appendReplica(dst, op)
	case registry.Remove:
		return appendRemove(dst, op)
	case registry.Contact:
		return appendContact(dst, op)
	case registry.AckPeer:
		return binary.AppendUvarint(appendString(dst, op.Peer), uint64(op.Cursor))
	case registry.PausePeer:
		return appendAct(appendBool(appendString(dst, op.Peer), op.Paused), op.By)
	case registry.ForgetSender:
		return appendAct(appendString(dst, op.Sender), op.By)
	case registry.RegisterCatalog:
		return appendRegisterCatalog(dst, op)
	case registry.DeregisterCatalog:
		return appendDeregisterCatalog(dst, op)
	case registry.SetCheck:
		return appendSetCheck(dst, op)
	case registry.ExpireCheck:
		return appendExpireCheck(dst, op)
	}
	return dst // unreachable: kindOf has seen op
}

// op is the inverse of appendOp. It returns nil if kind is unknown.
func (d *decoder) op(kind opKind) registry.Op {
	switch kind {
	case opRenewHandle, opRenewHandleOverride, opRenewKey:
		return d.renew(kind)
	case opRegister:
		return registry.Register{Instance: d.body()}
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
	return d.opOfOperator(kind)
}

// opOfOperator is op for what operators do, and for its end.
func (d *decoder) opOfOperator(kind opKind) registry.Op {
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
	return d.opOfReplication(kind)
}

// opOfReplication is op for what other servers tell, and what is remembered of them.
func (d *decoder) opOfReplication(kind opKind) registry.Op {
	switch kind {
	case opReplica:
		return d.replica()
	case opReplicaPermanent:
		op := d.replica()
		op.Permanent = true
		return op
	case opRemove:
		return d.remove()
	case opRenewLife:
		return d.renewLife()
	case opContact:
		return d.contact()
	case opAckPeer:
		return registry.AckPeer{Peer: d.string(), Cursor: d.index()}
	case opPausePeer:
		return registry.PausePeer{Peer: d.string(), Paused: d.bool(), By: d.act()}
	case opForgetSender:
		return registry.ForgetSender{Sender: d.string(), By: d.act()}
	}
	return d.opOfCatalog(kind)
}

// opOfCatalog is op for Consul's nodes, services and checks.
func (d *decoder) opOfCatalog(kind opKind) registry.Op {
	switch kind {
	case opRegisterCatalog:
		return d.registerCatalog()
	case opDeregisterCatalog:
		return d.deregisterCatalog()
	case opSetCheck:
		return d.setCheck()
	case opExpireCheck:
		return d.expireCheck()
	}
	d.fail("operation of unknown kind %d", kind)
	return nil
}

func appendRenew(dst []byte, kind opKind, op registry.Renew) []byte {
	switch kind {
	case opRenewKey:
		return appendRenewKey(dst, op)
	case opRenewLife:
		return appendInt64(appendUint32(appendRenewKey(dst, op), op.Life), op.Age)
	}
	dst = appendInt64(appendHandle(dst, op.Handle), op.LastDirty)
	if kind == opRenewHandleOverride {
		dst = append(dst, byte(op.Overridden))
	}
	return dst
}

func appendRenewKey(dst []byte, op registry.Renew) []byte {
	return append(appendInt64(appendKey(dst, op.Key), op.LastDirty), byte(op.Overridden))
}

func (d *decoder) renew(kind opKind) registry.Renew {
	if kind == opRenewKey {
		return d.renewKey()
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

func (d *decoder) renewKey() registry.Renew {
	return registry.Renew{Key: d.key(), LastDirty: d.int64(), Overridden: d.status()}
}

func (d *decoder) renewLife() registry.Renew {
	op := d.renewKey()
	op.Life, op.Age = d.uint32(), d.int64()
	if renewKind(op) != opRenewLife {
		d.fail("renewal with neither life nor age")
	}
	return op
}

// appendBody encodes an instance with its length in front.
func appendBody(dst []byte, i *registry.Instance) []byte {
	start := len(dst)
	return prefixLength(appendInstance(dst, i), start)
}

// body decodes an instance from a copy of its own: entry buffers are large, and none of their other
// content may be kept alive by a registration.
func (d *decoder) body() *registry.Instance {
	if d.err != nil {
		return nil
	}
	body := newSharing(d.bytes())
	i := body.instance()
	if err := body.end(); d.err == nil && err != nil {
		d.err = fmt.Errorf("instance that ends at byte %d: %w", d.off, err)
	}
	return i
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
