package fsm

import (
	"encoding/binary"
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// BatchID names a batch of operations so that it takes effect at most once, however often it is
// sent. Node is the server id, Boot numbers its starts, in rising order, Seq counts its batches from 1.
type BatchID struct {
	Node     string
	Boot     uint64
	Seq      uint64
	Answered uint64 // every batch numbered up to this one has been answered or given up
	Bound    Bound
}

// Bound is until when a batch may take effect. A node says it with each attempt to send the batch, so
// that none of its copies, wherever they were held up, takes effect after the node has given it up
// (docs/adr/0022). The zero Bound bounds nothing.
type Bound struct {
	Leadership uint64 // index of the Establish entry of the leadership that may take it
	Until      int64  // ms of that leadership's tenure
}

// permits says whether a batch may take effect in the leadership with an epoch, so long after its
// beginning (ms).
func (b Bound) permits(epoch registry.Epoch, tenure int64) bool {
	return b == Bound{} || (b.Leadership == epoch.Index && tenure <= b.Until)
}

// Item is one operation of a batch: of the registry, with who sent it, or (KV not nil) one of
// coordination.
type Item struct {
	Origin registry.Origin
	Op     registry.Op
	KV     kv.Op
}

// AppendBatch appends the encoding of a batch. Renew operations with a Handle are encoded without
// their key: at most 14 bytes each, while handles have slots below 2^21 and generations below 2^28.
// docs/formats/log-entry.md describes it. Operations of coordination have no origin. It panics on an
// operation outside the closed sets, and on a Register without an instance.
func AppendBatch(dst []byte, id BatchID, items []Item) []byte {
	dst = append(dst, formatVersion)
	dst = appendBatchID(dst, id)
	dst = appendInt64(binary.AppendUvarint(dst, id.Bound.Leadership), id.Bound.Until)
	dst = binary.AppendUvarint(dst, uint64(len(items)))
	for _, it := range items {
		dst = appendItem(dst, it)
	}
	return dst
}

// ParseBatch is the inverse of AppendBatch. It accepts exactly what Apply can decode: a leader that
// gets a batch from another node proposes nothing that would stop the cluster. Errors wrap
// ErrNewerVersion, ErrOlderVersion or ErrCorrupt, and an ItemError where that is known. Nothing returned
// refers to b.
func ParseBatch(b []byte) (BatchID, []Item, error) {
	parsed, err := parseBatch(b)
	if err != nil {
		return BatchID{}, nil, fmt.Errorf("batch: %w", err)
	}
	return parsed.id, parsed.items, nil
}

// ItemError is the error of a batch that can be read up to an item.
type ItemError struct {
	Item int // from 0
	Err  error
}

// Error implements error.
func (e *ItemError) Error() string { return fmt.Sprintf("operation %d: %v", e.Item, e.Err) }

// Unwrap returns what was wrong with the item.
func (e *ItemError) Unwrap() error { return e.Err }

// batch is a decoded batch.
type batch struct {
	id    BatchID
	items []Item
}

func parseBatch(b []byte) (batch, error) {
	d := decoder{b: b}
	d.version()
	parsed := batch{id: d.batchID()}
	parsed.id.Bound = Bound{Leadership: d.uvarint(), Until: d.int64()}
	parsed.items = d.items()
	return parsed, d.end()
}

func (d *decoder) items() []Item {
	n := d.count(minItemSize)
	if n == 0 {
		return nil
	}
	items := make([]Item, n)
	for i := range items {
		items[i] = d.item()
		if d.err != nil {
			d.err = &ItemError{Item: i, Err: d.err}
			return nil
		}
	}
	return items
}

// appendBatchID encodes an id without its bound, which a result has not.
func appendBatchID(dst []byte, id BatchID) []byte {
	dst = appendString(dst, id.Node)
	dst = binary.AppendUvarint(dst, id.Boot)
	dst = binary.AppendUvarint(dst, id.Seq)
	return binary.AppendUvarint(dst, id.Answered)
}

func (d *decoder) batchID() BatchID {
	return BatchID{Node: d.string(), Boot: d.uvarint(), Seq: d.uvarint(), Answered: d.uvarint()}
}
