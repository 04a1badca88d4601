package registry

import (
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// maxLead is how far (ms of lease clock) the stamp of an operation may be ahead of the state. The
// leader writes at least one entry per second while leases exist, so a stamp that leads by more was
// made by a defect; believing it would end every lease at once.
const maxLead = 60 * 60 * 1000

// Registry is the mutable state. It belongs to one goroutine at a time.
type Registry struct {
	index       Index // of the last change that readers see
	taken       Index // the last one that Take gave out; 0: none
	clock       Stamp
	epoch       Epoch
	established int64 // lease clock when the epoch was established, ms
	returned    int64 // when self-preservation last ended because the silent came back; from transitions
	cluster     string
	handles     handles
	expiry      order.Ends // of the leases, by slot
	ends        order.Schedule[leaseEnd]
	records     map[Key]Index      // of removals, in tables.removed
	recordBytes int                // of these records, see Removal.weight
	amended     map[Index]struct{} // records that Amended has to return
	settings    Settings
	transitions []Preservation // of self-preservation, newest last: the present one
	expectation ExpectationState
	known       *known // of other servers
	tables      tables
	catalog     *catalog.Catalog[Key]
	shared      *tables // the copy of tables that views get; nil if they changed since it was made

	withoutConsensus bool // see WithoutConsensus
}

// New returns an empty registry.
func New() *Registry {
	return &Registry{
		handles:     handles{slots: make(map[Key]uint32)},
		ends:        order.NewSchedule(compareLeaseEnds),
		records:     make(map[Key]Index),
		amended:     make(map[Index]struct{}),
		settings:    DefaultSettings(),
		expectation: newExpectation(DefaultSettings()),
		known:       new(known),
		tables:      newTables(),
		catalog:     catalog.New[Key](),
	}
}

// NewAt returns an empty registry whose newest change has an index, so that the first change gets the next one.
func NewAt(index Index) *Registry {
	r := New()
	r.index = index
	return r
}

// Apply performs one operation at a time told by stamp; term is the Raft term of its log entry.
// It never fails: what cannot be done is an Outcome.
func (r *Registry) Apply(stamp Stamp, term uint64, origin Origin, op Op) Result {
	r.Advance(stamp)
	return r.perform(term, origin, op)
}

// Advance moves the lease clock without an operation (an entry that carries none) and prunes what
// has become too old. Apply calls it by itself. The lease clock does not go back; a stamp more than an
// hour of it ahead is not believed, and what it came with happens at the old time. The wall clock is that
// of the newest stamp, and goes back with it: one leader whose clock was ahead must not decide what all
// see from then on. Nothing but what is shown, and LastDirty where a client gives none, depends on it.
func (r *Registry) Advance(stamp Stamp) {
	if stamp.Lease > r.clock.Lease+maxLead {
		return
	}
	step := r.clock.Lease / deltaStep
	r.clock.Lease = max(r.clock.Lease, stamp.Lease)
	r.clock.Wall = stamp.Wall
	if r.clock.Lease/deltaStep != step {
		r.sweep()
		r.expectation.roll(r.clock.Lease) // a minute is two steps
	}
	if r.clock.Lease >= r.expectation.NextUpdate {
		r.recount()
	}
}

// Establish starts an epoch: from now on only its Evicts take effect, and grace begins. cluster is
// kept at its first value.
func (r *Registry) Establish(epoch Epoch, cluster string) {
	r.epoch = epoch
	r.established = r.clock.Lease
	if r.cluster == "" {
		r.cluster = cluster
	}
}

// Epoch is the current leadership.
func (r *Registry) Epoch() Epoch { return r.epoch }

// Clock is the lease clock's newest stamp.
func (r *Registry) Clock() Stamp { return r.clock }

// View returns the present state for readers. It costs a handful of small allocations after a
// change, and one after anything else.
func (r *Registry) View() *View {
	if r.shared == nil {
		r.shared = r.tables.share()
		r.shared.catalog = r.catalog.Share()
	}
	return &View{
		index:       r.index,
		stamp:       r.clock,
		epoch:       r.cluster,
		tables:      r.shared,
		graceBegan:  r.graceBegan(),
		settings:    r.settings,
		transitions: r.transitions,
		expectation: r.expectation,
		known:       r.known,
	}
}

// Next is the Index that Take would return.
func (r *Registry) Next() Index { return max(r.index, r.taken) + 1 }

// Take takes the next Index for a change that no reader of the registry sees (see package kv).
func (r *Registry) Take() Index {
	r.taken = r.Next()
	return r.taken
}

// step takes the next Index for a change that readers see.
func (r *Registry) step() Index {
	r.index = r.Next()
	r.shared = nil
	return r.index
}
