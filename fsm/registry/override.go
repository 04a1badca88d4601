package registry

// setOverride forces a status and renews the lease. An override equal to the present status is
// stored like any other, so that it holds when the client reports something else (upstream drops it).
// Source: com.netflix.eureka.registry.AbstractInstanceRegistry.statusUpdate.
func (r *Registry) setOverride(op SetOverride) Result {
	l := r.handles.byKey(op.Key)
	if l == nil {
		return Result{Outcome: NotFound}
	}
	r.renewLease(l)
	if i := l.Instance; i.Status == op.Status && i.Overridden == op.Status {
		return Result{}
	}
	return r.change(l, l.Instance.with(op.Status, op.Status, max(l.Instance.LastDirty, op.LastDirty)))
}

// deleteOverride ends an override, if there is one, and renews the lease.
// Source: com.netflix.eureka.registry.AbstractInstanceRegistry.deleteStatusOverride.
func (r *Registry) deleteOverride(op DeleteOverride) Result {
	l := r.handles.byKey(op.Key)
	if l == nil {
		return Result{Outcome: NotFound}
	}
	r.renewLease(l)
	if l.Instance.Overridden == Unknown {
		return Result{}
	}
	return r.change(l, l.Instance.with(op.Fallback, Unknown, max(l.Instance.LastDirty, op.LastDirty)))
}
