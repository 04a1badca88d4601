package kv

import (
	"cmp"
	"iter"
	"strings"

	"github.com/tidwall/btree"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// keyTable is what a View shows of keys. Its trees are copy-on-write: share costs a few allocations, and
// what is shared is never written again.
type keyTable struct {
	pairs     *btree.Map[string, *Entry]
	held      *btree.BTreeG[held] // keys by holder
	index     Index               // of the last write or deletion of a key
	bytes     int                 // of all pairs, see Entry.Weight
	deletions deletions
	delays    delays
}

// held says that a session holds a key.
type held struct{ session, key string }

func compareHeld(a, b held) int {
	return cmp.Or(strings.Compare(a.session, b.session), strings.Compare(a.key, b.key))
}

func newKeyTable() keyTable {
	return keyTable{
		pairs:     btree.NewMap[string, *Entry](order.Degree),
		held:      order.NewTree(compareHeld),
		deletions: newDeletions(),
		delays:    newDelays(),
	}
}

// share returns a copy for views.
func (t *keyTable) share() keyTable {
	c := *t
	c.pairs, c.held = t.pairs.Copy(), t.held.Copy()
	c.deletions, c.delays = t.deletions.share(), t.delays.share()
	return c
}

// save returns what the table can be put back to after operations on keys. They change no lock-delays.
func (t *keyTable) save() keyTable {
	c := *t
	c.pairs, c.held, c.deletions = t.pairs.Copy(), t.held.Copy(), t.deletions.copy()
	return c
}

// replace puts a pair in the place of old; nil: its key was absent.
func (t *keyTable) replace(old, e *Entry) {
	t.pairs.Set(e.Key, e)
	t.bytes += e.Weight()
	if old != nil {
		t.bytes -= old.Weight()
	} else {
		t.deletions.drop(e.Key)
	}
	t.hold(old, e)
}

// remove takes a pair out, and records its deletion.
func (t *keyTable) remove(e *Entry, index Index, lease int64) {
	t.pairs.Delete(e.Key)
	t.bytes -= e.Weight()
	t.hold(e, nil)
	t.deletions.record(Deletion{Key: e.Key, Index: index, At: lease, Fence: e.Fence})
}

// hold enters the holder of a key: e, a pair of it, comes in the place of old. Either may be nil.
func (t *keyTable) hold(old, e *Entry) {
	before, now := holder(old), holder(e)
	if before == now {
		return
	}
	if before != "" {
		t.held.Delete(held{before, old.Key})
	}
	if now != "" {
		t.held.Set(held{now, e.Key})
	}
}

// heldBy yields the keys that a session holds, in byte order.
func (t *keyTable) heldBy(session string) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		t.held.Ascend(held{session: session}, func(h held) bool {
			if h.session != session {
				return false
			}
			e, _ := t.pairs.Get(h.key)
			return yield(e)
		})
	}
}

// holder is the session that holds a key, and its token; 0: no session does.
func (t *keyTable) holder(key string) (session string, token Index) {
	if e, ok := t.pairs.Get(key); ok && e.Session != "" {
		return e.Session, e.Fence
	}
	return "", 0
}

// under yields the pairs whose keys begin with prefix, in byte order.
func (t *keyTable) under(prefix string) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		t.pairs.Ascend(prefix, func(key string, e *Entry) bool {
			return strings.HasPrefix(key, prefix) && yield(e)
		})
	}
}

// absentIndex is the index of all keys, and of one that is absent.
func (t *keyTable) absentIndex() Index { return max(t.index, 1) }

// prefixIndex is the index of a prefix, whose newest pair has the given ModifyIndex; 0: it has none.
// Among the records of deletions that were dropped may have been one under the prefix, so the newest of them
// is the least that it can be: it must not go back.
func (t *keyTable) prefixIndex(prefix string, newest Index) Index {
	if prefix == "" {
		return t.absentIndex()
	}
	t.deletions.byKey.Ascend(prefix, func(key string, d Deletion) bool {
		if !strings.HasPrefix(key, prefix) {
			return false
		}
		newest = max(newest, d.Index)
		return true
	})
	if newest == 0 {
		return t.absentIndex()
	}
	return max(newest, t.deletions.pruned)
}
