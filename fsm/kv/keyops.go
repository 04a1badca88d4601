package kv

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Verb is the verb of a KeyOp, in the words of Consul's transactions.
type Verb uint8

// The verbs. Never renumber one: they are part of the log's format.
const (
	Set            Verb = iota // set value and flags; the holder stays
	CAS                        // set if ModifyIndex is Index; Index 0: if the key is absent
	Acquire                    // "lock": set, and make Session the holder
	Release                    // "unlock": set, and remove the holder
	Get                        // the pair, which must exist
	GetOrEmpty                 // the pair, or an empty one
	GetTree                    // all pairs whose keys begin with Key
	CheckIndex                 // fail unless ModifyIndex is Index
	CheckSession               // fail unless Session holds the key
	CheckNotExists             // fail if the key exists
	Delete                     // remove, held or not
	DeleteCAS                  // remove if ModifyIndex is Index; removing an absent key succeeds
	DeleteTree                 // remove all keys that begin with Key; "": all
)

// Writes reports whether a verb may change something.
func (v Verb) Writes() bool {
	switch v {
	case Get, GetOrEmpty, GetTree, CheckIndex, CheckSession, CheckNotExists:
		return false
	}
	return true
}

// MaxValue bounds the value of a key, in bytes. The interfaces for clients enforce it.
const MaxValue = 512 << 10

// KeyOp does one thing to one key, or to all keys with a prefix. Get and the checks are for transactions; reads on
// their own use a View.
type KeyOp struct {
	Verb    Verb
	Key     string
	Value   []byte // Set, CAS, Acquire, Release; immutable
	Flags   uint64 // the same
	Index   Index  // CAS, CheckIndex, DeleteCAS
	Session string // Acquire, Release, CheckSession; case does not matter
	// Fence, if not nil, must hold, or a verb that writes changes nothing: Result.OK is false. It may name another
	// key, or a lock or semaphore: what is written is often not what was locked.
	Fence *Fence
}

func (KeyOp) kind() byte { return 1 }

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

// apply performs an operation outside transactions.
func (op KeyOp) apply(s *State, at At) Result {
	if op.lacksKey() {
		return Result{Refusal: noKey}
	}
	if !op.Verb.Writes() {
		left := MaxTxnRead
		_, what := op.read(&s.keys, &left)
		return Result{OK: what == ""}
	}
	if holds, now := op.fenced(s); !holds {
		return Result{Fence: now}
	}
	if op.Verb == DeleteTree && s.bounded() && s.keys.countUnder(op.Key, MaxDeleted) > MaxDeleted {
		return Result{Excess: Crowded}
	}
	f := op.write(s, at)
	if f.refused {
		return Result{Refusal: f.what}
	}
	_, token := s.keys.holder(op.Key)
	return Result{OK: f.what == "", Fence: token}
}

// lacksKey reports whether an operation has no key although it needs one: only a DeleteTree makes sense without.
func (op KeyOp) lacksKey() bool { return op.Key == "" && op.Verb != DeleteTree }

// fenced reports whether an operation's Fence holds, if it has one; now is the token that holds now.
func (op KeyOp) fenced(s *State) (holds bool, now Index) {
	if op.Fence == nil {
		return true, 0
	}
	return s.fenceHolds(*op.Fence, "")
}

// failure says why something was not done to a key. The zero failure means that it was done.
type failure struct {
	what    string // in Consul's words
	refused bool   // it could not be tried; otherwise the result is false
}

func refuse(format string, args ...any) failure {
	return failure{what: fmt.Sprintf(format, args...), refused: true}
}

func fail(format string, args ...any) failure {
	return failure{what: fmt.Sprintf(format, args...)}
}

func delayRefusal(key string) failure {
	return fail("failed to lock key %q due to lock delay", key)
}

// write performs a verb that writes.
func (op KeyOp) write(s *State, at At) failure {
	old, _ := s.keys.pairs.Get(op.Key)
	switch op.Verb {
	case Set:
		op.set(s, at, old, holder(old))
	case CAS:
		if modified(old) != op.Index {
			return fail("failed to set key %q, index is stale", op.Key)
		}
		op.set(s, at, old, holder(old))
	case Acquire:
		return op.acquire(s, at, old)
	case Release:
		return op.release(s, at, old)
	case Delete:
		s.removeKey(at, old)
	case DeleteCAS:
		if old != nil && old.ModifyIndex != op.Index {
			return fail("failed to delete key %q, index is stale", op.Key)
		}
		s.removeKey(at, old)
	case DeleteTree:
		for _, p := range slices.Collect(s.keys.under(op.Key)) {
			s.removeKey(at, p)
		}
	default:
		panic(fmt.Sprintf("kv: no rule for verb %d", op.Verb))
	}
	return failure{}
}

func (op KeyOp) acquire(s *State, at At, old *Pair) failure {
	if op.Session == "" {
		return refuse(missingSession)
	}
	session := s.session(op.Session)
	switch {
	case session == nil:
		return refuse("invalid session %q", op.Session)
	case s.keys.delays.end(op.Key, s.lease) != 0:
		return delayRefusal(op.Key)
	case holder(old) != "" && old.Session != session.ID:
		return fail("failed to lock key %q, lock is already held", op.Key)
	}
	if holder(old) == "" {
		if what := s.crowded(session, s.sessions.find(session.ID).held); what != "" {
			return refuse("%s", what)
		}
	}
	op.set(s, at, old, session.ID)
	return failure{}
}

