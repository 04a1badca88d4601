package kv

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// failure says why something was not done to a key; the zero failure: it was.
type failure struct {
	what    string // in Consul's words
	refused bool   // it could not be tried; otherwise false is the answer
}

func refuse(format string, args ...any) failure {
	return failure{what: fmt.Sprintf(format, args...), refused: true}
}

func answerNo(format string, args ...any) failure {
	return failure{what: fmt.Sprintf(format, args...)}
}

// noKey is what an operation without a key is told. Nothing but a DeleteTree makes sense without.
const noKey = "Must provide key"

func (o KeyOp) lacksKey() bool { return o.Key == "" && o.Verb != DeleteTree }

// keyOp performs an operation that is no part of a transaction.
func (s *State) keyOp(at At, op KeyOp) Result {
	if op.lacksKey() {
		return Result{Refusal: noKey}
	}
	if !op.Verb.Writes() {
		left := MaxTxnRead
		_, what := s.tables.read(op, &left)
		return Result{OK: what == ""}
	}
	if holds, now := s.fenced(op); !holds {
		return Result{Fence: now}
	}
	f := s.write(at, op)
	if f.refused {
		return Result{Refusal: f.what}
	}
	return Result{OK: f.what == "", Fence: s.tables.fence(op.Key)}
}

// fenced says whether an operation's Fence holds, if it has one, and whose does now.
func (s *State) fenced(op KeyOp) (holds bool, now Index) {
	if op.Fence == nil {
		return true, 0
	}
	return s.fenceHolds(op.Fence)
}

// fence is the token of the acquisition by which a key is held; 0: it is not.
func (t *tables) fence(key string) Index {
	if e, ok := t.entries.Get(key); ok && e.Session != "" {
		return e.Fence
	}
	return 0
}

// write performs a verb that writes.
func (s *State) write(at At, op KeyOp) failure {
	old, _ := s.tables.entries.Get(op.Key)
	switch op.Verb {
	case Set:
		s.put(at, op, old, holder(old))
	case CAS:
		if modified(old) != op.Index {
			return answerNo("failed to set key %q, index is stale", op.Key)
		}
		s.put(at, op, old, holder(old))
	case Acquire:
		return s.acquire(at, op, old)
	case Release:
		return s.release(at, op, old)
	case Delete:
		s.remove(at, old)
	case DeleteCAS:
		if old != nil && old.ModifyIndex != op.Index {
			return answerNo("failed to delete key %q, index is stale", op.Key)
		}
		s.remove(at, old)
	case DeleteTree:
		for _, e := range slices.Collect(s.tables.under(op.Key)) {
			s.remove(at, e)
		}
	default:
		panic(fmt.Sprintf("kv: no rule for verb %d", op.Verb))
	}
	return failure{}
}

// holder is who holds a key; "": nobody, or it is absent.
func holder(e *Entry) string {
	if e == nil {
		return ""
	}
	return e.Session
}

// modified is a key's ModifyIndex; 0: it is absent.
func modified(e *Entry) Index {
	if e == nil {
		return 0
	}
	return e.ModifyIndex
}

func (s *State) acquire(at At, op KeyOp, old *Entry) failure {
	if op.Session == "" {
		return refuse(missingSession)
	}
	session := s.session(op.Session)
	switch {
	case session == nil:
		return refuse("invalid session %q", op.Session)
	case s.delayed(op.Key):
		return delayRefusal(op.Key)
	case holder(old) != "" && old.Session != session.ID:
		return answerNo("failed to lock key %q, lock is already held", op.Key)
	}
	s.put(at, op, old, session.ID)
	return failure{}
}

func delayRefusal(key string) failure {
	return answerNo("failed to lock key %q due to lock delay", key)
}

func (s *State) release(at At, op KeyOp, old *Entry) failure {
	if op.Session == "" {
		return refuse(missingSession)
	}
	if holder(old) != strings.ToLower(op.Session) {
		return answerNo("failed to unlock key %q, lock isn't held, or is held by another session", op.Key)
	}
	s.put(at, op, old, "")
	return failure{}
}

