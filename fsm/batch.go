package fsm

import (
	"fmt"
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Errors of reading that callers can tell apart.
var (
	ErrNewerVersion = codec.ErrNewerVersion
	ErrCorrupt      = codec.ErrCorrupt
)

// BatchID names a batch of operations so that it takes effect at most once, however often it is sent. Node is the
// server id, Boot numbers its starts in rising order, Seq counts its batches from 1.
type BatchID struct {
	Node     string
	Boot     uint64
	Seq      uint64
	Finished uint64 // every batch up to this number has been answered or abandoned
	Bound    Bound
}

// Bound limits how long a batch may take effect. A node sends it with each attempt to send the batch, so that no
// delayed copy takes effect after the node has abandoned the batch (docs/adr/0022). The zero Bound has no effect.
type Bound struct {
	Leadership uint64 // index of the Establish entry of the leadership in which it may take effect
	Until      int64  // ms of that leadership's tenure
}

// permits reports whether a batch may take effect in the leadership of an epoch, so long after it began (ms).
func (b Bound) permits(epoch registry.Epoch, tenure int64) bool {
	return b == Bound{} || (b.Leadership == epoch.Index && tenure <= b.Until)
}

// Item is one operation of a batch: of the registry, with its sender, or (KV not nil) one of coordination.
type Item struct {
	Origin registry.Origin // except its Principal
	// By is the sender; zero if nobody was asked who they are, or for a renewal, which does not need one.
	By access.Sender
	Op registry.Op
	KV kv.Op
}

// AppendBatch appends the encoding of a batch at a level, which must be at least the Need of each of its items. Renew
// operations with a Handle are encoded without their key, in at most 14 bytes each, as long as handles have slots
// below 2^21 and generations below 2^28. docs/reference/formats/log-entry.md describes the encoding. The origin of an
// operation of coordination is a client. AppendBatch panics on an operation outside the closed sets, and on a
// Register without an instance.
func AppendBatch(dst []byte, level byte, id BatchID, items []Item) []byte {
	c := codec.Writer(dst, level)
	(&batch{id: id, items: items}).fields(&c)
	return c.Written()
}

// Size returns how many bytes an item takes in a batch at the newest level.
func Size(it Item) int {
	c := codec.Counter(codec.Newest)
	it.fields(&c)
	return c.Len()
}

// Need returns the level of the formats below which an item cannot be written.
func Need(it Item) byte {
	c := codec.Needer()
	it.fields(&c)
	return c.Need()
}

// ParseBatch is the inverse of AppendBatch. It accepts exactly what Apply can decode, so a leader that gets a batch
// from another node proposes nothing that would stop the cluster. Errors wrap ErrNewerVersion or ErrCorrupt, and an
// ItemError if the item is known. Nothing returned refers to b.
func ParseBatch(b []byte) (BatchID, []Item, error) {
	parsed, err := parseBatch(b)
	if err != nil {
		return BatchID{}, nil, fmt.Errorf("batch: %w", err)
	}
	return parsed.id, parsed.items, nil
}

// ItemError is the error of a batch that is readable up to an item.
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
	level byte // that it was read at
}

func parseBatch(b []byte) (batch, error) {
	c := codec.Reader(b)
	var parsed batch
	parsed.fields(&c)
	return parsed, c.End()
}

const minItemSize = 3 // kind and two empty strings (Cancel)

func (b *batch) fields(c *codec.Codec) {
	c.Version()
	b.level = c.At()
	b.id.fields(c)
	c.Uint64(&b.id.Bound.Leadership)
	c.Int64(&b.id.Bound.Until)
	if n := c.Count(len(b.items), minItemSize); c.Reading() && n > 0 {
		b.items = make([]Item, n)
	}
	for i := range b.items {
		b.items[i].fields(c)
		if err := c.Err(); err != nil {
			c.Stop(&ItemError{Item: i, Err: err})
			return
		}
	}
}

// fields walks an id without its bound, which results do not have.
func (id *BatchID) fields(c *codec.Codec) {
	c.String(&id.Node)
	c.Uint64(&id.Boot)
	c.Uint64(&id.Seq)
	c.Uint64(&id.Finished)
}

// An item's first byte is the kind of its operation, with the origin's kind in the upper two bits, so that a client's
// operation, the common one, spends no byte on it.
const (
	// fromNamed stands for the origin of a named client.
	fromNamed   = registry.RemoteDC + 1
	originShift = 6
	kindMask    = 1<<originShift - 1
	// coordination stands for the operations of package kv, followed by their own kinds.
	coordination = codec.MaxKind
)

