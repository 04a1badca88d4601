package kv

import (
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Result is the result of one operation.
type Result struct {
	OK bool // whether the request is fulfilled; false is not an error
	// Refusal says why the operation could not be tried, in the words of Consul's API, because its callers' libraries
	// show them. Then OK is false, and nothing changed.
	Refusal string
	Index   Index // taken by the operation; 0 if it changed nothing
	// Fence is the token of the key's or permit's acquisition that holds after an Acquire, Set, CAS, AcquirePermit or
	// LeaveQueue (of permits: the session's own), or 0. If a Fence did not hold, it is the present holder's token.
	Fence Index
	// Pairs is for Txn: one per result of Consul's API, in order; nil unless OK. Results that are null there have no
	// Value.
	Pairs   []*Pair
	Found   []Found    // Txn: what its operations on nodes, services and checks found or made, in order; nil unless OK
	Errors  []TxnError // Txn: why it failed, in the order of the operations
	Session *Session   // CreateSession, RenewSession: the session
	Place   int        // AcquirePermit: place in the queue, from 1; 0 if not in it
	Limit   uint32     // AcquirePermit: the semaphore's limit
	Excess  Excess     // Txn: it would read, or has read, too much; then it has no Pairs
	Revoked bool       // the client's token was revoked, or its roles narrowed, before the operation took effect
}

// Fields walks a result. It begins with a number that says which fields follow: a write's is one byte and its index.
func (r *Result) Fields(c *codec.Codec) {
	has := c.Mask(r.has(), 12, "result of coordination")
	if c.Reading() {
		r.OK = has&1 != 0
	}
	if c.Reading() {
		r.Revoked = has&2048 != 0
	}
	if has&2 != 0 {
		codec.Uint(c, &r.Index)
	}
	if has&4 != 0 {
		codec.Uint(c, &r.Fence)
	}
	if has&8 != 0 {
		codec.List(c, &r.Pairs, 8, codec.Each((*Pair).Fields))
	}
	if has&16 != 0 {
		codec.List(c, &r.Errors, 2, (*TxnError).fields)
	}
	if has&32 != 0 {
		codec.Ptr(c, &r.Session).Fields(c)
	}
	if has&64 != 0 {
		c.Int(&r.Place)
	}
	if has&128 != 0 {
		c.Uint32(&r.Limit)
	}
	if has&256 != 0 {
		c.String(&r.Refusal)
	}
	if has&512 != 0 {
		codec.Enum(c, &r.Excess, Crowded, "excess")
	}
	if has&1024 != 0 {
		codec.List(c, &r.Found, 6, (*Found).fields)
	}
	c.Confirm(r.has() == has)
}

// has says which fields follow.
func (r *Result) has() uint64 {
	return codec.Bits(r.OK, r.Index != 0, r.Fence != 0, len(r.Pairs) > 0, len(r.Errors) > 0,
		r.Session != nil, r.Place != 0, r.Limit != 0, r.Refusal != "", r.Excess != NoExcess, len(r.Found) > 0, r.Revoked)
}

// Weight returns how many bytes the pairs in a result, and everything else that a transaction found, take.
func (r Result) Weight() (bytes int) {
	for _, e := range r.Pairs {
		bytes += e.Weight()
	}
	for i := range r.Found {
		bytes += r.Found[i].Weight()
	}
	return bytes
}

// Kept returns the result as it is kept: without what was read, if that takes more than some bytes.
func (r Result) Kept(bytes int) Result {
	if r.Weight() > bytes {
		r.Pairs, r.Found, r.Excess = nil, nil, Forgotten
	}
	return r
}

// Found is what one operation of a transaction found or made in the registry.
type Found struct {
	Pairs int // how many of Result.Pairs come before it
	registry.Found
}

func (f *Found) fields(c *codec.Codec) {
	c.Int(&f.Pairs)
	f.Found.Fields(c)
}

// TxnError says why one operation of a transaction failed.
type TxnError struct {
	OpIndex int    // from 0
	What    string // in Consul's words
}

func (e *TxnError) fields(c *codec.Codec) {
	c.Int(&e.OpIndex)
	c.String(&e.What)
}

// Bounds on what is read (Pair.Weight, in bytes): by a request that only reads, by a transaction that also writes,
// and by the transactions of one batch together; and on what is kept of it with the result of an operation, in case
// the operation is repeated.
const (
	MaxRead      = 64 << 20
	MaxTxnRead   = 8 << 20
	maxBatchRead = 64 << 20
	MaxKeptRead  = 64 << 10
)

// Excess says that a transaction reads too much, or an operation involves too many things.
type Excess uint8

// The kinds of Excess. Never renumber one.
const (
	NoExcess Excess = iota
	TooLarge        // it would read more than MaxTxnRead: it was not performed
	// TooBusy: with the others of its batch it would read more than maxBatchRead. It was not performed; try again.
	TooBusy
	Forgotten // it was performed before, and what it read then was not kept
	Crowded   // it exceeds a bound that level 2 introduced, and was not performed
)

// Refusals that several operations share.
const (
	noKey          = "Must provide key"
	missingSession = "missing session"
)

// KeptResult is the result of a Once.
type KeptResult struct {
	Key    string
	At     int64  // lease clock, ms
	Hash   uint64 // of the operation
	Result Result
}

func (r *KeptResult) Fields(c *codec.Codec) {
	c.Lasting(&r.Key)
	c.Int64(&r.At)
	c.Uint64(&r.Hash)
	r.Result.Fields(c)
}

// keptResultWeight is roughly how many bytes a kept result takes besides its texts.
const keptResultWeight = 256

func (r *KeptResult) weight() int {
	bytes := keptResultWeight + len(r.Key) + len(r.Result.Refusal) + r.Result.Weight()
	if s := r.Result.Session; s != nil {
		bytes += len(s.Name) + len(s.TTLText) + 64*(len(s.Checks)+len(s.NodeChecks)+len(s.ServiceChecks))
	}
	for _, e := range r.Result.Errors {
		bytes += len(e.What)
	}
	return bytes
}

// Bounds of Once: how long its results are kept (ms of lease clock), how many at most and with how many bytes in all
// (the oldest are dropped first), and the length of a key in bytes. Pairs that were read are kept only up to
// MaxKeptRead: the repetition of a transaction that read more has the result Forgotten.
const (
	OnceFor    = 10 * 60 * 1000
	onceLimit  = 100_000
	onceBytes  = 64 << 20
	MaxOnceKey = 255
)

// keptResults holds the results of Once, by key and in the order of time.
type keptResults struct {
	byKey map[string]*KeptResult
	order []*KeptResult // oldest first
	bytes int           // of all, see KeptResult.weight
}

func (k *keptResults) add(r *KeptResult) {
	k.byKey[r.Key] = r
	k.order = append(k.order, r)
	k.bytes += r.weight()
	for len(k.order) > onceLimit || k.bytes > onceBytes {
		k.dropOldest()
	}
}

// prune drops the results that are too old at a moment (lease clock, ms).
func (k *keptResults) prune(lease int64) {
	for len(k.order) > 0 && lease-k.order[0].At >= OnceFor {
		k.dropOldest()
	}
}

func (k *keptResults) dropOldest() {
	k.bytes -= k.order[0].weight()
	delete(k.byKey, k.order[0].Key)
	k.order[0] = nil
	k.order = k.order[1:]
}

func (k *keptResults) freeze() []KeptResult {
	frozen := make([]KeptResult, len(k.order))
	for i, r := range k.order {
		frozen[i] = *r
	}
	return frozen
}
