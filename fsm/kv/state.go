package kv

import (
	"iter"
	"strings"

	"github.com/tidwall/btree"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Catalog is what sessions need to know of nodes and checks. The state machine asks it while it
// applies an operation, so it must answer from replicated state.
type Catalog interface {
	// HasNode says whether a node is registered; "" is the cluster's own, which always is.
	HasNode(node string) bool
	// Check finds a check of a node or of a service on it.
	Check(node, id string) (critical, known bool)
}

// CheckRef names a check.
type CheckRef struct{ Node, ID string }

// State is the mutable state. It belongs to one goroutine at a time.
type State struct {
	catalog     Catalog
	index       Index // of the last change
	lease       int64 // lease clock, ms
	epoch       Epoch
	established int64 // lease clock when the epoch was established, ms
	tables      tables
	permits     permitTables
	expiry      order.Ends // of the sessions with a TTL, by slot
	slots       slots
	links       links
	delayEnds   order.Schedule[string] // the lock-delays of keys
	answers     answers
	touched     []Topic // since the last call of Touched
	shown       *shown  // what views get; nil if it changed since it was made
}

// shown is what views share. It is never written again.
type shown struct {
	tables  tables
	permits permitTables
}

// New returns an empty state.
func New(catalog Catalog) *State {
	return &State{
		catalog:   catalog,
		tables:    newTables(),
		permits:   newPermitTables(),
		links:     newLinks(),
		delayEnds: order.NewSchedule(strings.Compare),
		answers:   newAnswers(),
	}
}

// Apply performs one operation. It never fails: what cannot be done is a Result. If Result.Index is
// not 0 it is at.Index, which the operation has taken.
func (s *State) Apply(at At, op Op) Result {
	s.Advance(at.Lease)
	at.Lease = s.lease // which does not go back
	before := s.index
	res := op.apply(s, at)
	if s.index != before {
		res.Index = at.Index
	}
	return res
}

// Advance moves the time without an operation (lease clock, ms; it never goes back), and forgets what
// has become too old: answers of Once, records of deletions.
func (s *State) Advance(lease int64) {
	if lease <= s.lease {
		return
	}
	s.lease = lease
	s.answers.prune(lease)
	if s.tables.pruneDeletions(lease) {
		s.shown = nil
	}
}

// Establish starts an epoch: only its ExpireSession and EndDelay take effect from now on, and grace
// begins.
func (s *State) Establish(epoch Epoch, lease int64) {
	s.Advance(lease)
	s.epoch = epoch
	s.established = s.lease
}

// change notes that the operation changes what readers see, and whose watchers are to be woken.
func (s *State) change(at At, t Topic) {
	s.index = at.Index
	s.shown = nil
	s.touched = append(s.touched, t)
}

// session finds a session. The case of the id does not matter.
func (s *State) session(id string) *Session {
	if l, ok := s.tables.sessions.Get(strings.ToLower(id)); ok {
		return l.session
	}
	return nil
}

// View returns the present state for readers: a few small allocations after a change.
func (s *State) View() *View {
	return &View{index: s.index, lease: s.lease, established: s.established, bytes: s.tables.bytes + s.answers.bytes + s.permits.bytes, shown: s.share()}
}

func (s *State) share() *shown {
	if s.shown == nil {
		s.shown = &shown{tables: s.tables.share(), permits: s.permits.share()}
	}
	return s.shown
}

// Touched returns whose watchers are to be woken by what was applied since the last call: keys (as
// KeyTopic), locks and semaphores, sessions that were given a permit (PermitTopic), and SessionsTopic.
func (s *State) Touched() []Topic {
	touched := s.touched
	s.touched = nil
	return touched
}

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
