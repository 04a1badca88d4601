package kv

import (
	"fmt"
	"sync/atomic"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/order"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// At is the moment at which an operation is applied.
type At struct {
	Index Index  // the one that the operation takes if it changes something
	Lease int64  // lease clock, ms
	Wall  int64  // ms since the epoch, for people
	Term  uint64 // Raft term of the log entry
	By    string // the client's principal; "" if nobody asked for one
	Read  int    // what the operations before it in its batch have read (Result.Weight)
}

// Op is one of the operations in Operations.
type Op interface {
	kind() byte
	apply(s *State, at At) Result
	// needs returns what the client that sends it must be allowed to do, see Needs.
	needs(v *registry.View) []access.Need
}

// Catalog is what sessions need to know about nodes and checks, and performs the operations of transactions and
// restores on them and on services. The state machine asks it while it applies an operation, so it must be replicated
// state too.
type Catalog interface {
	// HasNode reports whether a node is registered; "" is the cluster's own, which always is.
	HasNode(node string) bool
	// CheckState finds a check of a node or of a service on it.
	CheckState(node, id string) (status catalog.CheckStatus, known bool)
	// Next returns the Index that the next change takes, whatever changes.
	Next() Index
	// Attempt performs do, and takes back all its changes by PerformInTxn if it returns false.
	Attempt(do func() (kept bool))
	PerformInTxn(op registry.CatalogOp) registry.CatalogResult
	// Lost returns the checks that turned critical, and the checks and nodes (ID "") that went, since the last call.
	Lost() []catalog.CheckRef
	// Raise calls Registry.Raise.
	Raise(beyond Index, wall int64) Index
	// Readmit calls Registry.Readmit; lost is as in Lost.
	Readmit(m registry.Image, by registry.Act) (returned int, lost []catalog.CheckRef)
}

// State is the mutable state. It belongs to one goroutine at a time.
type State struct {
	catalog     Catalog
	index       Index // of the last change
	lease       int64 // lease clock, ms
	level       byte  // see SetLevel
	epoch       Epoch
	established int64 // lease clock when the epoch was established, ms
	contents
	kept    keptResults
	staged  Staged    // the restore in progress; its ID is "" outside one
	touched []Topic   // since the last call of Touched
	shared  *contents // a copy of contents for views; nil if contents changed since
}

// contents is what views show. A copy that views share is never written again.
type contents struct {
	figures  *Figures
	keys     keyTable
	sessions sessionTable
	permits  permitTable
	access   *access.Table
	uses     uses
	restores
}

// New returns an empty state.
func New(catalog Catalog) *State {
	return &State{
		catalog: catalog,
		contents: contents{
			figures:  new(Figures),
			keys:     newKeyTable(),
			sessions: newSessionTable(),
			permits:  newPermitTable(),
			access:   new(access.Table),
			uses:     uses{order.NewMap[string, Use](order.Degree)},
		},
		kept: keptResults{byKey: make(map[string]*KeptResult)},
	}
}

// SetLevel makes operations follow the rules of a level of the formats, which replicas reach at the same entry. A new
// State is at level 1.
func (s *State) SetLevel(level byte) {
	s.level = level
	s.sessions.ends.Reorder(func(slot uint32) int64 { return s.sessionEnd(s.sessions.slots.sessions[slot]) })
}

// Apply performs one operation. It never fails: if it cannot be done, the Result says so. A nonzero Result.Index is
// at.Index, which the operation has taken, or the last index taken by a transaction that also changes nodes, services
// or checks.
func (s *State) Apply(at At, op Op) Result {
	s.Advance(at.Lease)
	at.Lease = s.lease // which does not go back
	return s.perform(at, op)
}

// perform performs an operation at a moment that does not go back.
func (s *State) perform(at At, op Op) Result {
	before := s.index
	res := op.apply(s, at)
	if s.index != before {
		res.Index = max(res.Index, s.index)
	}
	return res
}

// Advance moves the time without an operation (lease clock, ms; it never goes back), and drops what
// has become too old: kept results of Once, records of deletions, a restore whose sender fell silent.
func (s *State) Advance(lease int64) {
	if lease <= s.lease {
		return
	}
	s.lease = lease
	s.kept.prune(lease)
	s.staged.prune(lease)
	if s.keys.deletions.pruneOld(lease) {
		s.shared = nil
	}
}

// Establish starts an epoch: from now on only its ExpireSession and EndDelay take effect, and grace begins.
func (s *State) Establish(epoch Epoch, lease int64) {
	s.Advance(lease)
	s.epoch = epoch
	s.established = s.lease
}

// change records that the operation changes what readers see, and whose watchers must be woken.
func (s *State) change(at At, t Topic) {
	s.index = at.Index
	s.shared = nil
	s.touched = append(s.touched, t)
}

// Touched returns the topics whose watchers must be woken for what was applied since the last call: keys (as
// KeyTopic), locks and semaphores, sessions that were given a permit (PermitTopic), and SessionsTopic.
func (s *State) Touched() []Topic {
	touched := s.touched
	s.touched = nil
	return touched
}

// session returns a session, or nil. The case of the id does not matter.
func (s *State) session(id string) *Session {
	if l := s.sessions.find(id); l != nil {
		return l.session
	}
	return nil
}

// Owner does what View.Owner does.
func (s *State) Owner(id string) string {
	if session := s.session(id); session != nil {
		return session.By
	}
	return ""
}

// share returns a copy of the contents for views.
func (s *State) share() *contents {
	if s.shared == nil {
		s.shared = &contents{figures: s.figures, keys: s.keys.share(), sessions: s.sessions.share(), permits: s.permits.share(), access: s.access, uses: s.uses.share(), restores: s.restores}
	}
	return s.shared
}

// bytes returns roughly how many bytes the state takes.
func (s *State) bytes() int {
	keys := s.keys.bytes + s.keys.deletions.bytes + s.keys.delays.bytes
	return keys + s.access.Bytes() + s.sessions.bytes + s.permits.bytes + s.kept.bytes
}

// fenceHolds reports whether an acquisition lasts: by session, or (session "") by any. now is the token of the
// present holder, for a semaphore that of the session, or 0.
func (c *contents) fenceHolds(f Fence, session string) (holds bool, now Index) {
	var by string
	if f.Kind == Key {
		by, now = c.keys.holder(f.Name)
	} else {
		by, now = c.permits.holder(f, session)
	}
	return now != 0 && now == f.Index && (session == "" || session == by), now
}

// MaxEnding bounds what ends in one operation: the keys, permits and places in queues of one session; and for the
// sessions that depend on one check or node, all of these together with the sessions. Anything that exceeded it
// before level 2 stays, and ends as a whole. ADR 33 says why the end of a session is not split.
const MaxEnding = 2000

// MaxQueue bounds the sessions that wait for one lock or semaphore: one operation drops all whose time has passed.
const MaxQueue = 5000

// MaxDeleted bounds the keys that one DeleteTree deletes, and those that one transaction deletes by prefixes.
const MaxDeleted = 10_000

// Figures counts acquisitions and new sessions beyond MaxEnding or MaxQueue since the program started, by whether the
// level refuses them. It decides nothing, is not part of the state, and is live in views.
type Figures struct{ Refused, WouldRefuse atomic.Int64 }

// bounded reports whether the bounds that came with level 2 hold.
func (s *State) bounded() bool { return s.level >= 2 }

// count adds to what a session holds or waits for, unless it has ended.
func (s *State) count(session string, by int) {
	if l := s.sessions.find(session); l != nil {
		s.sessions.addHeld(l, by)
		s.uses.add(l.session.By, 0, by*heldWeight)
	}
}

// crowded returns why a session may not hold or wait for more, or "". held counts what it has, 0 for a new one.
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

// beyond counts something beyond a bound, and returns its refusal, or "" if the level does not refuse it.
func (s *State) beyond(format string, args ...any) string {
	if !s.bounded() {
		s.figures.WouldRefuse.Add(1)
		return ""
	}
	s.figures.Refused.Add(1)
	return fmt.Sprintf(format, args...)
}
