package registry

import "slices"

// cancel removes an instance and its override. A cancel is compared with no timestamp, and noted in
// the recent queue whether or not the instance is known.
// Source: com.netflix.eureka.registry.AbstractInstanceRegistry.internalCancel.
func (r *Registry) cancel(origin Origin, key Key) Result {
	l := r.handles.byKey(key)
	if l == nil {
		r.noteCancel(key)
		return Result{Outcome: NotFound}
	}
	r.remove(l, Canceled, origin, Event{Kind: EventCanceled})
	return Result{Index: r.index}
}

// evict removes the leases that its proposer saw expire, unless the epoch is over or the lease was
// renewed, registered again or removed since.
func (r *Registry) evict(term uint64, origin Origin, op Evict) Result {
	if !r.epoch.Leads(term, op.Epoch) {
		return Result{Outcome: Refused}
	}
	var res Result
	for _, item := range op.Items {
		l := r.handles.byHandle(item.Handle)
		if l == nil || l.Permanent || l.Registered != item.Registered || r.renewed(l).Lease != item.RenewedAt {
			continue
		}
		// By itself: what a link, or the end of self-preservation, gives it beyond is not known to a state of
		// version 2, which remembers the event.
		end := l.end(item.RenewedAt, r.established, r.settings.DoubledLease)
		r.remove(l, Evicted, origin, Event{Kind: EventEvicted, For: r.clock.Lease - item.RenewedAt, By: r.withheld(end)})
		res.Count++
		res.Index = r.index
	}
	return res
}

// withheld says what let evictions go on, if self-preservation withheld that of a lease which ended at
// a moment, or would have; the zero Act: it did not.
func (r *Registry) withheld(end int64) Act {
	for i, p := range slices.Backward(r.transitions) {
		switch {
		case p.State == PreservationReleased && p.By == Act{}:
			return Act{Reason: "self-preservation was released when its time had passed"}
		case p.State == PreservationReleased:
			return Act{Author: p.By.Author, Reason: "self-preservation was released: " + p.By.Reason}
		case p.State.Withholds() && i < len(r.transitions)-1:
			return Act{Reason: "self-preservation withheld it until it went off"}
		case p.Since.Lease <= end:
			return Act{}
		}
	}
	return Act{}
}

// remove takes a live lease out and leaves the record of its removal; e is what happened.
func (r *Registry) remove(old *Lease, kind ChangeKind, origin Origin, e Event) {
	r.removeAs(old, *old, kind, origin, e)
}

// removeAs is remove with the record saying l of what it was.
func (r *Registry) removeAs(old *Lease, l Lease, kind ChangeKind, origin Origin, e Event) {
	l.Action = ActionDeleted
	l.EvictedAt = max(r.clock.Wall, 1) // 0 would say that it lives
	l.RenewedAt = r.renewed(old)
	l.Origin = origin
	l.Service = nil
	r.mark(&l, origin)
	history := History{r.tables.renewals.past(old.Handle).with(r.event(&l, origin, e))}
	r.put(old, nil, r.index)
	r.tables.renewals.end(old.Handle.Slot)
	r.noteCancel(l.Key())
	r.remember(Removal{Kind: kind, Full: true, Lease: &l, History: history})
}

func (r *Registry) noteCancel(key Key) {
	r.tables.canceled = r.tables.canceled.with(Recent{Wall: r.clock.Wall, Key: key})
	r.shared = nil
}
