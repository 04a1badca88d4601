package kv

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// MaxEnding is how much may end in one operation: keys and permits that one session holds, and its places in queues; and
// all of these together, sessions counted, of the sessions that depend on one check or node. What is beyond it since a time
// before level 2 stays, and ends as a whole.
//
// The end of a session stays one operation so: a split one would show readers a session that is gone and holds keys, and
// would give what it held to others before its lock-delays are set.
const MaxEnding = 2000

// MaxQueue is how many sessions may wait for one lock or semaphore: one operation drops all whose time has passed.
const MaxQueue = 5000

// MaxDeleted is how many keys go with one DeleteTree, where more are deleted before it, and how many one transaction may
// delete by prefixes.
const MaxDeleted = 10_000

// Figures is what was observed of acquisitions and new sessions since the program was started. It is no part of the state,
// and decides nothing. It is live for views.
type Figures struct {
	// Refused and WouldRefuse count what is beyond MaxEnding or MaxQueue, by whether the level refuses it.
	Refused, WouldRefuse atomic.Int64
}

// Figures returns what was observed of bounds.
func (v *View) Figures() *Figures { return v.shown.figures }

// bounded reports whether the bounds hold that level 2 brought.
func (s *State) bounded() bool { return s.level >= 2 }

// count adds to what a session holds or waits for. One that ends is not counted with any more.
func (s *State) count(session string, by int) {
	if l := s.sessions.find(session); l != nil {
		s.sessions.addHeld(l, by)
	}
}

func (t *sessionTable) addHeld(l *living, by int) {
	l.held += by
	t.addLoad(l.session, by)
	if t.undo != nil {
		t.undo.Add(func() {
			l.held -= by
			t.addLoad(l.session, -by)
		})
	}
}

// addLoad adds to what ends with each check, and with the node, of a session.
func (t *sessionEnds) addLoad(s *Session, by int) {
	for ref := range s.refs() {
		if !ref.stays() {
			if t.load[ref] += by; t.load[ref] == 0 {
				delete(t.load, ref)
			}
		}
	}
}

// stays reports whether nobody but who may write nodes can take a check or node away: the logical node, and its own check,
// on which all sessions depend that name none.
func (r CheckRef) stays() bool { return r.Node == "" && (r.ID == "" || r.ID == serfHealth) }

const serfHealth = "serfHealth"

// crowded returns why a session may hold or wait for no more; "": it may. held is what it has, 0 for a new one.
func (s *State) crowded(session *Session, held int) string {
	if held >= MaxEnding {
		return s.beyond("session %q has %d keys, locks, semaphores and places in queues, and may have no more: release some, or use a further session", session.ID, MaxEnding)
	}
	for ref := range session.refs() {
		if s.sessions.load[ref] >= MaxEnding {
			what := fmt.Sprintf("check %q of node %q", ref.ID, ref.Node)
			if ref.ID == "" {
				what = fmt.Sprintf("node %q", ref.Node)
			}
			return s.beyond("%s has %d sessions and what these hold, and may have no more: they would all end at once", what, MaxEnding)
		}
	}
	return ""
}

// beyond counts something beyond a bound, and words its refusal; "": the level does not refuse it.
func (s *State) beyond(format string, args ...any) string {
	if !s.bounded() {
		s.figures.WouldRefuse.Add(1)
		return ""
	}
	s.figures.Refused.Add(1)
	return fmt.Sprintf(format, args...)
}

// spend takes what an operation of a transaction deletes or ends from what the transaction may, and says why it cannot.
func (t *txnRun) spend(items int) (what string) {
	if t.items += items; t.items > MaxDeleted && t.state.bounded() {
		t.spent = true
		return fmt.Sprintf("a transaction may delete %d keys by prefixes and by the ends of sessions; delete some before it", MaxDeleted)
	}
	return ""
}

// spendOn is spend for an operation on a key.
func (t *txnRun) spendOn(op KeyOp) (what string) {
	if op.Verb != DeleteTree || !t.state.bounded() {
		return ""
	}
	return t.spend(t.state.keys.countUnder(op.Key, MaxDeleted-t.items))
}

// countUnder counts the keys that begin with a prefix, up to one more than most.
func (t *keyTable) countUnder(prefix string, most int) (n int) {
	for range t.under(prefix) {
		if n++; n > most {
			break
		}
	}
	return n
}

// Oldest returns the keys that begin with a prefix, by their last changes, oldest first, without the newest ones of which
// one DeleteTree removes all.
func (v *View) Oldest(prefix string) (keys []string) {
	pairs := slices.SortedFunc(v.shown.keys.under(prefix), func(a, b *Pair) int {
		return cmp.Or(cmp.Compare(a.ModifyIndex, b.ModifyIndex), strings.Compare(a.Key, b.Key))
	})
	for _, p := range pairs[:max(0, len(pairs)-MaxDeleted)] {
		keys = append(keys, p.Key)
	}
	return keys
}

// maxChanges is how many changes of nodes and services a transaction may make.
func (s *State) maxChanges() int {
	if s.bounded() {
		return registry.MaxRemoved
	}
	return MaxTxnChanges
}
