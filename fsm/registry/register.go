package registry

import (
	"cmp"
	"slices"
)

// perform adds an instance or replaces it.
// Source: com.netflix.eureka.registry.AbstractInstanceRegistry.register.
func (op Register) perform(r *Registry, _ uint64, origin Origin) Result {
	in := withAmazonID(op.Instance)
	key := in.Key()
	if old := r.handles.byKey(key); old != nil {
		return r.registerAgain(origin, old, in)
	}
	return r.registerNew(origin, key, in)
}

// registerNew registers an instance that has no lease.
func (r *Registry) registerNew(origin Origin, key Key, in *Instance) Result {
	dirty := r.dirty(in, 0)
	l := &Lease{Life: 1, Origin: origin, Owner: ownerBy(origin, "")}
	rec, ok := r.record(key)
	if ok {
		dirty = r.dirty(in, rec.Lease.Instance.LastDirty)
		newer := dirty > rec.Lease.Instance.LastDirty
		if origin.Replicated() && !newer && r.refuses(rec) {
			return Result{Outcome: Refused}
		}
		r.continueLife(l, rec, newer, origin)
		r.supersede(key)
	}
	override := in.Overridden
	if l.Override != nil {
		override = OutOfService
		l.Override = reportedBy(l.Override, in)
	}
	l.Instance = in.with(decide(in.Status, override, Unknown, origin.Replicated()), override, dirty)
	return r.enter(origin, l, r.clock, rec.History)
}

// maxUnderWay is how long (ms) after a cancel another Eureka server may still send what it heard before it. It keeps
// what it could not send for at most one renewal interval of the instance, and resends it every second, before
// anything newer (upstream: PeerEurekaNode.heartbeat, AcceptorExecutor), so in practice it is a few seconds late.
const maxUnderWay = 10_000

// refuses reports whether the record of a cancel refuses a Eureka server's registration whose timestamp is not newer:
// what the server sent before it knew about the cancel must not undo it. Anything that comes too late for that
// belongs to an instance that lives there, whoever canceled it and whatever its timestamp says.
func (r *Registry) refuses(rec Removal) bool {
	underWay := int64(maxUnderWay)
	if rec.Lease.Interval > 0 {
		underWay = min(underWay, int64(rec.Lease.Interval)*1000)
	}
	return rec.Kind == Canceled && r.clock.Lease-rec.Lease.ChangedLease <= underWay
}

// continueLife gives l, the registration after a removal, its place in the order of versions. If its timestamp is
// newer, it continues the life that was removed. A new life would rank above everything that other nodes hear about
// the client before they hear about the removal: a node may evict a client that is alive, and the client goes on
// elsewhere; or a node was down while the client came back, and is the next that it talks to. If its timestamp is not
// newer, it needs a new life to be newer on every node: its client's clock went back, or another server canceled an
// instance that goes on living at its own.
func (r *Registry) continueLife(l *Lease, rec Removal, newer bool, origin Origin) {
	l.Life = rec.Lease.Life
	switch {
	case newer:
		l.Edit = rec.editAfter()
		if ends := rec.Lease.Override; rec.Kind == Evicted && ends != nil && ends.Drain && origin.Kind == Client {
			l.Edit++ // or the drain would come back from nodes that did not evict it
		}
	case !origin.Replicated() || rec.Kind == Canceled:
		l.Life++
		if r.level >= Level3 {
			l.Outdated = rec.Lease.Instance.LastDirty
		}
	}
	l.Override, l.Quarantine = r.overrideAgain(rec), quarantineAgain(rec.Lease.Quarantine, r.clock.Lease, r.Next())
}

// enter makes l, a new lease last renewed at a moment, the lease of its key; before is what is remembered about the
// instance.
func (r *Registry) enter(origin Origin, l *Lease, renewed Stamp, before History) Result {
	l.Handle, l.BeganLease = r.handles.assign(), renewed.Lease
	r.tables.renewals.grow(len(r.handles.leases))
	r.keepRenewal(l.Handle.Slot)
	r.tables.renewals.assign(l.Handle, renewed, before.newest)
	r.startLease(nil, l, origin, renewed)
	r.recordEvent(l, origin, Event{Kind: EventRegistered})
	return Result{Index: r.index, Handle: l.Handle}
}

