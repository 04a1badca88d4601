package registry

import "github.com/seed-20419f34/rollcall/fsm/order"

// perform forces a status and renews the lease. An override equal to the present status is stored like any other, so
// that it holds when the client reports something else (upstream drops it).
// Source: com.netflix.eureka.registry.AbstractInstanceRegistry.statusUpdate.
func (op SetOverride) perform(r *Registry, _ uint64, origin Origin) Result {
	old := r.handles.byKey(op.Key)
	if old == nil {
		return Result{Outcome: NotFound}
	}
	r.renewLease(old, origin)
	if old.Permanent && op.Status == Unknown { // it would have no status, and no client would report one
		return DeleteOverride{Key: op.Key, LastDirty: op.LastDirty, By: op.By}.perform(r, 0, origin)
	}
	details := r.override(old, op)
	if i := old.Instance; i.Status == op.Status && i.Overridden == op.Status && sameDecision(old.Override, details) {
		return Result{}
	}
	l := *old
	l.Instance = old.Instance.with(op.Status, op.Status, old.raisedTo(op.LastDirty))
	l.Override = details
	l.Edit++
	return r.exchange(old, &l, ActionModified, origin, Event{Kind: EventOverridden, For: op.For, By: op.By})
}

// override returns the record of an override, or nil for one to UNKNOWN, which ends it. A drain does not shorten an
// override that outlives the lease: services that drain whenever they stop would end what an operator has decided.
func (r *Registry) override(l *Lease, op SetOverride) *Override {
	if op.Status == Unknown {
		return nil
	}
	if op.Drain && r.level >= Level3 && l.outlasts() {
		o := *l.Override
		o.Drain = o.Until != 0
		return &o
	}
	o := &Override{By: op.By, At: r.clock, Reported: l.reported(), Set: r.Next(), Drain: op.Drain && r.level >= Level3}
	if op.For > 0 {
		o.Until = order.Later(r.clock.Lease, op.For)
	}
	return o
}

// sameDecision reports whether o and details, which may be nil, mean the same act with the same end. The same
// act later, for the same time, ends later.
func sameDecision(o *Override, details *Override) bool {
	if o == nil {
		o = &Override{}
	}
	return details == nil || o.By == details.By && o.Until == details.Until && o.Drain == details.Drain
}

// perform ends an override, if there is one, and renews the lease.
// Source: com.netflix.eureka.registry.AbstractInstanceRegistry.deleteStatusOverride.
func (op DeleteOverride) perform(r *Registry, _ uint64, origin Origin) Result {
	l := r.handles.byKey(op.Key)
	if l == nil {
		return r.endWaitingOverride(origin, op)
	}
	r.renewLease(l, origin)
	if l.Instance.Overridden == Unknown {
		return Result{}
	}
	if l.Permanent { // no client registers again and reports its status
		op.Fallback = l.reported()
	}
	instance := l.Instance.with(op.Fallback, Unknown, l.raisedTo(op.LastDirty))
	return r.edit(l, instance, origin, Event{Kind: EventOverrideEnded, By: op.By})
}

// endWaitingOverride ends the override with which a removed instance would come back. No list changes, so it takes no
// Index; Count says that it ended one.
func (r *Registry) endWaitingOverride(origin Origin, op DeleteOverride) Result {
	rec, ok := r.record(op.Key)
	if !ok || r.overrideAgain(rec) == nil {
		return Result{Outcome: NotFound}
	}
	l := *rec.Lease
	l.Override, l.Instance = nil, l.Instance.with(l.Instance.Status, Unknown, l.Instance.LastDirty)
	r.amendWith(rec, l, origin, Event{Kind: EventOverrideEnded, By: op.By})
	return Result{Count: 1}
}

// perform ends an override when its time is up, unless the epoch is over or another override has replaced it.
func (op EndOverride) perform(r *Registry, term uint64, origin Origin) Result {
	if !r.epoch.Leads(term, op.Epoch) {
		return Result{Outcome: Refused}
	}
	l := r.handles.byHandle(op.Handle)
	if l == nil || l.Override == nil || l.Override.Set != op.Set {
		return Result{Outcome: NotFound}
	}
	if l.Override.Drain { // the drain goes on alone
		n, o := *l, *l.Override
		o.Until, n.Override, n.Edit = 0, &o, l.Edit+1
		return r.exchange(l, &n, ActionModified, origin)
	}
	instance := l.Instance.with(l.Override.Reported, Unknown, l.Instance.LastDirty)
	return r.edit(l, instance, origin, Event{Kind: EventOverrideEnded})
}
