package registry

import "github.com/seed-20419f34/rollcall/fsm/order"

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
	checkEnds   order.Schedule[CheckRef] // see addEnd
	lost        []CheckRef               // checks that turned critical or are gone, and nodes that are gone
	shared      *tables                  // the copy of tables that views get; nil if they changed since it was made

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
		checkEnds:   order.NewSchedule(compareCheckRefs),
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
	return op.apply(r, at{term, origin})
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

// renewed is the last renewal of a live lease.
func (r *Registry) renewed(l *Lease) Stamp {
	s, _ := r.tables.renewals.last(l.Handle)
	return s
}

// renewLease notes that a live lease was renewed now. It is no change.
func (r *Registry) renewLease(l *Lease, origin Origin) { r.tables.renewals.beat(l, origin, r.clock) }

// heartbeat is renewLease by the client itself, of whom it is remembered if it is late.
func (r *Registry) heartbeat(l *Lease, origin Origin) { r.heartbeatAt(l, origin, r.clock) }

func (r *Registry) heartbeatAt(l *Lease, origin Origin, at Stamp) {
	silent := at.Lease - r.tables.renewals.beat(l, origin, at)
	if !l.Permanent && silent*2 > int64(l.Interval)*3000 {
		r.note(l, origin, Event{Kind: EventRenewedLate, For: silent})
	}
}

// heartbeatAgo is a heartbeat some ms ago, of which another server tells now. It says whether the lease
// is renewed by that: not if it was renewed later than that already.
func (r *Registry) heartbeatAgo(l *Lease, origin Origin, ms int64) bool {
	if ms == 0 {
		r.heartbeat(l, origin)
		return true
	}
	at := r.ago(ms)
	if at.Lease < r.renewed(l).Lease {
		r.tables.renewals.at(l.Handle.Slot).hear(l, origin, at.Lease)
		return false
	}
	r.heartbeatAt(l, origin, at)
	return true
}

// maxAgo bounds (ms) how long ago another server may say that something was. No lease lives as long.
const maxAgo = 7 * 24 * 60 * 60 * 1000

// ago is the moment some ms ago.
func (r *Registry) ago(ms int64) Stamp {
	ms = min(max(ms, 0), maxAgo)
	return Stamp{Lease: r.clock.Lease - ms, Wall: r.clock.Wall - ms}
}

// change replaces a live lease's instance in place: the lease goes on. e is what happened.
func (r *Registry) change(old *Lease, instance *Instance, origin Origin, e Event) Result {
	l := *old
	l.Instance = instance
	return r.exchange(old, &l, ActionModified, origin, e)
}

// edit is change where the override is another one, or ended. Its details end with it.
func (r *Registry) edit(old *Lease, instance *Instance, origin Origin, e Event) Result {
	l := *old
	l.Instance, l.Override = instance, nil
	l.Edit++
	return r.exchange(old, &l, ActionModified, origin, e)
}

// exchange puts l, a changed copy, in the place of a live lease: the lease goes on.
func (r *Registry) exchange(old, l *Lease, action Action, origin Origin, events ...Event) Result {
	l.Action = action
	l.RenewedAt = r.renewed(old)
	r.mark(l, origin)
	for _, e := range events {
		l.date(e.Kind)
	}
	r.put(old, l, r.index)
	for _, e := range events {
		r.note(l, origin, e)
	}
	return Result{Index: r.index}
}

// date notes that the last change of l was of a kind that Eureka servers are told.
func (l *Lease) date(kind EventKind) {
	switch kind {
	case EventMetadata, EventStatus:
		l.Described = l.Changed
	case EventOverridden, EventOverrideEnded:
		l.Overrode = l.Changed
	}
}

// mark takes the next Index for a change of l. What a node of the own datacenter sent counts for
// nobody: it tells the others itself.
func (r *Registry) mark(l *Lease, origin Origin) {
	r.step()
	l.Changed, l.ChangedLease = r.index, r.clock.Lease
	switch origin.Kind {
	case Client:
		l.ByClient = r.index
	case RemoteDC:
		l.ByRemote = r.index
	}
	l.UpdatedAt = r.clock.Wall
	if l.Instance.Status == Up && l.ServiceUpAt == 0 {
		l.ServiceUpAt = r.clock.Wall
	}
}
