package registry

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
	if !r.leads(term, op.Epoch) {
		return Result{Outcome: Refused}
	}
	var res Result
	why := r.released()
	for _, item := range op.Items {
		l := r.handles.byHandle(item.Handle)
		if l == nil || l.Registered != item.Registered || r.renewed(l).Lease != item.RenewedAt {
			continue
		}
		r.remove(l, Evicted, origin, Event{Kind: EventEvicted, For: r.clock.Lease - item.RenewedAt, By: why})
		res.Count++
		res.Index = r.index
	}
	return res
}

// released says why leases can be evicted, if self-preservation would withhold that had it not been
// released; the zero Act says that it would not.
func (r *Registry) released() Act {
	switch p := r.preservation(); {
	case p.State != PreservationReleased:
		return Act{}
	case p.By == Act{}:
		return Act{Reason: "self-preservation was released when its time had passed"}
	default:
		return Act{Author: p.By.Author, Reason: "self-preservation was released: " + p.By.Reason}
	}
}

// remove takes a live lease out and leaves the record of its removal; e is what happened.
func (r *Registry) remove(old *Lease, kind ChangeKind, origin Origin, e Event) {
	l := *old
	l.Action = ActionDeleted
	l.EvictedAt = max(r.clock.Wall, 1) // 0 would say that it lives
	l.RenewedAt = r.renewed(old)
	l.Origin = origin
	r.mark(&l)
	history := History{r.tables.renewals.past(old.Handle).with(r.event(&l, origin, e))}
	r.tables.delete(old, r.index)
	r.ends.replace(old, &Lease{})
	r.tables.renewals.end(old.Handle.Slot)
	r.expiry.remove(old.Handle.Slot)
	r.handles.release(old)
	r.expectation.leave()
	r.noteCancel(l.Key())
	r.remember(Removal{Kind: kind, Full: true, Lease: &l, History: history})
}

func (r *Registry) noteCancel(key Key) {
	r.tables.canceled = r.tables.canceled.with(Recent{Wall: r.clock.Wall, Key: key})
	r.shared = nil
}