func (op KeyOp) release(s *State, at At, old *Pair) failure {
	if op.Session == "" {
		return refuse(missingSession)
	}
	if holder(old) != strings.ToLower(op.Session) {
		return fail("failed to unlock key %q, lock isn't held, or is held by another session", op.Key)
	}
	op.set(s, at, old, "")
	return failure{}
}

// set writes value and flags, and the session that holds the key from now on. Writing equal contents is not a change.
func (op KeyOp) set(s *State, at At, old *Pair, session string) {
	if old != nil && old.Session == session && old.Flags == op.Flags && bytes.Equal(old.Value, op.Value) {
		return
	}
	p := s.successor(at, op.Key, old)
	p.Value, p.Flags, p.Session = cloneBytes(op.Value), op.Flags, session
	if s.level >= registry.Level3 {
		p.By = at.By
	}
	if session != "" && session != holder(old) {
		p.LockIndex++
		p.Fence = at.Index
	}
	s.replaceKey(at, old, p)
}

// successor returns the pair that follows another, or the deletion of its key, without the contents. A token never
// goes back, even if the key was deleted in between.
func (s *State) successor(at At, key string, old *Pair) *Pair {
	if old != nil {
		p := *old
		p.ModifyIndex = at.Index
		return &p
	}
	deleted, _ := s.keys.deletions.byKey.Get(key)
	// A stored key must not keep alive the log entry that it came in; nor must a value, see cloneBytes.
	return &Pair{Key: strings.Clone(key), CreateIndex: at.Index, ModifyIndex: at.Index, Fence: deleted.Fence}
}

// replaceKey replaces old by p; old is nil if the key was absent.
func (s *State) replaceKey(at At, old, p *Pair) {
	s.keys.replace(old, p)
	s.uses.replace(old, p)
	if before, now := holder(old), holder(p); before != now {
		s.count(before, -1)
		s.count(now, 1)
	}
	s.changeKey(at, p.Key)
}

// removeKey deletes a pair, which may be nil.
func (s *State) removeKey(at At, p *Pair) {
	if p == nil {
		return
	}
	s.keys.remove(p, at.Index, at.Lease)
	s.uses.replace(p, nil)
	s.count(holder(p), -1)
	s.changeKey(at, p.Key)
}

func (s *State) changeKey(at At, key string) {
	s.keys.index = at.Index
	s.change(at, Topic{Kind: KeyTopic, Name: key})
}

// read performs a verb that does not write. what says in Consul's words why it failed, "" if it did not. left is how
// many bytes may be read; reading stops when it becomes negative.
func (op KeyOp) read(t *keyTable, left *int) (pairs []*Pair, what string) {
	pairs, what = op.find(t, left)
	if op.Verb != GetTree {
		*left -= Result{Pairs: pairs}.Weight()
	}
	return pairs, what
}

// find is the search in read. It counts only what it reads of a tree, which may be everything.
func (op KeyOp) find(t *keyTable, left *int) (pairs []*Pair, what string) {
	p, ok := t.pairs.Get(op.Key)
	switch op.Verb {
	case Get:
		if !ok {
			return nil, fmt.Sprintf("key %q doesn't exist", op.Key)
		}
		return []*Pair{p}, ""
	case GetOrEmpty:
		if !ok {
			p = &Pair{Key: strings.Clone(op.Key)}
		}
		return []*Pair{p}, ""
	case GetTree:
		for p := range t.under(op.Key) {
			if *left -= p.Weight(); *left < 0 {
				return nil, ""
			}
			pairs = append(pairs, p)
		}
		return pairs, ""
	case CheckIndex, CheckSession:
		if what := op.failedCheck(p); what != "" {
			return nil, what
		}
		return []*Pair{p.withoutValue()}, ""
	case CheckNotExists:
		if ok {
			return nil, fmt.Sprintf("key %q exists", op.Key)
		}
		return nil, ""
	default:
		panic(fmt.Sprintf("kv: no rule for reading by verb %d", op.Verb))
	}
}

// failedCheck returns why a check of a pair fails, or "". A nil pair is absent.
func (op KeyOp) failedCheck(p *Pair) (what string) {
	switch {
	case p == nil && op.Verb == CheckIndex:
		return fmt.Sprintf("failed to check index, key %q doesn't exist", op.Key)
	case p == nil:
		return fmt.Sprintf("failed to check session, key %q doesn't exist", op.Key)
	case op.Verb == CheckIndex && p.ModifyIndex != op.Index:
		return fmt.Sprintf("failed index check for key %q, current modify index %d != %d", op.Key, p.ModifyIndex, op.Index)
	case op.Verb == CheckSession && p.Session != strings.ToLower(op.Session):
		return fmt.Sprintf("failed session check for key %q, current session %q != %q", op.Key, p.Session, op.Session)
	}
	return ""
}
