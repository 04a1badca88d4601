package fsm

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm/kv"
)

// kvKind is the byte behind opCoordination that says which operation of coordination follows. Never
// renumber one.
type kvKind byte

const (
	kvKey kvKind = iota + 1
	kvTxn
	kvCreateSession
	kvRenewSession
	kvDestroySession
	kvExpireSession
	kvEndDelay
	kvAcquirePermit
	kvReleasePermit
	kvLeaveQueue
	kvOnce
)

// The numbers of package kv's enumerations are part of the formats. Never renumber one.
const (
	lastVerb     = byte(kv.DeleteTree)
	lastHeld     = byte(kv.Semaphore)
	lastBehavior = byte(kv.DeleteKeys)
	lastExcess   = byte(kv.Forgotten)
)

// Which fields of a KeyOp follow because they are not zero.
const (
	keyHasValue   = 0x01
	keyHasFlags   = 0x02
	keyHasIndex   = 0x04
	keyHasSession = 0x08
	keyHasFence   = 0x10
	keyBits       = keyHasValue | keyHasFlags | keyHasIndex | keyHasSession | keyHasFence
)

const minKeyOpSize = 3 // verb, fields and an empty key

func appendKVOp(dst []byte, op kv.Op) []byte {
	switch op := op.(type) {
	case kv.KeyOp:
		return appendKeyOp(append(dst, byte(kvKey)), op)
	case kv.Txn:
		return appendList(append(dst, byte(kvTxn)), op.Ops, appendKeyOp)
	case kv.CreateSession:
		return appendCreateSession(append(dst, byte(kvCreateSession)), op)
	case kv.RenewSession:
		return appendString(append(dst, byte(kvRenewSession)), op.ID)
	case kv.DestroySession:
		return appendString(append(dst, byte(kvDestroySession)), op.ID)
	case kv.ExpireSession:
		dst = appendString(appendKVEpoch(append(dst, byte(kvExpireSession)), op.Epoch), op.ID)
		return appendInt64(appendKVIndex(dst, op.Created), op.RenewedAt)
	case kv.EndDelay:
		dst = appendKVEpoch(append(dst, byte(kvEndDelay)), op.Epoch)
		return appendInt64(appendHeld(dst, op.Kind, op.Name), op.Until)
	case kv.Once:
		return appendOnce(append(dst, byte(kvOnce)), op)
	}
	return appendPermitOp(dst, op)
}

// appendPermitOp is appendKVOp for locks and semaphores.
func appendPermitOp(dst []byte, op kv.Op) []byte {
	switch op := op.(type) {
	case kv.AcquirePermit:
		dst = appendHeld(append(dst, byte(kvAcquirePermit)), op.Kind, op.Name)
		dst = appendUint32(appendString(dst, op.Session), op.Limit)
		return appendInt64(appendBytes(dst, op.Value), op.Wait)
	case kv.ReleasePermit:
		dst = appendHeld(append(dst, byte(kvReleasePermit)), op.Kind, op.Name)
		return appendKVIndex(appendString(dst, op.Session), op.Index)
	case kv.LeaveQueue:
		dst = appendHeld(append(dst, byte(kvLeaveQueue)), op.Kind, op.Name)
		return appendBool(appendString(dst, op.Session), op.Release)
	}
	panic(fmt.Sprintf("fsm: %T has no encoding: the set of operations is closed", op))
}

// kvOp is the inverse of appendKVOp.
func (d *decoder) kvOp() kv.Op {
	kind := kvKind(d.byte())
	if kind == kvOnce {
		return d.once()
	}
	return d.kvOpOf(kind)
}

// kvOpOf reads any operation but a Once, which has none inside.
func (d *decoder) kvOpOf(kind kvKind) kv.Op {
	switch kind {
	case kvKey:
		return d.keyOp()
	case kvTxn:
		return kv.Txn{Ops: list(d, minKeyOpSize, (*decoder).keyOp)}
	case kvCreateSession:
		return d.createSession()
	case kvRenewSession:
		return kv.RenewSession{ID: d.string()}
	case kvDestroySession:
		return kv.DestroySession{ID: d.string()}
	case kvExpireSession:
		return kv.ExpireSession{Epoch: d.kvEpoch(), ID: d.string(), Created: d.kvIndex(), RenewedAt: d.int64()}
	case kvEndDelay:
		return kv.EndDelay{Epoch: d.kvEpoch(), Kind: d.held(), Name: d.string(), Until: d.int64()}
	case kvAcquirePermit:
		return d.acquirePermit()
	case kvReleasePermit:
		return kv.ReleasePermit{Kind: d.held(), Name: d.string(), Session: d.string(), Index: d.kvIndex()}
	case kvLeaveQueue:
		return kv.LeaveQueue{Kind: d.held(), Name: d.string(), Session: d.string(), Release: d.bool()}
	}
	d.fail("operation of coordination of unknown kind %d", kind)
	return nil
}

func appendOnce(dst []byte, op kv.Once) []byte {
	if _, nested := op.Op.(kv.Once); nested {
		panic("fsm: a kv.Once inside a kv.Once has no encoding")
	}
	return appendKVOp(appendString(dst, op.Key), op.Op)
}

