package kv

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
	catalog Catalog
}

// New returns an empty state.
func New(catalog Catalog) *State { return &State{catalog: catalog} }

// Apply performs one operation. It never fails: what cannot be done is a Result. If Result.Index is
// not 0 it is at.Index, which the operation has taken.
func (s *State) Apply(at At, op Op) Result { panic("not written") }

// Advance moves the time without an operation (lease clock, ms; it never goes back), and forgets what
// has become too old: answers of Once, records of deletions.
func (s *State) Advance(lease int64) { panic("not written") }

// Establish starts an epoch: only its ExpireSession and EndDelay take effect from now on, and grace
// begins.
func (s *State) Establish(epoch Epoch, lease int64) { panic("not written") }

// Lose ends the sessions that depend on checks which turned critical or are gone, in the operation
// that made them so, under its Index. It says whether any did.
func (s *State) Lose(at At, checks []CheckRef) bool { panic("not written") }

// LoseNode ends the sessions of a node that was deregistered.
func (s *State) LoseNode(at At, node string) bool { panic("not written") }

// Due returns what is to be proposed at a moment (lease clock, ms), oldest first, at most limit: an
// ExpireSession for each session whose TTL and grace have passed, an EndDelay for each lock-delay that
// is over. It costs O(those returned).
func (s *State) Due(now int64, limit int) []Op { panic("not written") }

// NeedsClock says that something in the state waits for a time of the lease clock.
func (s *State) NeedsClock() bool { panic("not written") }

// View returns the present state for readers: a few small allocations after a change.
func (s *State) View() *View { panic("not written") }

// Touched returns whose watchers are to be woken by what was applied since the last call: keys (as
// KeyTopic), locks and semaphores, and SessionsTopic.
func (s *State) Touched() []Topic { panic("not written") }

// Freeze returns the whole state for a snapshot, in milliseconds; it stays valid while the state goes
// on. Equal states freeze to equal values.
func (s *State) Freeze() Frozen { panic("not written") }

// Thaw is the inverse of Freeze. It verifies what can be verified: a snapshot that lies is refused as
// a whole.
func Thaw(f Frozen, catalog Catalog) (*State, error) { panic("not written") }