// registerAgain registers an instance that has a lease. Kept or replaced, it gets a new lease; but a known
// registration from another server only renews the old one.
func (r *Registry) registerAgain(origin Origin, old *Lease, in *Instance) Result {
	stored := old.Instance
	dirty := r.dirty(in, stored.LastDirty)
	if old.Permanent {
		return r.registerOver(origin, old, in, dirty)
	}
	if r.keeps(origin, old, dirty) {
		l := registeredAgain(old, decided(stored, stored, origin, stored.LastDirty), old.Override, old.Origin)
		if origin.Kind == Client {
			l.Owner = ""
		}
		res := r.restart(origin, old, l, r.clock)
		r.recordEvent(l, origin, Event{Kind: EventKept})
		res.Outcome = KeptExisting
		return res
	}
	return r.accept(origin, old, in, dirty)
}

// accept replaces a stored instance with the registering one.
func (r *Registry) accept(origin Origin, old *Lease, in *Instance, dirty int64) Result {
	stored := old.Instance
	ends := r.endsDrain(origin, old, dirty)
	before, override := withoutDrain(old, ends)
	l := registeredAgain(old, decided(in, before, origin, dirty), reportedBy(override, in), origin)
	if origin.Replicated() && l.Instance.Equal(stored) {
		r.heartbeatAt(old, origin, r.clock)
		// Before overrides had details, their storage was not a change, and readers still see none.
		if l.Override != old.Override {
			detailed := *old
			detailed.Override = l.Override
			r.shared = nil
			r.replaceLease(old, &detailed, old.Changed)
		}
		return Result{Handle: old.Handle}
	}
	l.Owner = ownerBy(origin, old.Owner)
	r.succeed(l, old, 0)
	if r.outlives(origin, old, l) {
		l.Life, l.Edit = old.Life+1, 0
	} else if ends || l.Instance.Overridden != stored.Overridden {
		l.Edit++
	}
	res := r.restart(origin, old, l, r.clock)
	r.recordReregistration(old, l, origin)
	if ends && l.Instance.Overridden == Unknown {
		r.recordEvent(l, origin, endedDrain)
	}
	return res
}

// withoutDrain returns the stored instance and its override as a registration finds them, without the override if it
// is a drain that ends.
func withoutDrain(old *Lease, ends bool) (*Instance, *Override) {
	if !ends {
		return old.Instance, old.Override
	}
	if o := *old.Override; o.Until != 0 {
		o.Drain = false
		return old.Instance, &o
	}
	return old.Instance.with(Unknown, Unknown, old.Instance.LastDirty), nil
}

// registerOver replaces an instance without a lease by a registration: entirely, with a lease, and whatever a
// client's clock says. Only what another server sends may be older, or already known.
func (r *Registry) registerOver(origin Origin, old *Lease, in *Instance, dirty int64) Result {
	stored := old.Instance
	if origin.Replicated() {
		switch known := in.with(stored.Status, stored.Overridden, dirty).Equal(stored); {
		case known:
			return Result{Handle: old.Handle}
		case storedIsNewer(stored, dirty):
			return Result{Outcome: KeptExisting, Handle: old.Handle}
		}
	}
	ends := r.endsDrain(origin, old, dirty)
	before, details := withoutDrain(old, ends)
	override := cmp.Or(before.Overridden, in.Overridden)
	instance := in.with(decide(in.Status, override, Unknown, true), override, dirty)
	l := registeredAgain(old, instance, reportedBy(details, in), origin)
	l.Permanent, l.Service, l.Owner = false, nil, ownerBy(origin, old.Owner)
	if r.outlives(origin, old, l) {
		l.Life, l.Edit = old.Life+1, 0
	} else if ends {
		l.Edit++
	}
	res := r.restart(origin, old, l, r.clock)
	r.recordEvent(l, origin, Event{Kind: EventReregistered})
	if ends && l.Instance.Overridden == Unknown {
		r.recordEvent(l, origin, endedDrain)
	}
	return res
}

// reportedBy returns the details after a registration: o itself if the client reports the same as before. A
// registration that brings an override has the override's status, which is not the client's own.
func reportedBy(o *Override, in *Instance) *Override {
	if o == nil || in.Status == o.Reported || in.Overridden != Unknown && in.Status == in.Overridden {
		return o
	}
	c := *o
	c.Reported = in.Status
	return &c
}

// endsDrain reports whether a registration with the timestamp dirty ends the drain of l, a live lease, because
// its client has started again. Repeating the same registration, as after a 404, does not.
func (r *Registry) endsDrain(origin Origin, l *Lease, dirty int64) bool {
	return origin.Kind == Client && l.Override != nil && l.Override.Drain && dirty > l.Instance.LastDirty
}