func (d *decoder) once() kv.Once { return kv.Once{Key: d.string(), Op: d.kvOpOf(kvKind(d.byte()))} }

func appendKeyOp(dst []byte, op kv.KeyOp) []byte {
	first := len(dst) + 1
	dst = appendString(append(dst, byte(op.Verb), 0), op.Key)
	if len(op.Value) > 0 {
		dst[first] |= keyHasValue
		dst = appendBytes(dst, op.Value)
	}
	if op.Flags != 0 {
		dst[first] |= keyHasFlags
		dst = binary.AppendUvarint(dst, op.Flags)
	}
	if op.Index != 0 {
		dst[first] |= keyHasIndex
		dst = appendKVIndex(dst, op.Index)
	}
	if op.Session != "" {
		dst[first] |= keyHasSession
		dst = appendString(dst, op.Session)
	}
	if op.Fence != nil {
		dst[first] |= keyHasFence
		dst = appendFence(dst, *op.Fence)
	}
	return dst
}

func (d *decoder) keyOp() kv.KeyOp {
	op := kv.KeyOp{Verb: kv.Verb(d.enum(lastVerb, "verb"))}
	which := d.enum(keyBits, "fields of a key's operation")
	op.Key = d.string()
	if which&keyHasValue != 0 {
		op.Value = d.value()
		d.present(op.Value != nil)
	}
	if which&keyHasFlags != 0 {
		op.Flags = d.uvarint()
		d.present(op.Flags != 0)
	}
	if which&keyHasIndex != 0 {
		op.Index = d.kvIndex()
		d.present(op.Index != 0)
	}
	if which&keyHasSession != 0 {
		op.Session = d.string()
		d.present(op.Session != "")
	}
	if which&keyHasFence != 0 {
		op.Fence = d.fence()
	}
	return op
}

func appendFence(dst []byte, f kv.Fence) []byte {
	return appendKVIndex(appendHeld(dst, f.Kind, f.Name), f.Index)
}

func (d *decoder) fence() *kv.Fence {
	return &kv.Fence{Kind: d.held(), Name: d.string(), Index: d.kvIndex()}
}

func appendCreateSession(dst []byte, op kv.CreateSession) []byte {
	dst = appendString(appendString(appendString(dst, op.ID), op.Name), op.Node)
	dst = appendString(appendInt64(dst, op.TTL), op.TTLText)
	dst = append(appendInt64(dst, op.LockDelay), byte(op.Behavior))
	dst = appendGiven(dst, op.Checks)
	return appendStrings(appendStrings(dst, op.NodeChecks), op.ServiceChecks)
}

func (d *decoder) createSession() kv.CreateSession {
	return kv.CreateSession{
		ID:            d.string(),
		Name:          d.string(),
		Node:          d.string(),
		TTL:           d.int64(),
		TTLText:       d.string(),
		LockDelay:     d.int64(),
		Behavior:      d.behavior(),
		Checks:        d.given(),
		NodeChecks:    d.strings(),
		ServiceChecks: d.strings(),
	}
}

func (d *decoder) acquirePermit() kv.AcquirePermit {
	return kv.AcquirePermit{
		Kind:    d.held(),
		Name:    d.string(),
		Session: d.string(),
		Limit:   d.uint32(),
		Value:   d.value(),
		Wait:    d.int64(),
	}
}

func (d *decoder) behavior() kv.Behavior {
	return kv.Behavior(d.enum(lastBehavior, "behavior of a session"))
}

// appendHeld encodes the name of something that can be held.
func appendHeld(dst []byte, kind kv.Kind, name string) []byte {
	return appendString(append(dst, byte(kind)), name)
}

func (d *decoder) held() kv.Kind { return kv.Kind(d.enum(lastHeld, "kind of what is held")) }

// value copies bytes, which then live as long as the entry that has them; nil if there are none.
func (d *decoder) value() []byte {
	if b := d.bytes(); len(b) > 0 {
		return bytes.Clone(b)
	}
	return nil
}

func appendStrings(dst []byte, all []string) []byte { return appendList(dst, all, appendString) }

func (d *decoder) strings() []string { return list(d, 1, (*decoder).string) }

// appendGiven encodes a list that differs from none at all even if it is empty.
func appendGiven(dst []byte, all []string) []byte {
	if all == nil {
		return append(dst, 0)
	}
	return appendStrings(append(dst, 1), all)
}

func (d *decoder) given() []string {
	if !d.bool() {
		return nil
	}
	if all := d.strings(); all != nil {
		return all
	}
	return []string{}
}

func appendKVEpoch(dst []byte, e kv.Epoch) []byte { return appendNumbers(dst, e.Term, e.Index) }

func (d *decoder) kvEpoch() kv.Epoch { return kv.Epoch{Term: d.uvarint(), Index: d.uvarint()} }

func appendKVIndex(dst []byte, i kv.Index) []byte { return binary.AppendUvarint(dst, uint64(i)) }

func (d *decoder) kvIndex() kv.Index { return kv.Index(d.uvarint()) }
