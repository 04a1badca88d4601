package registry

import "math"

// register adds an instance or replaces it.
// Source: com.netflix.eureka.registry.AbstractInstanceRegistry.register.
func (r *Registry) register(origin Origin, in *Instance) Result {
	in = withAmazonID(in)
	key := in.Key()
	if old := r.handles.byKey(key); old != nil {
		return r.registerAgain(origin, old, in)
	}
	return r.registerNew(origin, key, in)
}

// registerNew registers an instance that has no lease.
func (r *Registry) registerNew(origin Origin, key Key, in *Instance) Result {
	life := uint32(1)
	dirty := r.dirty(in, 0)
	var quarantine *Quarantined
	rec, ok := r.record(key)
	if ok {
		dirty = r.dirty(in, rec.Lease.Instance.LastDirty)
		newer := dirty > rec.Lease.Instance.LastDirty
		if origin.Replicated() && !newer && rec.Kind == Canceled {
			// What another server sent before it heard of the cancel must not undo it.
			return Result{Outcome: Refused}
		}
		life = rec.Lease.Life
		if newer || !origin.Replicated() {
			life++
		}
		quarantine = rec.Lease.Quarantine.again(r.clock.Lease, r.index+1)
		r.supersede(key)
	}
	status := decide(in.Status, in.Overridden, Unknown, origin.Replicated())
	l := &Lease{
		Instance: in.with(status, in.Overridden, dirty), Handle: r.handles.assign(), Life: life, Origin: origin,
		BeganLease: r.clock.Lease, Quarantine: quarantine,
	}
	r.tables.renewals.grow(len(r.handles.leases))
	r.begin(l)
	r.tables.add(l)
	r.tables.renewals.begin(l.Handle, r.clock, rec.History.newest)
	r.note(l, origin, Event{Kind: EventRegistered})
	r.expiry.add(l.Handle.Slot, r.end(l))
	r.ends.replace(&Lease{}, l)
	r.expectation.join()
	return Result{Index: r.index, Handle: l.Handle}
}

// registerAgain registers an instance that has a lease. Kept or replaced, it gets a new one; only
// what another server sends and is known already renews the old one.
func (r *Registry) registerAgain(origin Origin, old *Lease, in *Instance) Result {
	stored := old.Instance
	dirty := r.dirty(in, stored.LastDirty)
	if keeps(stored, dirty) {
		l := &Lease{Instance: stored.decided(stored, origin, stored.LastDirty), Override: old.Override, Origin: old.Origin}
		res := r.restart(old, l)
		r.note(l, origin, Event{Kind: EventKept})
		res.Outcome = KeptExisting
		return res
	}
	l := &Lease{Instance: in.decided(stored, origin, dirty), Override: old.Override.reportedBy(in), Origin: origin}
	if origin.Replicated() && l.Instance.equal(stored) {
		r.heartbeat(old, origin)
		r.know(old, l.Override)
		return Result{Handle: old.Handle}
	}
	res := r.restart(old, l)
	kind := EventReregistered
	if l.Instance.Status != stored.Status {
		kind = EventStatus
	}
	r.note(l, origin, Event{Kind: kind})
	return res
}

// know keeps what a registration told of an override. It is no change: readers see none, and before
// overrides had details there was none.
func (r *Registry) know(old *Lease, details *Override) {
	if details == old.Override {
		return
	}
	l := *old
	l.Override = details
	r.shared = nil
	r.handles.put(&l)
	r.tables.replace(old, &l)
	r.ends.replace(old, &l)
}

// restart replaces a lease by l, a new one of the same key, which gets the old one's handle.
func (r *Registry) restart(old, l *Lease) Result {
	l.Handle, l.Life, l.BeganLease = old.Handle, old.Life, old.BeganLease
	l.ServiceUpAt, l.Quarantine = old.ServiceUpAt, old.Quarantine
	r.begin(l)
	r.tables.replace(old, l)
	r.renewLease(l)
	r.expiry.move(l.Handle.Slot, r.end(l))
	r.ends.replace(old, l)
	return Result{Index: r.index, Handle: l.Handle}
}

// keeps says whether a stored instance stays although one with a timestamp of dirty registers: if it
// is newer. One without a status never stays. It waits for its client to register again (every
// heartbeat is refused), which would wait for ever if the override that was deleted had brought a
// timestamp from a clock that runs ahead of the client's (Netflix/eureka issue 955).
func keeps(stored *Instance, dirty int64) bool {
	return stored.LastDirty > dirty && stored.Status != Unknown
}

// begin fills in what a registration sets in a new lease, and makes it the lease of its handle.
func (r *Registry) begin(l *Lease) {
	l.Interval, l.Duration, _ = ClampLease(l.Instance.RenewalInterval, l.Instance.Duration)
	l.RegisteredAt = r.clock.Wall
	l.RenewedAt = r.clock
	l.StartedLease = r.clock.Lease
	l.Action = ActionAdded
	r.mark(l)
	l.Registered = r.index
	r.handles.put(l)
	r.handles.name(l)
	r.tables.registered = r.tables.registered.with(Recent{Wall: r.clock.Wall, Key: l.Key()})
}

// dirty is the lastDirtyTimestamp of an incoming instance. A client that gives none has changed now,
// and in any case after what is stored.
func (r *Registry) dirty(in *Instance, stored int64) int64 {
	if in.LastDirty != 0 {
		return in.LastDirty
	}
	return max(r.clock.Wall, after(stored))
}

// after is the next millisecond, if there is one.
func after(t int64) int64 {
	if t == math.MaxInt64 {
		return t
	}
	return t + 1
}

// withAmazonID returns an instance of an Amazon data center with its id in the data center's
// metadata, where clients look for it.
func withAmazonID(in *Instance) *Instance {
	if in.DataCenter.Name != Amazon || in.DataCenter.Value("instance-id") != "" {
		return in
	}
	c := *in
	c.DataCenter.Metadata = merge(c.DataCenter.Metadata, []Pair{{"instance-id", in.ID()}})
	return &c
}

// decided returns the instance that registers in the place of a stored one: the override that is
// stored holds, else it may bring one, and the rules give its status.
func (i *Instance) decided(stored *Instance, origin Origin, dirty int64) *Instance {
	override := stored.Overridden
	if override == Unknown {
		override = i.Overridden
	}
	return i.with(decide(i.Status, override, stored.Status, origin.Replicated()), override, dirty)
}

// with returns the instance with what the registry decides of it, itself if nothing differs.
func (i *Instance) with(status, override Status, dirty int64) *Instance {
	if i.Status == status && i.Overridden == override && i.LastDirty == dirty {
		return i
	}
	c := *i
	c.Status, c.Overridden, c.LastDirty = status, override, dirty
	return &c
}
