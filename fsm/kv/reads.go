package kv

import (
	"fmt"
	"iter"
	"strings"
)

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
