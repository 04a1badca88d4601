package fsm

import (
	"encoding/binary"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// The records of coordination do not share one copy of their bytes for their strings: a key lives on
// when its value, which is most of the record, was replaced.

// The least that an element of each list takes: its strings and lists empty, its numbers 0.
const (
	minHolderSize = 5
	minWaiterSize = 4
)

// appendKVPlace encodes where coordination stands: its indexes. Its clock and its epoch are those of the
// registry.
func appendKVPlace(dst []byte, f kv.Frozen) []byte {
	return appendNumbers(dst, uint64(f.Index), uint64(f.KeysIndex), uint64(f.SessionsIndex), uint64(f.PermitsIndex), uint64(f.Pruned))
}

func (d *decoder) kvPlace(beside registry.Frozen) kv.Frozen {
	f := kvBeside(beside)
	f.Index, f.KeysIndex, f.SessionsIndex = d.kvIndex(), d.kvIndex(), d.kvIndex()
	f.PermitsIndex, f.Pruned = d.kvIndex(), d.kvIndex()
	return f
}

// kvBeside is coordination without content, at the moment of a registry.
func kvBeside(f registry.Frozen) kv.Frozen {
	return kv.Frozen{Lease: f.Clock.Lease, Epoch: kv.Epoch(f.Epoch), Established: f.Established}
}

func appendEntry(dst []byte, e *kv.Entry) []byte {
	dst = binary.AppendUvarint(appendBytes(appendString(dst, e.Key), e.Value), e.Flags)
	dst = binary.AppendUvarint(appendString(dst, e.Session), e.LockIndex)
	return appendNumbers(dst, uint64(e.CreateIndex), uint64(e.ModifyIndex), uint64(e.Fence))
}

func (d *decoder) entry() *kv.Entry {
	return &kv.Entry{
		Key:         d.lasting(),
		Value:       d.value(),
		Flags:       d.uvarint(),
		Session:     d.lasting(),
		LockIndex:   d.uvarint(),
		CreateIndex: d.kvIndex(),
		ModifyIndex: d.kvIndex(),
		Fence:       d.kvIndex(),
	}
}

func appendSession(dst []byte, s *kv.Session) []byte {
	dst = appendString(appendString(appendString(dst, s.ID), s.Name), s.Node)
	dst = appendString(appendInt64(dst, s.TTL), s.TTLText)
	dst = append(appendInt64(dst, s.LockDelay), byte(s.Behavior))
	dst = appendGiven(dst, s.Checks)
	dst = appendStrings(appendStrings(dst, s.NodeChecks), s.ServiceChecks)
	dst = appendNumbers(dst, uint64(s.CreateIndex), uint64(s.ModifyIndex))
	return appendInt64(appendInt64(dst, s.CreatedAt), s.CreatedWall)
}

func (d *decoder) session() *kv.Session {
	return &kv.Session{
		ID:            d.lasting(),
		Name:          d.string(),
		Node:          d.string(),
		TTL:           d.int64(),
		TTLText:       d.string(),
		LockDelay:     d.int64(),
		Behavior:      d.behavior(),
		Checks:        d.given(),
		NodeChecks:    d.strings(),
		ServiceChecks: d.strings(),
		CreateIndex:   d.kvIndex(),
		ModifyIndex:   d.kvIndex(),
		CreatedAt:     d.int64(),
		CreatedWall:   d.int64(),
	}
}

func appendSessionState(dst []byte, s kv.SessionState) []byte {
	return appendInt64(appendSession(dst, s.Session), s.Renewed)
}

func (d *decoder) sessionState() kv.SessionState {
	return kv.SessionState{Session: d.session(), Renewed: d.int64()}
}

func appendDeletion(dst []byte, t kv.Deletion) []byte {
	dst = appendInt64(appendKVIndex(appendString(dst, t.Key), t.Index), t.At)
	return appendKVIndex(dst, t.Fence)
}

func (d *decoder) deletion() kv.Deletion {
	return kv.Deletion{Key: d.lasting(), Index: d.kvIndex(), At: d.int64(), Fence: d.kvIndex()}
}

func appendDelay(dst []byte, l kv.Delay) []byte {
	return appendInt64(appendString(dst, l.Key), l.Until)
}

func (d *decoder) delay() kv.Delay { return kv.Delay{Key: d.lasting(), Until: d.int64()} }

func appendPermits(dst []byte, p *kv.Permits) []byte {
	dst = appendUint32(appendHeld(dst, p.Kind, p.Name), p.Limit)
	dst = appendList(dst, p.Holders, appendHolder)
	dst = appendList(dst, p.Queue, appendWaiter)
	return appendKVIndex(appendList(dst, p.Delays, appendInt64), p.ModifyIndex)
}

func (d *decoder) permits() *kv.Permits {
	return &kv.Permits{
		Kind:        d.held(),
		Name:        d.lasting(),
		Limit:       d.uint32(),
		Holders:     list(d, minHolderSize, (*decoder).holder),
		Queue:       list(d, minWaiterSize, (*decoder).waiter),
		Delays:      list(d, 1, (*decoder).int64),
		ModifyIndex: d.kvIndex(),
	}
}

func appendHolder(dst []byte, h kv.Holder) []byte {
	dst = appendKVIndex(appendString(dst, h.Session), h.Fence)
	return appendBytes(appendInt64(appendInt64(dst, h.Since), h.Wall), h.Value)
}

func (d *decoder) holder() kv.Holder {
	return kv.Holder{Session: d.lasting(), Fence: d.kvIndex(), Since: d.int64(), Wall: d.int64(), Value: d.value()}
}

func appendWaiter(dst []byte, w kv.Waiter) []byte {
	return appendBytes(appendInt64(appendInt64(appendString(dst, w.Session), w.Since), w.Until), w.Value)
}

func (d *decoder) waiter() kv.Waiter {
	return kv.Waiter{Session: d.lasting(), Since: d.int64(), Until: d.int64(), Value: d.value()}
}

// appendOnceAnswer encodes what a Once was answered.
func appendOnceAnswer(dst []byte, a kv.Answer) []byte {
	dst = binary.AppendUvarint(appendInt64(appendString(dst, a.Key), a.At), a.Digest)
	return appendKVResult(dst, a.Result)
}

func (d *decoder) onceAnswer() kv.Answer {
	return kv.Answer{Key: d.lasting(), At: d.int64(), Digest: d.uvarint(), Result: d.kvResult()}
}