// endedDrain is the event of a drain that ended because the instance was restarted.
var endedDrain = Event{Kind: EventOverrideEnded, By: Act{Reason: "its client has started again"}}

// registeredAgain returns the lease with which a registration replaces l, before it starts.
func registeredAgain(l *Lease, i *Instance, o *Override, origin Origin) *Lease {
	c := *l
	c.Instance, c.Override, c.Origin = i, o, origin
	return &c
}

// outlives reports whether l, a registration that replaces old, begins a new life, which is newer than old on every
// server: if its timestamp is not newer, servers that keep copies of old would undo it.
func (r *Registry) outlives(origin Origin, old, l *Lease) bool {
	if k := r.servers; len(k.links)+len(k.senders)+len(k.peers) == 0 {
		return false
	}
	switch before, now := old.Instance, l.Instance; {
	case now.LastDirty != before.LastDirty:
		return now.LastDirty < before.LastDirty
	case origin.Replicated(): // between two servers, every server decides alike
		return false
	default:
		return l.reported() != old.reported() || l.Permanent != old.Permanent || now.Fingerprint() != before.Fingerprint()
	}
}

// restart replaces a lease by l, a registration with the same key, last renewed at a moment.
func (r *Registry) restart(origin Origin, old, l *Lease, renewed Stamp) Result {
	r.keepRenewal(l.Handle.Slot)
	r.tables.renewals.renew(l.Handle.Slot, renewed)
	r.startLease(old, l, origin, renewed)
	return Result{Index: r.index, Handle: l.Handle}
}

// recordReregistration records that l, a registration, has replaced old.
func (r *Registry) recordReregistration(old, l *Lease, origin Origin) {
	kind := EventReregistered
	if l.Instance.Status != old.Instance.Status {
		kind = EventStatus
	}
	r.recordEvent(l, origin, Event{Kind: kind})
}

// storedIsNewer reports whether a stored instance stays because it is newer than one that registers with the
// timestamp dirty. An instance without a status never stays. It waits for its client to register again (every
// heartbeat is refused), and would wait for ever if the deleted override had brought a timestamp from a clock ahead
// of the client's (Netflix/eureka issue 955).
func storedIsNewer(stored *Instance, dirty int64) bool {
	return stored.LastDirty > dirty && stored.Status != Unknown
}

// keeps reports whether a stored instance stays when another registers with the timestamp dirty. For what another
// server sends, the timestamp alone decides. Of two registrations by clients here the later one counts, whatever
// their clocks say: otherwise a registration from a clock that was ahead would be listed as long as its successor
// lives. The only exception is a registration that was already replaced, because it arrived late or is a repetition;
// it is kept out unless heartbeats have said since that its client lives.
func (r *Registry) keeps(origin Origin, l *Lease, dirty int64) bool {
	switch stored := l.Instance; {
	case r.level < Level3:
		return storedIsNewer(stored, dirty) && (origin.Replicated() || !r.ahead(stored.LastDirty))
	case origin.Replicated():
		return storedIsNewer(stored, dirty) || stored.Status != Unknown && l.HasReplaced(dirty)
	default:
		if l.HasReplaced(dirty) && r.tables.renewals.at(l.Handle.Slot).asked&(1<<Unknown) != 0 {
			return false
		}
		return stored.Status != Unknown && dirty != stored.LastDirty && (dirty == l.Said || dirty == l.Outdated)
	}
}

// succeed records in l, which replaces old by a registration, the outdated timestamps; said is Lease.Said.
func (r *Registry) succeed(l, old *Lease, said int64) {
	if r.level >= Level3 && l.Instance.LastDirty != old.Instance.LastDirty {
		l.Said, l.Outdated = said, max(old.Outdated, old.Instance.LastDirty)
	}
}

// said returns Lease.Said for a copy from another server or a file.
func (r *Registry) said(op Replica) int64 {
	if r.level < Level3 {
		return 0
	}
	return op.Said
}

// maxAhead is how far, in ms, the clocks of clients and servers may differ.
const maxAhead = 3_600_000

// ahead reports whether a timestamp lies in the future: a client's or a server's clock was wrong and is right again
// (see dirty). It does not keep a client out, which would have to wait until that time. Other servers may still take
// it for newer, so whatever replaces it begins a new life (see outlives).
func (r *Registry) ahead(dirty int64) bool { return dirty-maxAhead > r.clock.Wall }

