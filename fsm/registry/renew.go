package registry

func (op Renew) perform(r *Registry, _ uint64, origin Origin) Result {
	res := r.renew(origin, op)
	if op.Yields && res.Outcome == Newer && r.holds(r.handles.byKey(op.Key), true) {
		res.Outcome = Held
	}
	return res
}

// Contradicts reports whether a heartbeat of the instance's client, under the timestamp of its registration, says
// another status than the registration did, so that registering it would change the lease.
func (l *Lease) Contradicts(op Renew) bool {
	i, reported := l.Instance, l.reported()
	if op.Status == Unknown || op.Status == reported || reported == Unknown || l.Permanent {
		return false
	}
	ofIt := op.LastDirty != 0 && (op.LastDirty == i.LastDirty || op.LastDirty == l.Said)
	return ofIt && (l.Override != nil || decide(op.Status, i.Overridden, i.Status, false) != i.Status)
}

// renew performs a heartbeat. The lease is renewed before the timestamps are compared, so also if the answer is Newer
// or Older. Only an instance without a status is not renewed, and a renewal of a life that is over renews nothing.
// Source: com.netflix.eureka.registry.AbstractInstanceRegistry.renew, InstanceResource.renewLease.
func (r *Registry) renew(origin Origin, op Renew) Result {
	l := r.handles.byHandle(op.Handle)
	if op.Handle == (Handle{}) {
		l = r.handles.byKey(op.Key)
		if l == nil {
			return r.renewUnknown(op)
		}
	}
	if l == nil {
		return Result{Outcome: DeadHandle}
	}
	if op.Life != 0 && op.Life < l.Life {
		return Result{Outcome: Older}
	}
	i := l.Instance
	if l.Permanent {
		return r.renewPermanent(origin, op, l)
	}
	status := decide(i.Status, i.Overridden, i.Status, origin.Replicated())
	if status == Unknown {
		return Result{Outcome: NotFound}
	}
	var changed Result
	if r.heartbeatAgo(l, origin, op.Age) {
		r.expectation.Current++
		changed = r.renewOwner(l, origin, op.Yields)
	}
	if status != i.Status {
		old := r.handles.byHandle(l.Handle)
		next := *old
		next.Instance = i.with(status, i.Overridden, i.LastDirty)
		changed = r.exchange(old, &next, ActionModified, origin, Event{Kind: EventStatus})
	}
	if op.Life > l.Life {
		changed.Outcome = Newer
		return changed
	}
	l = r.handles.byHandle(l.Handle)
	if r.level >= Level3 && origin.Kind == Client && l.Contradicts(op) {
		return r.believe(origin, op, l, changed)
	}
	return r.compare(origin, op, l, changed)
}

// believe performs a client's heartbeat that says another status than its registration with the same timestamp. The
// client is asked to register again, because other things may have changed too: once for each status, until it has
// registered that one under another timestamp. Asking for ever would be a loop if a client registers the old status
// each time. So the second time, and whenever an override decides what is seen, the heartbeat counts as a
// registration; to most clients, registering again means a newer timestamp, which would end a drain.
func (r *Registry) believe(origin Origin, op Renew, l *Lease, res Result) Result {
	if l.Instance.Overridden == Unknown && r.tables.renewals.ask(l.Handle.Slot, op.Status) {
		res.Outcome = Newer
		return res
	}
	i := l.Instance
	return Result{Index: r.accept(origin, l, i.with(op.Status, Unknown, i.LastDirty), i.LastDirty).Index}
}

// renewPermanent answers a heartbeat of an instance that has no lease: there is nothing to renew. Another server that
// has a newer copy should send it.
func (r *Registry) renewPermanent(origin Origin, op Renew, l *Lease) Result {
	if !origin.Replicated() {
		return Result{}
	}
	if op.Life > l.Life {
		return Result{Outcome: Newer}
	}
	op.Overridden = Unknown // it comes with the registration
	return r.compare(origin, op, l, Result{})
}

// renewUnknown answers the renewal of an instance that has no lease. Another Rollcall server's renewal from before
// the cancel is refused. A Eureka server, which sends no lives, gets NotFound, and registers the instance: see
// refuses.
func (r *Registry) renewUnknown(op Renew) Result {
	rec, ok := r.record(op.Key)
	if ok && rec.Kind == Canceled && op.Life > 0 && compareVersion(rec.Lease, op.Life, op.LastDirty) >= 0 {
		return Result{Outcome: Refused}
	}
	return Result{Outcome: NotFound}
}

// Ignores reports whether a renewal by name would be answered NotFound and change nothing: no such lease exists, and
// no recorded cancel whose life could be compared.
func (r *Registry) Ignores(op Renew) bool {
	if r.handles.byKey(op.Key) != nil {
		return false
	}
	rec, ok := r.record(op.Key)
	return op.Life == 0 || !ok || rec.Kind != Canceled
}

// compare answers a renewal by the timestamps of the sender's and the stored instance. A server that has a newer copy
// sends the override with it, which is stored at once.
func (r *Registry) compare(origin Origin, op Renew, l *Lease, res Result) Result {
	switch stored := l.Instance; {
	case op.LastDirty == 0 || op.LastDirty == stored.LastDirty || origin.Replicated() && op.Life == 0 && l.HasReplaced(op.LastDirty):
		return res
	case op.LastDirty > stored.LastDirty:
		if origin.Kind == Client && l.HasReplaced(op.LastDirty) {
			r.tables.renewals.ask(l.Handle.Slot, Unknown)
		}
		if origin.Replicated() && op.Overridden != Unknown && op.Overridden != stored.Overridden {
			i := stored.with(stored.Status, op.Overridden, stored.LastDirty)
			res = r.edit(l, i, origin, Event{Kind: EventOverridden})
		}
		res.Outcome = Newer
	case origin.Replicated():
		res.Outcome = Older
	}
	return res
}

// RenewAll gives every lease one full duration from now on.
func (r *Registry) RenewAll() {
	for _, l := range r.handles.leases {
		if l != nil && !l.Permanent {
			r.tables.renewals.renew(l.Handle.Slot, r.clock)
		}
	}
}
