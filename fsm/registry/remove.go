package registry

import (
	"strings"
)

// perform removes an instance and its override. A cancel compares no timestamps, and goes into the recent queue
// whether or not the instance is known.
// Source: com.netflix.eureka.registry.AbstractInstanceRegistry.internalCancel.
func (op Cancel) perform(r *Registry, _ uint64, origin Origin) Result {
	l := r.handles.byKey(op.Key)
	if l == nil {
		r.recordCancel(op.Key)
		return Result{Outcome: NotFound}
	}
	r.remove(l, Canceled, origin, Event{Kind: EventCanceled})
	return Result{Index: r.index}
}

// perform removes the leases that its proposer saw expire, unless the epoch is over or the lease was renewed,
// registered again or removed since.
func (op Evict) perform(r *Registry, term uint64, origin Origin) Result {
	if !r.epoch.Leads(term, op.Epoch) {
		return Result{Outcome: Refused}
	}
	var res Result
	for _, item := range op.Items {
		l := r.handles.byHandle(item.Handle)
		if l == nil || l.Permanent || l.Registered != item.Registered || r.renewed(l).Lease != item.RenewedAt {
			continue
		}
		// Not all versions that apply this know the effects of a link, the end of self-preservation or a change of
		// leader on its end, and they must all record the same event.
		end := max(livedUntil(l, item.RenewedAt, r.settings.DoubledLease), r.established+l.grace())
		r.remove(l, Evicted, origin, Event{Kind: EventEvicted, For: r.clock.Lease - item.RenewedAt, By: r.withheld(end)})
		res.Count++
		res.Index = r.index
	}
	return res
}

// perform removes what another server removed, unless the stored instance is newer.
func (op Remove) perform(r *Registry, _ uint64, origin Origin) Result {
	op.Life = max(op.Life, 1)
	old := r.handles.byKey(op.Key)
	if old == nil {
		return r.recordUnknownRemoval(origin, op)
	}
	if compareVersion(old, op.Life, op.LastDirty) > 0 {
		return Result{Outcome: Older}
	}
	switch held := r.holds(old, op.Yields); {
	case op.Kind == Canceled && held && op.Life > old.Life+livesSkipped:
		return Result{Outcome: Held}
	case op.Kind == Canceled && (held || r.precedes(origin, old, op.Age)):
		return r.outlive(old, op.Life) // else the sender would keep its record, and not list the instance
	}
	if op.Kind == Evicted {
		if res := r.refuseEviction(origin, old, op); res.Outcome == Older {
			return res
		}
	}
	l := *old
	l.Life, l.Instance = op.Life, old.Instance.with(old.Instance.Status, old.Instance.Overridden, op.LastDirty)
	r.removeAs(old, l, op.Kind, origin, removalEvent(op))
	return Result{Index: r.index}
}

func removalEvent(op Remove) Event {
	if op.Kind == Evicted {
		return Event{Kind: EventEvicted, For: op.Age}
	}
	return Event{Kind: EventCanceled}
}

// refuseEviction answers Older to the eviction of an instance that is alive for all this server knows.
func (r *Registry) refuseEviction(origin Origin, l *Lease, op Remove) Result {
	renewed := r.tables.renewals.at(l.Handle.Slot).renewedByClient.Load()
	if r.tables.renewals.hearsay(l) {
		renewed = 0
	}
	switch {
	case renewed > 0 && renewed > r.ago(op.Age).Lease && !l.Local():
		res := r.makeLocal(l)
		res.Outcome = Older
		return res
	case renewed > 0 && renewed > r.ago(op.Age).Lease, l.Local() && origin.Kind != LocalPeer:
		return Result{Outcome: Older}
	}
	return Result{}
}

// recordUnknownRemoval records the removal of an instance that is not stored, unless an existing record is newer, or
// equal and refuses as much.
func (r *Registry) recordUnknownRemoval(origin Origin, op Remove) Result {
	rec, ok := r.record(op.Key)
	l := Lease{Instance: &Instance{App: strings.Clone(op.Key.App), InstanceID: strings.Clone(op.Key.ID)}}
	if ok {
		l = *rec.Lease
		c := compareVersion(&l, op.Life, op.LastDirty)
		if c > 0 || c == 0 && (rec.Kind == op.Kind || rec.Kind == Canceled) {
			return Result{}
		}
	}
	l.Instance = l.Instance.with(l.Instance.Status, l.Instance.Overridden, op.LastDirty)
	l.Life, l.Origin, l.Owner = op.Life, origin, strings.Clone(ownerBy(origin, op.Owner))
	l.Action, l.EvictedAt = ActionDeleted, max(r.clock.Wall, 1)
	r.mark(&l, origin)
	r.supersede(op.Key)
	r.tables.touch(op.Key.App, r.index)
	r.recordCancel(l.Key())
	history := History{rec.History.newest.with(r.event(&l, origin, removalEvent(op)))}
	r.addRecord(Removal{Kind: op.Kind, Full: true, Lease: &l, History: history})
	return Result{Index: r.index}
}