// startLease fills in what a registration sets in a new lease, and replaces old, which may be nil.
func (r *Registry) startLease(old, l *Lease, origin Origin, renewed Stamp) {
	l.Interval, l.Duration, _ = ClampLease(l.Instance.RenewalInterval, l.Instance.Duration)
	if l.Permanent {
		l.Interval, l.Duration = DefaultRenewalInterval, DefaultDuration
	}
	l.RegisteredAt = r.clock.Wall
	slot := r.tables.renewals.edit(l.Handle.Slot)
	if old != nil && l.Instance.LastDirty != old.Instance.LastDirty {
		slot.asked &^= 1<<l.reported() | 1<<Unknown
	}
	l.RenewedAt = renewed
	l.StartedLease = renewed.Lease
	l.Action = ActionAdded
	r.mark(l, origin)
	r.define(old, l)
	l.Registered, l.Described = r.index, r.index
	overridden := Unknown
	if old != nil {
		overridden = old.Instance.Overridden
	}
	if l.Instance.Overridden != overridden {
		l.Overrode = r.index
	}
	slot.attribute(l, origin, renewed.Lease)
	r.replaceLease(old, l, r.index)
	r.tables.registered = r.tables.registered.with(Recent{Wall: r.clock.Wall, Key: l.Key()})
}

// dirty returns the lastDirtyTimestamp of an incoming instance. A client that gives none has changed now, and in any
// case after the stored instance.
func (r *Registry) dirty(in *Instance, stored int64) int64 {
	if in.LastDirty != 0 {
		return in.LastDirty
	}
	return max(r.clock.Wall, after(stored))
}

// withAmazonID returns an instance of an Amazon data center with its id in the data center's
// metadata, where clients look for it.
func withAmazonID(in *Instance) *Instance {
	if in.DataCenter.Name != Amazon || in.DataCenter.Value("instance-id") != "" {
		return in
	}
	c := *in
	c.DataCenter.Metadata = MergePairs(c.DataCenter.Metadata, []Pair{{Key: "instance-id", Value: in.ID()}})
	return &c
}

// decided returns the instance of a registration that replaces a stored one: the stored override holds, or else the
// registration may bring one, and the rules give the status.
func decided(i *Instance, stored *Instance, origin Origin, dirty int64) *Instance {
	override := stored.Overridden
	if override == Unknown {
		override = i.Overridden
	}
	return i.with(decide(i.Status, override, stored.Status, origin.Replicated()), override, dirty)
}

// decide is the chain of status rules, first match wins. It returns an instance's status, given the one it reports
// (in a renewal: the stored one), the override for it, and the status of the existing lease (Unknown without one).
// Source: com.netflix.eureka.registry.rule, in the order of PeerAwareInstanceRegistryImpl.
func decide(reported, override, existing Status, replicated bool) Status {
	switch {
	case reported != Up && reported != OutOfService: // DownOrStartingRule
		return reported
	case override != Unknown: // OverrideExistsRule
		return override
	case !replicated && (existing == Up || existing == OutOfService): // LeaseExistsRule
		return existing
	default: // AlwaysMatchInstanceStatusRule
		return reported
	}
}

// perform merges pairs into an instance's metadata and renews the lease. Upstream registers the stored instance again
// under its old lastDirtyTimestamp, so that peers and the client's next registration undo it. Here the timestamp goes
// up by one, the least that peers take for newer, so that the client's next change still wins if its clock is behind.
// The lease goes on and the action is MODIFIED: clients treat it as they treat ADDED.
func (op UpdateMetadata) perform(r *Registry, _ uint64, origin Origin) Result {
	l := r.handles.byKey(op.Key)
	if l == nil {
		return Result{Outcome: NotFound}
	}
	r.renewLease(l, origin)
	merged := MergePairs(l.Instance.Metadata, op.Pairs)
	if slices.Equal(merged, l.Instance.Metadata) {
		return Result{}
	}
	c := *l.Instance
	c.Metadata, c.LastDirty = merged, after(c.LastDirty)
	n := *l
	n.Instance = &c
	n.outrank(l, r.level)
	if l.Service != nil {
		s := *l.Service
		s.ModifyIndex = r.Next()
		n.Service = &s
	}
	return r.exchange(l, &n, ActionModified, origin, Event{Kind: EventMetadata})
}

// compareVersion compares what the client says about itself with another copy of it: below 0, l is older.
func compareVersion(l *Lease, life uint32, dirty int64) int {
	return cmp.Or(cmp.Compare(l.Life, life), cmp.Compare(l.Instance.LastDirty, dirty))
}