// put writes value and flags, and who holds the key from now on. What would change nothing is no change.
func (s *State) put(at At, op KeyOp, old *Entry, session string) {
	if old != nil && old.Session == session && old.Flags == op.Flags && bytes.Equal(old.Value, op.Value) {
		return
	}
	e := s.successor(at, op.Key, old)
	e.Value, e.Flags, e.Session = cloneBytes(op.Value), op.Flags, session
	if session != "" && session != holder(old) {
		e.LockIndex++
		e.Fence = at.Index
	}
	s.enter(at, old, e)
}

// successor returns what follows on an entry, or on the deletion of its key, without the contents. A
// token never goes back, also when the key was deleted in between.
func (s *State) successor(at At, key string, old *Entry) *Entry {
	if old != nil {
		e := *old
		e.ModifyIndex = at.Index
		return &e
	}
	deleted, _ := s.tables.deletions.Get(key)
	// What is kept must not keep alive the log entry that it came in, here and in cloneBytes.
	return &Entry{Key: strings.Clone(key), CreateIndex: at.Index, ModifyIndex: at.Index, Fence: deleted.Fence}
}

// cloneBytes copies a value; an empty one is nil.
func cloneBytes(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return bytes.Clone(b)
}

// free takes a key from its holder, whose session ended.
func (s *State) free(at At, old *Entry) {
	e := s.successor(at, old.Key, old)
	e.Session = ""
	s.enter(at, old, e)
}

// enter puts e in the place of old; nil: the key was absent.
func (s *State) enter(at At, old, e *Entry) {
	s.tables.setEntry(e)
	s.tables.hold(old, e)
	if old == nil {
		s.tables.forget(e.Key)
	}
	s.touchKey(at, e.Key)
}

// remove deletes an entry; nil: there is none.
func (s *State) remove(at At, e *Entry) {
	if e == nil {
		return
	}
	s.tables.deleteEntry(e.Key)
	s.tables.hold(e, nil)
	s.tables.record(Deletion{Key: e.Key, Index: at.Index, At: at.Lease, Fence: e.Fence})
	s.touchKey(at, e.Key)
}

func (s *State) touchKey(at At, key string) {
	s.tables.keys = at.Index
	s.change(at, Topic{Kind: KeyTopic, Name: key})
}

// Records of deletions are kept for deletionsFor (ms of lease clock), and deletionsLimit at most.
const (
	deletionsFor   = 24 * 60 * 60 * 1000
	deletionsLimit = 100_000
)

// deletionWeight is what a Deletion takes beside its key, in bytes, about: it stands in two trees.
const deletionWeight = 128

func (d Deletion) weight() int { return deletionWeight + len(d.Key) }

// aged is a deletion in the order of age.
type aged struct {
	index Index
	key   string
}

func compareAged(a, b aged) int {
	return cmp.Or(cmp.Compare(a.index, b.index), strings.Compare(a.key, b.key))
}

// record notes a deletion, and forgets the oldest one if there are too many.
func (t *tables) record(d Deletion) {
	t.setDeletion(d)
	t.aged.Set(aged{d.Index, d.Key})
	if t.aged.Len() > deletionsLimit {
		oldest, _ := t.aged.Min()
		t.prune(oldest)
	}
}

// forget drops the record of a key that is there again: its entry has a newer index.
func (t *tables) forget(key string) {
	if d, ok := t.deleteDeletion(key); ok {
		t.aged.Delete(aged{d.Index, d.Key})
	}
}

// prune drops a record that was the last to say that its key's prefixes changed: the floor of their
// indexes rises to it.
func (t *tables) prune(a aged) {
	t.forget(a.key)
	t.pruned = max(t.pruned, a.index)
}

