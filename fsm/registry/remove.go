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
	r.remove(l, Canceled, origin)
	return Result{Index: r.index}
}

// evict removes the leases that its proposer saw expire, unless the epoch is over or the lease was
// renewed, registered again or removed since.
func (r *Registry) evict(term uint64, origin Origin, op Evict) Result {
	if term != op.Epoch.Term || op.Epoch != r.epoch {
		return Result{Outcome: Refused}
	}
	var res Result
	for _, item := range op.Items {
		l := r.handles.byHandle(item.Handle)
		if l == nil || l.Registered != item.Registered || r.renewed(l).Lease != item.RenewedAt {
			continue
		}
		r.remove(l, Evicted, origin)
		res.Count++
		res.Index = r.index
	}
	return res
}

// remove takes a live lease out and leaves the record of its removal.
func (r *Registry) remove(old *Lease, kind ChangeKind, origin Origin) {
	l := *old
	l.Action = ActionDeleted
	l.EvictedAt = max(r.clock.Wall, 1) // 0 would say that it lives
	l.RenewedAt = r.renewed(old)
	l.Origin = origin
	r.mark(&l)
	r.tables.delete(old, r.index)
	r.tables.renewals.end(old.Handle.Slot)
	r.expiry.remove(old.Handle.Slot)
	r.handles.release(old)
	r.noteCancel(l.Key())
	r.remember(Removal{Kind: kind, Full: true, Lease: &l})
}

func (r *Registry) noteCancel(key Key) {
	r.tables.canceled = r.tables.canceled.with(Recent{Wall: r.clock.Wall, Key: key})
	r.shared = nil
}
