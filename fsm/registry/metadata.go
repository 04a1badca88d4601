package registry

import "slices"

// updateMetadata merges pairs into an instance's metadata and renews the lease. Upstream registers
// the stored instance again under its old lastDirtyTimestamp, so that peers and the client's next
// registration undo it; here the timestamp goes up by one, the least that peers take for newer, so
// that the client's next change still wins if its clock is behind. The lease goes on and the action
// is MODIFIED: clients treat it as they treat ADDED.
func (r *Registry) updateMetadata(origin Origin, op UpdateMetadata) Result {
	l := r.handles.byKey(op.Key)
	if l == nil {
		return Result{Outcome: NotFound}
	}
	r.renewLease(l, origin)
	merged := MergePairs(l.Instance.Metadata, op.Pairs)
	if slices.Equal(merged, l.Instance.Metadata) {
		return Result{}
	}
	c := *l.Instance
	c.Metadata, c.LastDirty = merged, after(c.LastDirty)
	n := *l
	n.Instance = &c
	if l.Service != nil {
		s := *l.Service
		s.ModifyIndex = r.Next()
		n.Service = &s
	}
	return r.exchange(l, &n, ActionModified, origin, Event{Kind: EventMetadata})
}
