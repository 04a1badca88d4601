package kv

import (
	"strings"

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
