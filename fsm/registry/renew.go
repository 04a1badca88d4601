package registry

// renew is a heartbeat. The lease is renewed before the timestamps are compared, so also where the
// answer is Newer or Older; only an instance without a status is not renewed.
// Source: com.netflix.eureka.registry.AbstractInstanceRegistry.renew, InstanceResource.renewLease.
func (r *Registry) renew(origin Origin, op Renew) Result {
	l := r.handles.byHandle(op.Handle)
	if op.Handle == (Handle{}) {
		l = r.handles.byKey(op.Key)
		if l == nil {
			return Result{Outcome: NotFound}
		}
	}
	if l == nil {
		return Result{Outcome: GoneHandle}
	}
	i := l.Instance
	status := decide(i.Status, i.Overridden, i.Status, origin.Replicated())
	if status == Unknown {
		return Result{Outcome: NotFound}
	}
	r.heartbeat(l, origin)
	r.expectation.Current++
	var changed Result
	if status != i.Status {
		i = i.with(status, i.Overridden, i.LastDirty)
		changed = r.change(l, i, origin, Event{Kind: EventStatus})
	}
	return r.compare(origin, op, i, changed)
}

// compare answers a renewal by the timestamps of the sender's and the stored instance. A server that
// has a newer one tells the override with it, which is stored at once.
func (r *Registry) compare(origin Origin, op Renew, stored *Instance, res Result) Result {
	switch {
	case op.LastDirty == 0 || op.LastDirty == stored.LastDirty:
		return res
	case op.LastDirty > stored.LastDirty:
		if origin.Replicated() && op.Overridden != Unknown && op.Overridden != stored.Overridden {
			l := r.handles.byKey(stored.Key())
			i := stored.with(stored.Status, op.Overridden, stored.LastDirty)
			res = r.change(l, i, origin, Event{Kind: EventOverridden})
		}
		res.Outcome = Newer
	case origin.Replicated():
		res.Outcome = Older
	}
	return res
}
