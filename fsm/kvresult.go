package fsm

import (
	"encoding/binary"
	"math"

	"github.com/seed-20419f34/rollcall/fsm/kv"
)

// A result of coordination begins with a number that says what it has: a write's is one byte and its
// index.
const (
	kvOK         = 0x001
	kvHasIndex   = 0x002
	kvHasFence   = 0x004
	kvHasEntries = 0x008
	kvHasErrors  = 0x010
	kvHasSession = 0x020
	kvHasPlace   = 0x040
	kvHasLimit   = 0x080
	kvHasRefusal = 0x100
	kvHasExcess  = 0x200
	kvResultBits = 0x3ff
)

// The least that an element of each list takes: its strings and lists empty, its numbers 0.
const (
	minEntrySize    = 8
	minTxnErrorSize = 2
)

func appendKVResult(dst []byte, r kv.Result) []byte {
	dst = binary.AppendUvarint(dst, kvResultForm(r))
	if r.Index != 0 {
		dst = appendKVIndex(dst, r.Index)
	}
	if r.Fence != 0 {
		dst = appendKVIndex(dst, r.Fence)
	}
	if len(r.Entries) > 0 {
		dst = appendList(dst, r.Entries, appendEntry)
	}
	if len(r.Errors) > 0 {
		dst = appendList(dst, r.Errors, appendTxnError)
	}
	if r.Session != nil {
		dst = appendSession(dst, r.Session)
	}
	if r.Place != 0 {
		dst = binary.AppendUvarint(dst, uint64(r.Place))
	}
	if r.Limit != 0 {
		dst = appendUint32(dst, r.Limit)
	}
	if r.Refusal != "" {
		dst = appendString(dst, r.Refusal)
	}
	if r.Excess != kv.NoExcess {
		dst = append(dst, byte(r.Excess))
	}
	return dst
}

func kvResultForm(r kv.Result) uint64 {
	var form uint64
	for i, has := range [...]bool{
		r.OK, r.Index != 0, r.Fence != 0, len(r.Entries) > 0, len(r.Errors) > 0,
		r.Session != nil, r.Place != 0, r.Limit != 0, r.Refusal != "", r.Excess != kv.NoExcess,
	} {
		if has {
			form |= 1 << i
		}
	}
	return form
}

func (d *decoder) kvResult() kv.Result {
	form := d.uvarint()
	if form&^kvResultBits != 0 {
		d.fail("result of coordination of unknown form %#x", form)
		return kv.Result{}
	}
	r := kv.Result{OK: form&kvOK != 0}
	if form&kvHasIndex != 0 {
		r.Index = d.kvIndex()
	}
	if form&kvHasFence != 0 {
		r.Fence = d.kvIndex()
	}
	if form&kvHasEntries != 0 {
		r.Entries = list(d, minEntrySize, (*decoder).entry)
	}
	if form&kvHasErrors != 0 {
		r.Errors = list(d, minTxnErrorSize, (*decoder).txnError)
	}
	if form&kvHasSession != 0 {
		r.Session = d.session()
	}
	if form&kvHasPlace != 0 {
		r.Place = d.int()
	}
	if form&kvHasLimit != 0 {
		r.Limit = d.uint32()
	}
	if form&kvHasRefusal != 0 {
		r.Refusal = d.string()
	}
	if form&kvHasExcess != 0 {
		r.Excess = kv.Excess(d.enum(lastExcess, "excess"))
	}
	d.present(kvResultForm(r) == form)
	return r
}

func appendTxnError(dst []byte, e kv.TxnError) []byte {
	return appendString(binary.AppendUvarint(dst, uint64(e.OpIndex)), e.What)
}

func (d *decoder) txnError() kv.TxnError { return kv.TxnError{OpIndex: d.int(), What: d.string()} }

// int reads a number that an int can be, which is not negative.
func (d *decoder) int() int {
	v := d.uvarint()
	d.present(v <= math.MaxInt)
	return int(v)
}
