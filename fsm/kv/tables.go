package kv

import (
	"iter"
	"strings"

	"github.com/tidwall/btree"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// tables is what a View shows of keys and sessions. Its trees are copy-on-write: share costs a few
// allocations, and what is shared is never written again.
type tables struct {
	entries   *btree.Map[string, *Entry]
	held      *btree.BTreeG[held] // keys by holder
	deletions *btree.Map[string, Deletion]
	aged      *btree.BTreeG[aged] // the deletions, oldest first; views have none
	pruned    Index               // of the newest deletion that was forgotten
	keys      Index               // of the last write or deletion of a key

	bytes int // of all entries, deletions, sessions and delays, see their weights

	sessions      *btree.Map[string, *living]
	sessionsIndex Index                     // of the last creation or end of a session
	delays        *btree.Map[string, int64] // of keys: until when (lease clock, ms)
}

// held says that a session holds a key.
type held struct{ session, key string }

func newTables() tables {
	return tables{
		entries:   btree.NewMap[string, *Entry](order.Degree),
		held:      order.NewTree(compareHeld),
		deletions: btree.NewMap[string, Deletion](order.Degree),
		aged:      order.NewTree(compareAged),
		sessions:  btree.NewMap[string, *living](order.Degree),
		delays:    btree.NewMap[string, int64](order.Degree),
	}
}

func compareHeld(a, b held) int {
	if c := strings.Compare(a.session, b.session); c != 0 {
		return c
	}
	return strings.Compare(a.key, b.key)
}

// share returns a copy for views.
func (t *tables) share() tables {
	c := *t
	c.entries, c.held, c.deletions = t.entries.Copy(), t.held.Copy(), t.deletions.Copy()
	c.sessions, c.delays = t.sessions.Copy(), t.delays.Copy()
	c.aged = nil
	return c
}

// setEntry, deleteEntry, setDeletion, deleteDeletion, setSession and deleteSession write a tree and count its bytes.
func (t *tables) setEntry(e *Entry) {
	if old, ok := t.entries.Set(e.Key, e); ok {
		t.bytes -= old.Weight()
	}
	t.bytes += e.Weight()
}

func (t *tables) deleteEntry(key string) {
	if old, ok := t.entries.Delete(key); ok {
		t.bytes -= old.Weight()
	}
}

func (t *tables) setDeletion(d Deletion) {
	if _, ok := t.deletions.Set(d.Key, d); !ok {
		t.bytes += d.weight()
	}
}

func (t *tables) deleteDeletion(key string) (d Deletion, ok bool) {
	if d, ok = t.deletions.Delete(key); ok {
		t.bytes -= d.weight()
	}
	return d, ok
}

func (t *tables) setSession(l *living) {
	if old, ok := t.sessions.Set(l.session.ID, l); ok {
		t.bytes -= old.session.weight()
	}
	t.bytes += l.session.weight()
}

func (t *tables) deleteSession(id string) {
	if old, ok := t.sessions.Delete(id); ok {
		t.bytes -= old.session.weight()
	}
}

// heldBy yields the keys that a session holds, in byte order.
func (t *tables) heldBy(session string) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		t.held.Ascend(held{session: session}, func(h held) bool {
			if h.session != session {
				return false
			}
			e, _ := t.entries.Get(h.key)
			return yield(e)
		})
	}
}

// hold notes who holds a key: e, an entry of it, comes in the place of old. Either may be nil.
func (t *tables) hold(old, e *Entry) {
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
