package registry

// Owner is Lease.Owner of the live lease of a handle; "" also if there is none.
func (r *Registry) Owner(h Handle) string {
	if l := r.handles.byHandle(h); l != nil {
		return l.Owner
	}
	return ""
}
