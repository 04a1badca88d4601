package registry

import (
	"iter"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// quarantine hides an instance, or ends its quarantine. Its lease goes on and is not renewed: the
// operator is not the client. The record of a removal cannot be quarantined, but its quarantine,
// which waits for the instance to come back, can be ended.
func (r *Registry) quarantine(origin Origin, op Quarantine) Result {
	l := r.handles.byKey(op.Key)
	switch {
	case l == nil && op.For <= 0:
		return r.forgetQuarantine(origin, op)
	case l == nil:
		return Result{Outcome: NotFound}
	case op.For <= 0:
		return r.show(origin, l, op.By)
	}
	q := &Quarantined{By: op.By, At: r.clock, Until: order.Later(r.clock.Lease, op.For), Set: r.Next()}
	if old := l.Quarantine; old != nil && old.By == q.By && old.Until == q.Until {
		return Result{}
	}
	hidden := *l
	hidden.Quarantine = q
	hidden.Edit++
	return r.exchange(l, &hidden, ActionModified, origin, Event{Kind: EventQuarantined, For: op.For, By: op.By})
}

// endQuarantine lists an instance again, unless the epoch is over or the quarantine is another one by
// now.
func (r *Registry) endQuarantine(term uint64, origin Origin, op EndQuarantine) Result {
	if !r.epoch.Leads(term, op.Epoch) {
		return Result{Outcome: Refused}
	}
	l := r.handles.byHandle(op.Handle)
	if l == nil || l.Quarantine == nil || l.Quarantine.Set != op.Set {
		return Result{Outcome: NotFound}
	}
	return r.show(origin, l, Act{})
}

// show lists an instance again: for readers it is a new one.
func (r *Registry) show(origin Origin, l *Lease, by Act) Result {
	if l.Quarantine == nil {
		return Result{}
	}
	shown := *l
	shown.Quarantine = nil
	shown.Edit++
	return r.exchange(l, &shown, ActionAdded, origin, Event{Kind: EventQuarantineEnded, By: by})
}

// forgetQuarantine ends the quarantine of an instance that is gone: it will be listed when it
// registers again. No list changes, so it takes no Index.
func (r *Registry) forgetQuarantine(origin Origin, op Quarantine) Result {
	rec, ok := r.record(op.Key)
	if !ok {
		return Result{Outcome: NotFound}
	}
	if rec.Lease.Quarantine == nil {
		return Result{}
	}
	l := *rec.Lease
	l.Quarantine = nil
	rec.Lease = &l
	rec.History.newest = rec.History.newest.with(r.event(&l, origin, Event{Kind: EventQuarantineEnded, By: op.By}))
	r.amend(rec)
	return Result{}
}

// again is the quarantine of an instance that comes back: that of its record of removal, if its time
// has not passed.
func (q *Quarantined) again(now int64, set Index) *Quarantined {
	if q == nil || q.Until <= now {
		return nil
	}
	c := *q
	c.Set = set
	return &c
}

func (q *Quarantined) clone() *Quarantined {
	if q == nil {
		return nil
	}
	c := *q
	c.By = c.By.clone()
	return &c
}

func (a Act) clone() Act {
	return Act{Author: strings.Clone(a.Author), Reason: strings.Clone(a.Reason)}
}

// hidden is a quarantined lease as the delta shows it.
func (l *Lease) hidden() *Lease {
	c := *l
	c.Action = ActionDeleted
	return &c
}

// Find returns a live lease, quarantined or not, for operators; ok is false if there is none.
func (v *View) Find(key Key) (l *Lease, ok bool) {
	if l, ok := v.Lease(key); ok {
		return l, true
	}
	return v.tables.quarantined.Get(&Lease{Instance: &Instance{InstanceID: key.ID, App: key.App}})
}

// Quarantined yields the quarantined leases, sorted by application and id.
func (v *View) Quarantined(yield func(*Lease) bool) { v.tables.quarantined.Scan(yield) }

// All yields all leases, quarantined ones included, sorted by application and id.
func (v *View) All() iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		hidden := v.tables.quarantined.Iter()
		more := hidden.First()
		for l := range v.Leases() {
			for more && compareLeases(hidden.Item(), l) < 0 {
				if !yield(hidden.Item()) {
					return
				}
				more = hidden.Next()
			}
			if !yield(l) {
				return
			}
		}
		for more && yield(hidden.Item()) {
			more = hidden.Next()
		}
	}
}

