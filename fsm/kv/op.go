package kv

import (
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Index counts the changes that readers see, of instances as well.
type Index = order.Index

// Epoch is a leadership: the Raft term and index of its Establish entry.
type Epoch = order.Epoch

// At is when an operation is applied.
type At struct {
	Index Index  // the one that the operation takes, if it changes something
	Lease int64  // lease clock, ms
	Wall  int64  // ms since the epoch, for people
	Term  uint64 // Raft term of the log entry
	Read  int    // what the operations before it in its batch have read (Result.Weight)
}

// Op is one operation: one of those that have a row in Rows, and no other one.
type Op interface {
	kind() byte
	apply(s *State, at At) Result
}

// Verb is what a KeyOp does. The words are those of Consul's transactions.
type Verb uint8

// The verbs. Never renumber one: they are part of the log's format.
const (
	Set            Verb = iota // set value and flags; the holder stays
	CAS                        // set if ModifyIndex is Index; Index 0: if the key is absent
	Acquire                    // "lock": set, and make Session the holder
	Release                    // "unlock": set, and have no holder any more
	Get                        // the entry, which must be there
	GetOrEmpty                 // the entry, or one that says nothing
	GetTree                    // all entries whose keys begin with Key
	CheckIndex                 // fail unless ModifyIndex is Index
	CheckSession               // fail unless Session holds the key
	CheckNotExists             // fail if the key is there
	Delete                     // remove, whoever holds it
	DeleteCAS                  // remove if ModifyIndex is Index; an absent key is removed
	DeleteTree                 // remove all keys that begin with Key; "": all
)

// Writes says whether a verb may change something.
func (v Verb) Writes() bool {
	switch v {
	case Get, GetOrEmpty, GetTree, CheckIndex, CheckSession, CheckNotExists:
		return false
	}
	return true
}

// KeyOp does one thing to one key, or to all that begin with it. Get and the checks are for
// transactions; reads on their own are made from a View.
type KeyOp struct {
	Verb    Verb
	Key     string
	Value   []byte // Set, CAS, Acquire, Release; immutable
	Flags   uint64 // the same
	Index   Index  // CAS, CheckIndex, DeleteCAS
	Session string // Acquire, Release, CheckSession; case does not matter
	// Fence, if not nil, must hold, or a verb that writes changes nothing: Result.OK is false. It may be
	// that of another key, or of a lock or semaphore: what is written is often not what was locked.
	Fence *Fence
}

func (KeyOp) kind() byte { return 1 }

func (op KeyOp) apply(s *State, at At) Result { return s.keyOp(at, op) }

func (op KeyOp) fields(c *codec.Codec) KeyOp {
	codec.Enum(c, &op.Verb, DeleteTree, "verb")
	has := c.Mask(op.has(), 5, "operation of a key")
	c.String(&op.Key)
	if has&1 != 0 {
		c.Bytes(&op.Value)
	}
	if has&2 != 0 {
		c.Uint64(&op.Flags)
	}
	if has&4 != 0 {
		codec.Uint(c, &op.Index)
	}
	if has&8 != 0 {
		c.String(&op.Session)
	}
	if has&16 != 0 {
		codec.Ptr(c, &op.Fence).fields(c)
	}
	c.Confirm(has == op.has())
	return op
}

// has says which fields follow because they are not zero.
func (op KeyOp) has() uint64 {
	return codec.Bits(len(op.Value) > 0, op.Flags != 0, op.Index != 0, op.Session != "", op.Fence != nil)
}

// Txn performs operations in order, all or none: each sees the effects of those before it, and all
// writes have one Index. A transaction that fails lists every operation that does.
type Txn struct{ Ops []KeyOp }

func (Txn) kind() byte { return 2 }

func (op Txn) apply(s *State, at At) Result { return s.txn(at, op) }

func (op Txn) fields(c *codec.Codec) Txn {
	codec.List(c, &op.Ops, 3, func(one *KeyOp, c *codec.Codec) {
		if read := one.fields(c); c.Reading() {
			*one = read
		}
	})
	return op
}

// Kind tells apart what can be held.
type Kind uint8

// The kinds. Never renumber one.
const (
	Key       Kind = iota // a key that a session acquired
	Lock                  // a lock of Rollcall's own: one holder, and a queue
	Semaphore             // the same with a limit of holders
)

func (k *Kind) fields(c *codec.Codec) { codec.Enum(c, k, Semaphore, "kind of what is held") }

// Fence names an acquisition: Index is its token, the Index of the operation that granted it. It
// holds while that acquisition lasts, and never again.
type Fence struct {
	Kind  Kind
	Name  string // of the key, lock or semaphore
	Index Index
}

func (f *Fence) fields(c *codec.Codec) {
	f.Kind.fields(c)
	c.String(&f.Name)
	codec.Uint(c, &f.Index)
}

// Behavior says what happens to the keys of a session that ends.
type Behavior uint8

// The behaviors. Never renumber one.
const (
	ReleaseKeys Behavior = iota // they lose their holder
	DeleteKeys                  // they are deleted
)

func (b *Behavior) fields(c *codec.Codec) { codec.Enum(c, b, DeleteKeys, "behavior of a session") }

// CreateSession creates a session. The proposer drew ID, a UUID in lower case. Result.Refusal says,
// in Consul's words, that the node or a check is not registered, or a check is critical.
type CreateSession struct {
	ID        string
	Name      string
	Node      string // "": the cluster's logical node
	TTL       int64  // ms that it lives without a renewal; 0: it does not end by itself
	TTLText   string // what clients gave and read back; Consul's mean half of what the session lives
	LockDelay int64  // ns; at most MaxLockDelay counts
	Behavior  Behavior
	Checks    []string // legacy list as given, shown; nil: none was given
	// NodeChecks are the checks of Node in force; ServiceChecks are ids of checks of services on Node.
	NodeChecks    []string
	ServiceChecks []string
}

func (CreateSession) kind() byte { return 3 }

func (op CreateSession) apply(s *State, at At) Result { return s.createSession(at, op) }

func (op CreateSession) fields(c *codec.Codec) CreateSession {
	c.String(&op.ID)
	c.String(&op.Name)
	c.String(&op.Node)
	c.Int64(&op.TTL)
	c.String(&op.TTLText)
	c.Int64(&op.LockDelay)
	op.Behavior.fields(c)
	given(c, &op.Checks)
	c.Strings(&op.NodeChecks)
	c.Strings(&op.ServiceChecks)
	return op
}

// MaxSessionChecks is how many checks a session may depend on.
const MaxSessionChecks = 256

// MaxLockDelay (ns) is the longest lock-delay.
const MaxLockDelay = 60_000_000_000

// RenewSession starts a session's TTL anew. It takes no Index. OK is false if there is no such session.
type RenewSession struct{ ID string }

func (RenewSession) kind() byte { return 4 }

func (op RenewSession) apply(s *State, at At) Result { return s.renewSession(op) }

func (op RenewSession) fields(c *codec.Codec) RenewSession {
	c.String(&op.ID)
	return op
}

// DestroySession ends a session. OK is true also if there is none.
type DestroySession struct{ ID string }

func (DestroySession) kind() byte { return 5 }

func (op DestroySession) apply(s *State, at At) Result { return s.destroySession(at, op) }

func (op DestroySession) fields(c *codec.Codec) DestroySession {
	c.String(&op.ID)
	return op
}

// ExpireSession ends a session whose TTL has passed. The leader proposes it under its epoch; it takes
// effect only if the session was created by Created and last renewed at RenewedAt (lease clock, ms).
type ExpireSession struct {
	Epoch     Epoch
	ID        string
	Created   Index
	RenewedAt int64
}

func (ExpireSession) kind() byte { return 6 }

func (op ExpireSession) apply(s *State, at At) Result { return s.expireSession(at, op) }

func (op ExpireSession) fields(c *codec.Codec) ExpireSession {
	op.Epoch.Fields(c)
	c.String(&op.ID)
	codec.Uint(c, &op.Created)
	c.Int64(&op.RenewedAt)
	return op
}

// EndDelay ends a lock-delay whose time has passed, proposed as ExpireSession is: a lock or semaphore
// goes to the next in its queue. Until is the delay's end that is meant (lease clock, ms).
type EndDelay struct {
	Epoch Epoch
	Kind  Kind
	Name  string
	Until int64
}

func (EndDelay) kind() byte { return 7 }

func (op EndDelay) apply(s *State, at At) Result { return s.endDelay(at, op) }

func (op EndDelay) fields(c *codec.Codec) EndDelay {
	op.Epoch.Fields(c)
	op.Kind.fields(c)
	c.String(&op.Name)
	c.Int64(&op.Until)
	return op
}

// AcquirePermit asks for a lock (Kind Lock, Limit is ignored) or one of the permits of a semaphore.
// Who holds one already keeps it, with its token: OK is true. If none is free, or somebody waits
// already, the session joins the queue's end for Wait (ms of lease clock); 0: it does not. Who waits
// keeps its place when it asks again, for the new Wait and with the new Value; a try (Wait 0) by who
// waits changes neither. Permits are given in the order of the queue, by whatever operation frees them,
// one of a name per operation, so that no two holders have one token.
// Refusal: an unknown session; a semaphore of another limit, see Result.Limit.
type AcquirePermit struct {
	Kind    Kind
	Name    string
	Session string
	Limit   uint32 // >= 1; the first acquisition fixes it until nobody holds or waits any more
	Value   []byte // at most MaxPermitValue bytes, shown with the holder; replaced by acquiring again
	Wait    int64
}

func (AcquirePermit) kind() byte { return 8 }

func (op AcquirePermit) apply(s *State, at At) Result { return s.acquirePermit(at, op) }

func (op AcquirePermit) fields(c *codec.Codec) AcquirePermit {
	op.Kind.fields(c)
	c.String(&op.Name)
	c.String(&op.Session)
	c.Uint32(&op.Limit)
	c.Bytes(&op.Value)
	c.Int64(&op.Wait)
	return op
}

// MaxPermitValue bounds AcquirePermit.Value, in bytes.
const MaxPermitValue = 4096

// ReleasePermit gives a permit back; the next in the queue has it in the same operation. OK is false
// if the session does not hold one, or (Index not 0) not by this acquisition: nothing changes then.
type ReleasePermit struct {
	Kind    Kind
	Name    string
	Session string
	Index   Index
}

func (ReleasePermit) kind() byte { return 9 }

func (op ReleasePermit) apply(s *State, at At) Result { return s.releasePermit(at, op) }

func (op ReleasePermit) fields(c *codec.Codec) ReleasePermit {
	op.Kind.fields(c)
	c.String(&op.Name)
	c.String(&op.Session)
	codec.Uint(c, &op.Index)
	return op
}

// LeaveQueue stops waiting. OK says that the session holds a permit afterwards: who holds one by now
// keeps it, with Result.Fence, unless Release is set: then it is given back, for nobody is there to use
// it.
type LeaveQueue struct {
	Kind    Kind
	Name    string
	Session string
	Release bool
}

func (LeaveQueue) kind() byte { return 10 }

func (op LeaveQueue) apply(s *State, at At) Result { return s.leaveQueue(at, op) }

func (op LeaveQueue) fields(c *codec.Codec) LeaveQueue {
	op.Kind.fields(c)
	c.String(&op.Name)
	c.String(&op.Session)
	c.Bool(&op.Release)
	return op
}

// Bounds of what is read (Entry.Weight, in bytes): by a request that only reads, by a transaction that also
// writes, and by those of one batch together; and of what of it is remembered with the answer to an operation, in
// case it is asked for again.
const (
	MaxRead      = 64 << 20
	MaxTxnRead   = 8 << 20
	MaxBatchRead = 64 << 20
	MaxKeptRead  = 64 << 10
)

// Excess says that what a transaction reads was too much.
type Excess uint8

// The kinds of Excess. Never renumber one.
const (
	NoExcess  Excess = iota
	TooLarge         // it would read more than MaxTxnRead: it was not performed
	TooBusy          // with those of its batch it would read more than MaxBatchRead: it was not performed, and may be tried again
	Forgotten        // it was performed before, and what it read then was not kept
)

// Once performs an operation unless one with the same key was performed within OnceFor: then it
// answers as that one did (but for Result.Index, which is 0 then: nothing changes again), and another
// operation under the same key is refused. The id of a CreateSession may differ.
type Once struct {
	Key string // from Idempotency-Key, at most MaxOnceKey bytes
	Op  Op     // not a Once
}

func (Once) kind() byte { return 11 }

func (op Once) apply(s *State, at At) Result { return s.once(at, op) }

func (op Once) fields(c *codec.Codec) Once {
	c.String(&op.Key)
	walk(c, &simple, &op.Op) // not a Once
	return op
}

// Bounds of Once: how long its answers are remembered (ms of lease clock), how many at most and of how many
// bytes together (the oldest go first), and the length of a key in bytes. What was read is remembered up to
// MaxKeptRead only: a transaction that read more is answered Forgotten when it is repeated.
const (
	OnceFor    = 10 * 60 * 1000
	OnceLimit  = 100_000
	OnceBytes  = 64 << 20
	MaxOnceKey = 255
)

// Result is the answer to one operation.
type Result struct {
	OK bool // what was asked for is so; false is an answer, not an error
	// Refusal says why the operation could not be tried, in the words of Consul's API: its callers'
	// libraries show it. OK is false then, and nothing changed.
	Refusal string
	Index   Index // taken by the operation; 0: it changed nothing
	// Fence is the token: of the key's or permit's acquisition that holds after an Acquire, Set, CAS,
	// AcquirePermit or LeaveQueue (of permits the session's own); 0: there is none. Where a Fence did not
	// hold: that of who holds now.
	Fence   Index
	Entries []*Entry   // Txn: one per result of Consul's API, in order; nil unless OK. Without Value where that says null.
	Errors  []TxnError // Txn: why it failed, in the order of the operations
	Session *Session   // CreateSession, RenewSession: the session
	Place   int        // AcquirePermit: place in the queue, from 1; 0: not in it
	Limit   uint32     // AcquirePermit: the semaphore's limit
	Excess  Excess     // Txn: it would have read, or has read, too much; there are no Entries then
}

// Fields walks a result. It begins with a number that says what it has: a write's is one byte and its index.
func (r *Result) Fields(c *codec.Codec) {
	has := c.Mask(r.has(), 10, "result of coordination")
	if c.Reading() {
		r.OK = has&1 != 0
	}
	if has&2 != 0 {
		codec.Uint(c, &r.Index)
	}
	if has&4 != 0 {
		codec.Uint(c, &r.Fence)
	}
	if has&8 != 0 {
		codec.List(c, &r.Entries, 8, codec.Each((*Entry).Fields))
	}
	if has&16 != 0 {
		codec.List(c, &r.Errors, 2, (*TxnError).fields)
	}
	if has&32 != 0 {
		codec.Ptr(c, &r.Session).fields(c)
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
		codec.Enum(c, &r.Excess, Forgotten, "excess")
	}
	c.Confirm(r.has() == has)
}

// has says which fields follow.
func (r *Result) has() uint64 {
	return codec.Bits(r.OK, r.Index != 0, r.Fence != 0, len(r.Entries) > 0, len(r.Errors) > 0,
		r.Session != nil, r.Place != 0, r.Limit != 0, r.Refusal != "", r.Excess != NoExcess)
}

// Weight is what the entries in a result take, in bytes.
func (r Result) Weight() (bytes int) {
	for _, e := range r.Entries {
		bytes += e.Weight()
	}
	return bytes
}

// Kept is the result as it is remembered: without the entries, if they take more than some bytes.
func (r Result) Kept(bytes int) Result {
	if r.Weight() > bytes {
		r.Entries, r.Excess = nil, Forgotten
	}
	return r
}

// TxnError is why one operation of a transaction failed.
type TxnError struct {
	OpIndex int    // from 0
	What    string // in Consul's words
}

func (e *TxnError) fields(c *codec.Codec) {
	c.Int(&e.OpIndex)
	c.String(&e.What)
}