// pruneDeletions drops the records that are too old at a moment (lease clock, ms), and says whether
// there were any.
func (t *tables) pruneDeletions(lease int64) (any bool) {
	for {
		oldest, ok := t.aged.Min()
		if !ok {
			return any
		}
		if d, _ := t.deletions.Get(oldest.key); lease-d.At < deletionsFor {
			return any
		}
		t.prune(oldest)
		any = true
	}
}

// under yields the entries whose keys begin with prefix, in byte order.
func (t *tables) under(prefix string) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		t.entries.Ascend(prefix, func(key string, e *Entry) bool {
			return strings.HasPrefix(key, prefix) && yield(e)
		})
	}
}

// keysIndex is the index of all keys, and of one that is absent.
func (t *tables) keysIndex() Index { return max(t.keys, 1) }

// prefixIndex is the index of a prefix, whose newest entry has the given ModifyIndex; 0: it has none.
// Among the records of deletions that are forgotten may have been one under the prefix, so the newest of them
// is the least that it can be: it must not go back.
func (t *tables) prefixIndex(prefix string, newest Index) Index {
	if prefix == "" {
		return t.keysIndex()
	}
	t.deletions.Ascend(prefix, func(key string, d Deletion) bool {
		if !strings.HasPrefix(key, prefix) {
			return false
		}
		newest = max(newest, d.Index)
		return true
	})
	if newest == 0 {
		return t.keysIndex()
	}
	return max(newest, t.pruned)
}

// read performs a verb that does not write. what says in Consul's words why it failed; "": it did not. left is
// how many bytes may be read: it ends where they become negative.
func (t *tables) read(op KeyOp, left *int) (entries []*Entry, what string) {
	entries, what = t.find(op, left)
	if op.Verb != GetTree {
		*left -= Result{Entries: entries}.Weight()
	}
	return entries, what
}

// find is read, which counts what it reads of a tree only: that may be everything.
func (t *tables) find(op KeyOp, left *int) (entries []*Entry, what string) {
	e, ok := t.entries.Get(op.Key)
	switch op.Verb {
	case Get:
		if !ok {
			return nil, fmt.Sprintf("key %q doesn't exist", op.Key)
		}
		return []*Entry{e}, ""
	case GetOrEmpty:
		if !ok {
			e = &Entry{Key: strings.Clone(op.Key)}
		}
		return []*Entry{e}, ""
	case GetTree:
		for e := range t.under(op.Key) {
			if *left -= e.Weight(); *left < 0 {
				return nil, ""
			}
			entries = append(entries, e)
		}
		return entries, ""
	case CheckIndex, CheckSession:
		if what := check(e, op); what != "" {
			return nil, what
		}
		return []*Entry{e.withoutValue()}, ""
	case CheckNotExists:
		if ok {
			return nil, fmt.Sprintf("key %q exists", op.Key)
		}
		return nil, ""
	default:
		panic(fmt.Sprintf("kv: no rule for reading by verb %d", op.Verb))
	}
}

// check says why a check of an entry fails; "": it does not. A nil entry is absent.
func check(e *Entry, op KeyOp) (what string) {
	switch {
	case e == nil && op.Verb == CheckIndex:
		return fmt.Sprintf("failed to check index, key %q doesn't exist", op.Key)
	case e == nil:
		return fmt.Sprintf("failed to check session, key %q doesn't exist", op.Key)
	case op.Verb == CheckIndex && e.ModifyIndex != op.Index:
		return fmt.Sprintf("failed index check for key %q, current modify index %d != %d", op.Key, e.ModifyIndex, op.Index)
	case op.Verb == CheckSession && e.Session != strings.ToLower(op.Session):
		return fmt.Sprintf("failed session check for key %q, current session %q != %q", op.Key, e.Session, op.Session)
	}
	return ""
}

// withoutValue returns a copy as transactions answer where the caller knows the value.
func (e *Entry) withoutValue() *Entry {
	c := *e
	c.Value = nil
	return &c
}
