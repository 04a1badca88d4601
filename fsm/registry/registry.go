package registry

import (
	"cmp"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// maxLead is how far (ms of lease clock) the stamp of an operation may be ahead of the state. The leader writes at
// least one entry per second while leases exist, so a stamp further ahead is the result of a defect; believing it
// would end every lease at once.
const maxLead = 60 * 60 * 1000

// Registry is the mutable state. It belongs to one goroutine at a time.
type Registry struct {
	index       Index // of the last change that readers see; never goes back
	reserved    Index // the last one that Take gave out; 0 if none
	clock       Stamp
	epoch       Epoch
	established int64 // lease clock when the epoch was established, ms
	resumed     int64 // when self-preservation last went off by itself, lease clock, ms; derived from transitions
	eachGrace   bool  // see GraceEachEpoch; not part of the state
	cluster     string
	handles     handles
	expiry      order.Ends               // of the leases, by slot
	ends        order.Schedule[leaseEnd] // one for each override and quarantine with an end, see eachEnd
	records     map[Key]Index            // the record of removal of each key, one for each in tables.removed
	recordBytes int                      // of these records, see Removal.weight
	amended     map[Index]struct{}       // records that AmendedRecords has to return
	settings    Settings
	transitions []Preservation // of self-preservation, newest last, the present one included
	expectation ExpectationState
	servers     *otherServers // what is known about other servers
	tables      tables
	catalog     *catalog.Catalog
	shared      *tables     // the copy of tables that views get; nil if they changed since
	undo        *order.Undo // of the attempt in progress, see Attempt; nil outside one

	withoutConsensus bool // see WithoutConsensus
	level            byte // see SetLevel
	readmitting      bool // while Readmit runs: what it registers was in the registry before
}

// New returns an empty registry.
func New() *Registry {
	return &Registry{
		handles: handles{slots: make(map[Key]uint32)},
		ends: order.NewSchedule(func(a, b leaseEnd) int {
			return cmp.Or(cmp.Compare(a.set, b.set), cmp.Compare(a.kind, b.kind))
		}),
		records:  make(map[Key]Index),
		amended:  make(map[Index]struct{}),
		settings: DefaultSettings(),
		// One client at first, as a Spring server expects that found no peer.
		expectation: ExpectationState{Clients: 1, NextUpdate: DefaultSettings().ExpectationUpdate},
		servers:     new(otherServers),
		tables:      newTables(),
		catalog:     catalog.New(),
	}
}

// NewAt returns an empty registry whose newest change has index, so that the first change gets the next one.
func NewAt(index Index) *Registry {
	r := New()
	r.index = index
	return r
}

// SetLevel makes operations follow the rules of a level of the formats, which all replicas reach at the same entry. A
// new Registry is at level 1.
func (r *Registry) SetLevel(level byte) { r.level = level }

// spellsNodes reports whether the case of node names is ignored.
func (r *Registry) spellsNodes() bool { return r.level >= Level3 && !r.readmitting }

// bounded reports whether the bounds that came with level 2 hold.
func (r *Registry) bounded() bool { return r.level >= 2 && !r.readmitting }

// Level3 is the level of the formats that introduced the rules naming it (docs/run/upgrade.md lists them all).
const Level3 = 3

// Apply performs one operation at the time of stamp; term is the Raft term of its log entry. It never fails: if an
// operation cannot be done, the Outcome says so.
func (r *Registry) Apply(stamp Stamp, term uint64, origin Origin, op Op) Result {
	r.Advance(stamp)
	res := op.perform(r, term, origin)
	r.followUp(origin)
	return res
}

// followUp performs, at the end of an operation, the consequences of its changes.
func (r *Registry) followUp(origin Origin) {
	for _, n := range r.catalog.Deserted() {
		r.forgetNode(n)
	}
	r.followAliases(origin)
}

// Advance moves the lease clock without an operation (for an entry that carries none) and prunes what has become too
// old. Apply calls it. The lease clock does not go back; a stamp more than an hour ahead of it is not believed, and
// its operation happens at the old time. The wall clock follows the newest stamp, and goes back with it: one leader
// whose clock was ahead must not decide what everybody sees from then on. Only what is shown, and LastDirty if a
// client gives none, depends on it.
func (r *Registry) Advance(stamp Stamp) {
	if stamp.Lease > r.clock.Lease+maxLead {
		return
	}
	step := r.clock.Lease / deltaStep
	r.clock.Lease = max(r.clock.Lease, stamp.Lease)
	r.clock.Wall = stamp.Wall
	if r.clock.Lease/deltaStep != step {
		r.sweep()
		r.expectation.startMinute(r.clock.Lease) // a minute is two steps
	}
	if r.clock.Lease >= r.expectation.NextUpdate {
		r.recount()
	}
}

// Establish starts an epoch: from now on only its Evicts take effect, and grace begins. cluster keeps its first value.
func (r *Registry) Establish(epoch Epoch, cluster string) {
	r.epoch = epoch
	r.established = r.clock.Lease
	if r.cluster == "" {
		r.cluster = cluster
	}
}

// Epoch returns the current leadership.
func (r *Registry) Epoch() Epoch { return r.epoch }

// Clock returns the lease clock's newest stamp.
func (r *Registry) Clock() Stamp { return r.clock }

// Next returns the Index that the next change takes.
func (r *Registry) Next() Index { return max(r.index, r.reserved) + 1 }

// ReserveIndex takes the next Index for a change that readers of the registry do not see (see package kv).
func (r *Registry) ReserveIndex() Index {
	r.reserved = r.Next()
	return r.reserved
}

// step takes the next Index for a change that readers see.
func (r *Registry) step() Index {
	r.index = r.Next()
	r.shared = nil
	return r.index
}

// moment returns the present moment for the catalog.
func (r *Registry) moment() catalog.Moment {
	return catalog.Moment{Lease: r.clock.Lease, Established: r.established, Next: r.Next()}
}

// leaseEndsAt returns the last millisecond of a live lease on the lease clock.
func (r *Registry) leaseEndsAt(l *Lease) int64 {
	return r.servers.endsAt(l, r.renewed(l).Lease, r.graces(), r.settings.DoubledLease)
}

// graces returns when all leases last got a grace.
func (r *Registry) graces() graces {
	g := graces{established: r.established, each: r.eachGrace}
	if !r.settings.Expectation {
		g.resumed = r.resumed
	}
	return g
}

// GraceEachEpoch makes every epoch give all leases a full grace. Without consensus, an epoch is a run of the node,
// whose renewals on disk may be older than its lease clock, which also runs while the node loads.
func (r *Registry) GraceEachEpoch() { r.eachGrace = true }

// recount sets the expectation to the number of leases that can end, when that is due: unless self-preservation is on
// and the number has fallen below the threshold's share, so that such a fall is never followed.
// Source: PeerAwareInstanceRegistryImpl.updateRenewalThreshold; upstream counts what the server's own client fetched,
// here it is what the registry holds.
func (r *Registry) recount() {
	leases, expected := uint64(r.expiry.Len()), uint64(r.expectation.Clients)
	if leases*uint64(Whole) > expected*uint64(r.settings.Threshold) || !r.settings.SelfPreservation {
		r.expectation.Clients = uint32(leases)
	}
	r.expectation.NextUpdate = order.Later(r.clock.Lease, r.settings.ExpectationUpdate)
}

// recordEvent records an event of a live lease, as the lease is afterwards.
func (r *Registry) recordEvent(l *Lease, origin Origin, e Event) {
	r.keepRenewal(l.Handle.Slot)
	history := &r.tables.renewals.edit(l.Handle.Slot).history
	history.Store(history.Load().with(r.event(l, origin, e)))
}

// event fills in what all events have: the time, the sender of the operation, and the status.
func (r *Registry) event(l *Lease, origin Origin, e Event) Event {
	e.At, e.Times, e.Origin, e.Status = r.clock, 1, origin, l.Instance.Status
	if e.Kind == EventOverridden {
		e.Status = l.Instance.Overridden
	}
	return e
}

// replaceLease replaces old by l, the lease of the same key. Either may be nil. Only it enters, replaces and removes
// a lease in all the places that hold one: by handle and key, in the lists, in the catalog, and among the ends. The
// slot of l already has its renewals, which decide when it ends. changed is the Index of a removal.
func (r *Registry) replaceLease(old, l *Lease, changed Index) {
	was, is := old, l
	switch {
	case old == nil:
		was = &Lease{}
		r.handles.set(l)
		r.tables.add(l)
	case l == nil:
		is = &Lease{}
		r.tables.delete(old, changed)
		r.handles.release(old)
	default:
		r.handles.set(l)
		r.tables.replace(old, l)
	}
	r.scheduleEnd(old, l)
	r.tables.parts.mark(was, is, changed)
	if node, left := leftNode(was, is); left && node != "" {
		r.catalog.LeaveNode(node, changed)
	}
	if was.Service != is.Service {
		r.catalog.ReplaceService(cmp.Or(l, old).Key(), was.Service, is.Service, r.moment())
	}
	if was.Override != is.Override || was.Quarantine != is.Quarantine {
		eachEnd(was, r.ends.Delete)
		eachEnd(is, r.ends.Set)
	}
	r.touchService(old)
	r.touchService(l)
}

// scheduleEnd enters the end of l, a lease that replaces old, and counts the clients that are expected to renew.
// Either may be nil. A permanent lease never ends, and no client is expected to renew it.
func (r *Registry) scheduleEnd(old, l *Lease) {
	was, is := old != nil && !old.Permanent, l != nil && !l.Permanent
	r.keepEnd(cmp.Or(l, old).Handle.Slot)
	switch {
	case was && is:
		if l.Registered != old.Registered || l.Owner != old.Owner { // otherwise it ends when old does
			r.expiry.Move(l.Handle.Slot, r.leaseEndsAt(l))
		}
	case is:
		r.expiry.Add(l.Handle.Slot, r.leaseEndsAt(l))
		if r.expectation.Clients > 0 { // upstream adds a client only while it expects any
			r.expectation.Clients++
		}
	case was:
		r.expiry.Remove(old.Handle.Slot)
		if r.expectation.Clients > 0 {
			r.expectation.Clients--
		}
	}
}

// renewed returns the last renewal of a live lease.
func (r *Registry) renewed(l *Lease) Stamp {
	s, _ := r.tables.renewals.last(l)
	return s
}

// renewLease records that a live lease was renewed now. That does not count as a change.
func (r *Registry) renewLease(l *Lease, origin Origin) {
	r.tables.renewals.recordBeat(l, origin, r.clock)
}

// heartbeatAt does what renewLease does, for a renewal by the client itself; a late one becomes an event.
func (r *Registry) heartbeatAt(l *Lease, origin Origin, at Stamp) {
	silent := at.Lease - r.tables.renewals.recordBeat(l, origin, at)
	if !l.Permanent && silent*2 > int64(l.Interval)*3000 {
		r.recordEvent(l, origin, Event{Kind: EventRenewedLate, For: silent})
	}
}

// heartbeatAgo records a heartbeat that came some ms ago, which another server sends now. It reports whether that
// renews the lease, that is, whether the lease has no later renewal.
func (r *Registry) heartbeatAgo(l *Lease, origin Origin, ms int64) bool {
	if ms == 0 {
		r.heartbeatAt(l, origin, r.clock)
		return true
	}
	at := r.ago(ms)
	if at.Lease < r.renewed(l).Lease {
		r.tables.renewals.edit(l.Handle.Slot).attribute(l, origin, at.Lease)
		return false
	}
	r.heartbeatAt(l, origin, at)
	return true
}

// maxAgo bounds (ms) how far in the past another server may place something. No lease lives that long.
const maxAgo = 7 * 24 * 60 * 60 * 1000

// ago returns the moment some ms ago.
func (r *Registry) ago(ms int64) Stamp {
	ms = min(max(ms, 0), maxAgo)
	return Stamp{Lease: r.clock.Lease - ms, Wall: r.clock.Wall - ms}
}

// edit replaces a live lease's instance in place, for an override that is replaced or ended. The old one's details go.
func (r *Registry) edit(old *Lease, instance *Instance, origin Origin, e Event) Result {
	l := *old
	l.Instance, l.Override = instance, nil
	l.Edit++
	return r.exchange(old, &l, ActionModified, origin, e)
}

// exchange replaces a live lease by l, a changed copy; the lease goes on.
func (r *Registry) exchange(old, l *Lease, action Action, origin Origin, events ...Event) Result {
	l.Action = action
	l.RenewedAt = r.renewed(old)
	if r.level >= Level3 && l.Said == 0 && l.Instance.LastDirty != old.Instance.LastDirty {
		l.Said = old.Instance.LastDirty
	}
	r.mark(l, origin)
	r.define(old, l)
	for _, e := range events {
		markForEureka(l, e.Kind)
	}
	r.replaceLease(old, l, r.index)
	for _, e := range events {
		r.recordEvent(l, origin, e)
	}
	return Result{Index: r.index}
}

// markForEureka records the last change of l if its kind is sent to Eureka servers.
func markForEureka(l *Lease, kind EventKind) {
	switch kind {
	case EventMetadata, EventStatus:
		l.Described = l.Changed
	case EventOverridden, EventOverrideEnded:
		l.Overrode = l.Changed
	}
}

// mark takes the next Index for a change of l. A change sent by a node of this datacenter counts for no peer: that
// node sends it to the others itself.
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

// define records when l, which was changed now and replaces old (or nil), was last defined.
func (r *Registry) define(old, l *Lease) {
	l.Defined = r.index
	if l.sameDefinition(old) {
		l.Defined = old.Defined
	}
}

func (r *Registry) slotEndsAt(slot uint32) int64 { return r.leaseEndsAt(r.handles.leases[slot]) }

// keepRenewal makes a failed attempt restore the last renewal and the history in a slot.
func (r *Registry) keepRenewal(slot uint32) {
	if r.undo != nil {
		e := r.tables.renewals.edit(slot)
		v := e.values()
		r.undo.Add(func() { e.set(v) })
	}
}

// keepEnd makes a failed attempt restore the end of the lease in a slot.
func (r *Registry) keepEnd(slot uint32) {
	if r.undo == nil {
		return
	}
	had, end := r.expiry.Has(slot), int64(0)
	if had {
		end = r.expiry.Known(slot)
	}
	r.undo.Add(func() {
		switch has := r.expiry.Has(slot); {
		case had && has:
			r.expiry.Move(slot, end)
		case had:
			r.expiry.Add(slot, end)
		case has:
			r.expiry.Remove(slot)
		}
	})
}