func (it *Item) fields(c *codec.Codec) {
	var kind byte
	var origin registry.Origin
	switch {
	case c.Reading():
	case it.KV != nil:
		kind = coordination
	default:
		kind, origin = registry.Operations.Kind(it.Op), it.Origin
	}
	if it.By != (access.Sender{}) {
		origin.Kind = fromNamed
	}
	first := kind | byte(origin.Kind)<<originShift
	c.Byte(&first)
	if c.Reading() {
		kind, origin.Kind = first&kindMask, registry.OriginKind(first>>originShift)
	}
	switch origin.Kind {
	case registry.RemoteDC:
		c.Lasting(&origin.DC)
	case fromNamed:
		it.By.Fields(c)
		c.Confirm(it.By != access.Sender{})
		origin.Kind = registry.Client
	}
	if kind != coordination {
		registry.Operations.Walk(c, kind, &it.Op)
	} else {
		if origin.Kind != registry.Client {
			c.Fail("operation of coordination from origin %d, want a client's", origin.Kind)
		}
		kv.Operations.Fields(c, &it.KV)
	}
	if c.Reading() {
		it.Origin = origin
	}
}

// BatchResult is the result of one batch of an entry.
type BatchResult struct {
	ID BatchID
	// Refused: the batch had a number that its node reports as answered, or came from an older boot; it had no effect
	// now, but may have had one earlier.
	Refused bool
	// Late: the batch reached the leader, or is in the log, after its Bound, or, from level 3 on, after the level rose
	// above its own. This copy had no effect; another copy may take effect.
	Late    bool
	Results // shared with the machine's memory, do not change them
}

// AppendResults appends the encoding of a batch's results at a level, for the node-to-node channel.
func AppendResults(dst []byte, level byte, r BatchResult) []byte {
	c := codec.Writer(dst, level)
	r.fields(&c)
	return c.Written()
}

// ParseResults is the inverse of AppendResults. Errors wrap ErrNewerVersion or ErrCorrupt. Nothing
// returned refers to b.
func ParseResults(b []byte) (BatchResult, error) {
	c := codec.Reader(b)
	var r BatchResult
	r.fields(&c)
	if err := c.End(); err != nil {
		return BatchResult{}, fmt.Errorf("results of a batch: %w", err)
	}
	return r, nil
}

func (r *BatchResult) fields(c *codec.Codec) {
	c.Version()
	r.ID.fields(c)
	c.Bool(&r.Refused)
	c.Bool(&r.Late)
	r.Results.fields(c)
}

// Results holds the results of operations, in their order.
type Results struct {
	// Registry has one for each operation, zero for operations of coordination.
	Registry []registry.Result
	// KV also has one for each operation, zero for those of the registry, or is nil if none is of coordination.
	KV []kv.Result
}

// newResults returns a zero result for each item.
func newResults(items []Item) (r Results) {
	if len(items) > 0 {
		r.Registry = make([]registry.Result, len(items))
	}
	for i := range items {
		if items[i].KV != nil {
			r.KV = make([]kv.Result, len(items))
			break
		}
	}
	return r
}

// Len returns how many operations had these results.
func (r *Results) Len() int { return len(r.Registry) }

// Add appends the results of more operations, either all or none of them of coordination.
func (r *Results) Add(more Results) {
	r.Registry = append(r.Registry, more.Registry...)
	r.KV = append(r.KV, more.KV...)
}

// Cut removes the results of the first n operations and returns them.
func (r *Results) Cut(n int) Results {
	first := Results{Registry: r.Registry[:n:n]}
	r.Registry = r.Registry[n:]
	if r.KV != nil {
		first.KV, r.KV = r.KV[:n:n], r.KV[n:]
	}
	return first
}

func (r *Results) fields(c *codec.Codec) {
	codec.List(c, &r.Registry, 1, (*registry.Result).Fields)
	codec.List(c, &r.KV, 1, (*kv.Result).Fields)
	if n := len(r.KV); n != 0 && n != r.Len() {
		c.Fail("%d results of coordination for %d operations", n, r.Len())
	}
}

// keptRead bounds, in bytes, what is remembered of the pairs that the operations of a batch have read: snapshots
// contain it too.
const keptRead = 1 << 20

// kept returns the results as they are remembered: without what was read, if that is too much for one or for all.
func (r Results) kept() Results {
	left := keptRead
	copied := false
	for i, given := range r.KV {
		k := given.Kept(min(left, kv.MaxKeptRead))
		left -= k.Weight()
		if k.Excess != given.Excess {
			if !copied {
				r.KV, copied = slices.Clone(r.KV), true
			}
			r.KV[i] = k
		}
	}
	return r
}
