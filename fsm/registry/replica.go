package registry

import (
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Replica is the whole state of an instance as another Rollcall server has it. Applying it replaces
// what is stored where the incoming half is newer; of an instance that is stored equally it is a
// renewal, and no change.
//
// Halves of equal version that differ (two servers decided at the same moment): if only one of the two says
// that it is the owner, both keep theirs, and the owner makes a newer version of its own, which wins; else
// those with the greater Fingerprint win, on both sides.
type Replica struct {
	// Instance is what its client said last: Status is the reported one, Overridden is Unknown.
	Instance *Instance
	Life     uint32
	Edit     uint32
	// Owner is the datacenter that the instance belongs to; "": the sender's own. A node of the own
	// datacenter may name another; what a remote one says of an instance that is not its own says
	// nothing of whose it is, unless it says Here and the instance is not stored.
	Owner string
	// Age is how long ago the instance was last renewed, ms; UnknownAge: that is not known. One whose lease
	// has ended by that is refused, unless it is stored already or Permanent.
	Age int64
	// Overridden is the override; Unknown: none. OverrideFor is the rest of its time in ms; 0: it has
	// no end.
	Overridden  Status
	OverrideBy  Act
	OverrideFor int64
	// QuarantineFor is the rest of its quarantine, ms; 0: there is none.
	QuarantineFor int64
	QuarantineBy  Act
	// Permanent: it has no lease (Lease.Permanent). What was registered of it through Consul's API stays
	// with its datacenter.
	Permanent bool
}

func (Replica) kind() Kind { return 12 }

func (op Replica) apply(r *Registry, at at) Result { return r.replica(at.origin, op) }

func (op Replica) fields(c *codec.Codec) Replica {
	body(c, &op.Instance)
	c.Uint32(&op.Life)
	c.Uint32(&op.Edit)
	c.String(&op.Owner)
	c.Int64(&op.Age)
	op.Overridden.fields(c)
	op.OverrideBy.fields(c)
	c.Int64(&op.OverrideFor)
	c.Int64(&op.QuarantineFor)
	op.QuarantineBy.fields(c)
	c.Bool(&op.Permanent)
	return op
}

// Here is the Replica.Owner that stands for the receiver's own datacenter. It is no name that a datacenter
// may have.
const Here = "."

// replica takes over what is newer of an instance that another server has.
func (r *Registry) replica(origin Origin, op Replica) Result {
	op.Instance = withAmazonID(op.Instance)
	op.Life = max(op.Life, 1)
	if old := r.handles.byKey(op.Instance.Key()); old != nil {
		return r.mergeReplica(origin, old, op)
	}
	return r.newReplica(origin, op)
}

// newReplica takes over an instance that has no lease here, unless it was canceled since, or its lease
// has ended. It has the life that it is told with.
func (r *Registry) newReplica(origin Origin, op Replica) Result {
	key := op.Instance.Key()
	rec, ok := r.record(key)
	if ok && rec.outdates(op, r.ago(op.Age).Lease) {
		return Result{Outcome: Refused}
	}
	hearsay := op.Age >= UnknownAge && !op.Permanent
	if hearsay && r.withoutConsensus {
		op.Age = 0 // who told it may have acknowledged it and told nobody before; it gets one lease
	}
	if op.hasEnded() {
		return Result{Outcome: Refused}
	}
	l := &Lease{Life: op.Life, Origin: origin, Owner: op.owner(origin), Permanent: op.Permanent}
	r.decideAs(l, op)
	l.describe(op.Instance, op.Instance.Status, op.Overridden)
	outcome := Done
	if ok {
		outcome = r.returns(l, rec)
		r.supersede(key)
	}
	res := r.enter(origin, l, r.ago(op.Age), rec.History)
	if hearsay {
		r.tables.renewals.doubt(l.Handle.Slot)
	}
	r.noteAll(l, origin, decisions(&Lease{Instance: &Instance{}}, l, op))
	res.Outcome = outcome
	return res
}

// hasEnded says that the lease has ended by its age.
func (op Replica) hasEnded() bool {
	_, duration, _ := ClampLease(op.Instance.RenewalInterval, op.Instance.Duration)
	return !op.Permanent && op.Age > int64(duration)*1000+wayOfRenewals
}

// seemsFresher is by how much (ms) a copy that is played again may seem to be renewed later than it was:
// its sender's clock is noted every few seconds only.
const seemsFresher = 6000

// outdates says whether a record says more than a copy of the instance that was renewed last at a moment
// (lease clock, ms): one that is no newer than what was canceled, or that was evicted without having been
// renewed since. The latter comes again; a client that lives renews its lease, and the next copy is taken.
func (m Removal) outdates(op Replica, renewed int64) bool {
	if m.Lease.compareVersion(op.Life, op.Instance.LastDirty) < 0 {
		return false
	}
	return m.Kind == Canceled || renewed <= m.renewed()+seemsFresher
}

// returns has an instance come back in the quarantine that its record of removal keeps, if operators
// have decided nothing since. The sender did not know of it, and its copy is older so far.
func (r *Registry) returns(l *Lease, rec Removal) Outcome {
	q := rec.Lease.Quarantine.again(r.clock.Lease, r.Next())
	known := uint32(0)
	if l.Life == rec.Lease.Life {
		known = rec.Lease.Edit
	}
	if q == nil || l.Quarantine != nil || l.Edit > known {
		return Done
	}
	l.Quarantine = q
	return Older
}

// decideAs gives a lease what operators decided of it elsewhere.
func (r *Registry) decideAs(l *Lease, op Replica) {
	set := r.Next()
	l.Edit, l.Override, l.Quarantine = op.Edit, nil, nil
	if op.Overridden != Unknown && (op.Instance.Status != Unknown || op.OverrideBy != (Act{}) || op.OverrideFor > 0) {
		l.Override = &Override{By: op.OverrideBy, At: r.clock, Reported: op.Instance.Status, Set: set}
		if op.OverrideFor > 0 {
			l.Override.Until = order.Later(r.clock.Lease, op.OverrideFor)
		}
	}
	if op.QuarantineFor > 0 {
		l.Quarantine = &Quarantined{By: op.QuarantineBy, At: r.clock, Until: order.Later(r.clock.Lease, op.QuarantineFor), Set: set}
	}
}

// describe gives a lease what its client says, with the status that follows from the one it reported and
// an override, which decides it of one that is permanent. The client's of an instance that brought its override is not known, see Lease.reported.
func (l *Lease) describe(i *Instance, reported, override Status) {
	status := decide(reported, override, Unknown, true)
	if reported == Unknown || l.Permanent && override != Unknown {
		status = override
	}
	l.Instance = i.with(status, override, i.LastDirty)
}

// decisions are the events by which the acts of operators, as op tells them, made a lease what it is.
func decisions(old, l *Lease, op Replica) []Event {
	var events []Event
	before, now := old.Instance.Overridden, l.Instance.Overridden
	switch {
	case now == Unknown && before != Unknown:
		events = append(events, Event{Kind: EventOverrideEnded, By: op.OverrideBy})
	case now != Unknown && (now != before || !old.Override.says(l.Override)):
		events = append(events, Event{Kind: EventOverridden, For: op.OverrideFor, By: op.OverrideBy})
	}
	switch {
	case l.Quarantine == nil && old.Quarantine != nil:
		events = append(events, Event{Kind: EventQuarantineEnded, By: op.QuarantineBy})
	case l.Quarantine != nil && old.Quarantine == nil:
		events = append(events, Event{Kind: EventQuarantined, For: op.QuarantineFor, By: op.QuarantineBy})
	}
	return events
}

// noteAll remembers what else a registration from another server changed.
func (r *Registry) noteAll(l *Lease, origin Origin, events []Event) {
	for _, e := range events {
		l.date(e.Kind)
		r.note(l, origin, e)
	}
}
