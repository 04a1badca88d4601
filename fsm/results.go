package fsm

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// BatchResult is the answer to one batch of an entry.
type BatchResult struct {
	ID BatchID
	// Refused: the batch was numbered at or below what its node reports as answered, or came from an
	// older boot; it had no effect now, and earlier it may have had one.
	Refused bool
	// Late: the batch came to the leader, or stands in the log, after its Bound. This copy of it had no
	// effect; another may take effect.
	Late    bool
	Results []registry.Result // one per item; shared with the machine's memory, not to be changed
	// KV are the results of the operations of coordination, one per item (zero for the others); nil: the
	// batch has none.
	KV []kv.Result
}

// AppendResults appends the encoding of a batch's results, for the node-to-node channel.
func AppendResults(dst []byte, r BatchResult) []byte {
	dst = append(dst, formatVersion)
	dst = appendBatchID(dst, r.ID)
	dst = appendBool(appendBool(dst, r.Refused), r.Late)
	dst = appendResultList(dst, r.Results)
	return appendList(dst, r.KV, appendKVResult)
}

// ParseResults is the inverse of AppendResults. Errors wrap ErrNewerVersion, ErrOlderVersion or ErrCorrupt. Nothing
// returned refers to b.
func ParseResults(b []byte) (BatchResult, error) {
	d := decoder{b: b}
	d.version()
	r := BatchResult{ID: d.batchID(), Refused: d.bool(), Late: d.bool(), Results: d.resultList()}
	r.KV = d.kvResults(len(r.Results))
	if err := d.end(); err != nil {
		return BatchResult{}, fmt.Errorf("results of a batch: %w", err)
	}
	return r, nil
}

// kvResults reads the results of coordination of a batch of n operations: none, or one for each.
func (d *decoder) kvResults(n int) []kv.Result {
	all := list(d, 1, (*decoder).kvResult)
	if all != nil && len(all) != n {
		d.fail("%d results of coordination for %d operations", len(all), n)
	}
	return all
}

// A result's first byte: the outcome, and which of the other fields follow because they are not
// zero. The answer to a renewal is one byte.
const (
	outcomeMask = 0x0f
	hasIndex    = 0x10
	hasHandle   = 0x20
	hasCount    = 0x40
	resultBits  = outcomeMask | hasIndex | hasHandle | hasCount
)

func appendResultList(dst []byte, results []registry.Result) []byte {
	return appendList(dst, results, appendResult)
}

func (d *decoder) resultList() []registry.Result { return list(d, 1, (*decoder).result) }

func appendResult(dst []byte, r registry.Result) []byte {
	first := len(dst)
	dst = append(dst, byte(r.Outcome))
	if r.Index != 0 {
		dst[first] |= hasIndex
		dst = binary.AppendUvarint(dst, uint64(r.Index))
	}
	if r.Handle != (registry.Handle{}) {
		dst[first] |= hasHandle
		dst = appendHandle(dst, r.Handle)
	}
	if r.Count != 0 {
		dst[first] |= hasCount
		dst = binary.AppendUvarint(dst, uint64(r.Count))
	}
	return dst
}

func (d *decoder) result() registry.Result {
	first := d.byte()
	if first&^resultBits != 0 || first&outcomeMask > lastOutcome {
		d.fail("result of unknown form %#x", first)
		return registry.Result{}
	}
	r := registry.Result{Outcome: registry.Outcome(first & outcomeMask)}
	if first&hasIndex != 0 {
		r.Index = d.index()
		d.present(r.Index != 0)
	}
	if first&hasHandle != 0 {
		r.Handle = d.handle()
		d.present(r.Handle != registry.Handle{})
	}
	if first&hasCount != 0 {
		v := d.uvarint()
		d.present(v != 0 && v <= math.MaxInt)
		r.Count = int(v)
	}
	return r
}

func (d *decoder) present(ok bool) {
	if !ok {
		d.fail("a field that is announced and zero, or out of range")
	}
}