// setOverride forces a status and renews the lease. An override equal to the present status is
// stored like any other, so that it holds when the client reports something else (upstream drops it).
// Source: com.netflix.eureka.registry.AbstractInstanceRegistry.statusUpdate.
func (r *Registry) setOverride(origin Origin, op SetOverride) Result {
	old := r.handles.byKey(op.Key)
	if old == nil {
		return Result{Outcome: NotFound}
	}
	r.renewLease(old, origin)
	if old.Permanent && op.Status == Unknown { // it would have no status, and nobody would tell one
		return r.deleteOverride(origin, DeleteOverride{Key: op.Key, LastDirty: op.LastDirty, By: op.By})
	}
	details := r.override(old, op)
	if i := old.Instance; i.Status == op.Status && i.Overridden == op.Status && old.Override.says(details) {
		return Result{}
	}
	l := *old
	l.Instance = old.Instance.with(op.Status, op.Status, max(old.Instance.LastDirty, op.LastDirty))
	l.Override = details
	l.Edit++
	return r.exchange(old, &l, ActionModified, origin, Event{Kind: EventOverridden, For: op.For, By: op.By})
}

// override is what is to be known of an override; nothing of one to UNKNOWN, which is none.
func (r *Registry) override(l *Lease, op SetOverride) *Override {
	if op.Status == Unknown {
		return nil
	}
	o := &Override{By: op.By, At: r.clock, Reported: l.reported(), Set: r.Next()}
	if op.For > 0 {
		o.Until = order.Later(r.clock.Lease, op.For)
	}
	return o
}

// says whether two details, either of which may be nil, mean the same act and the same end. The same
// act later, for the same time, ends later.
func (o *Override) says(details *Override) bool {
	if o == nil {
		o = &Override{}
	}
	return details == nil || o.By == details.By && o.Until == details.Until
}

// reported is the status that the client reported last. That of an instance which brought its
// override is not known: its client has to register again.
func (l *Lease) reported() Status {
	switch i := l.Instance; {
	case l.Override != nil:
		return l.Override.Reported
	case i.Overridden != Unknown && i.Status == i.Overridden:
		return Unknown
	default:
		return i.Status
	}
}

// reportedBy returns the details after a registration: o itself if the client reports what it did
// before. A registration that brings an override has its status, which is not the client's own.
func (o *Override) reportedBy(in *Instance) *Override {
	if o == nil || in.Status == o.Reported || in.Overridden != Unknown && in.Status == in.Overridden {
		return o
	}
	c := *o
	c.Reported = in.Status
	return &c
}

// deleteOverride ends an override, if there is one, and renews the lease.
// Source: com.netflix.eureka.registry.AbstractInstanceRegistry.deleteStatusOverride.
func (r *Registry) deleteOverride(origin Origin, op DeleteOverride) Result {
	l := r.handles.byKey(op.Key)
	if l == nil {
		return Result{Outcome: NotFound}
	}
	r.renewLease(l, origin)
	if l.Instance.Overridden == Unknown {
		return Result{}
	}
	if l.Permanent { // no client registers again to tell its status
		op.Fallback = l.reported()
	}
	instance := l.Instance.with(op.Fallback, Unknown, max(l.Instance.LastDirty, op.LastDirty))
	return r.edit(l, instance, origin, Event{Kind: EventOverrideEnded, By: op.By})
}

// endOverride ends an override at its time, unless the epoch is over or the override is another one by
// now.
func (r *Registry) endOverride(term uint64, origin Origin, op EndOverride) Result {
	if !r.epoch.Leads(term, op.Epoch) {
		return Result{Outcome: Refused}
	}
	l := r.handles.byHandle(op.Handle)
	if l == nil || l.Override == nil || l.Override.Set != op.Set {
		return Result{Outcome: NotFound}
	}
	instance := l.Instance.with(l.Override.Reported, Unknown, l.Instance.LastDirty)
	return r.edit(l, instance, origin, Event{Kind: EventOverrideEnded})
}
