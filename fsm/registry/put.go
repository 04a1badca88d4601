package registry

// put makes l what the registry has of a key, in the place of old. Either may be nil: there is none. It alone
// enters, replaces and removes a lease where it is found: by handle and key, in the lists, in the catalog, and
// among what ends. The slot of l has its renewals already, which say when it ends. changed is the Index of a
// removal.
func (r *Registry) put(old, l *Lease, changed Index) {
	was, is := old, l
	switch {
	case old == nil:
		was = &Lease{}
		r.handles.put(l)
		r.tables.add(l)
	case l == nil:
		is = &Lease{}
		r.tables.delete(old, changed)
		r.handles.release(old)
	default:
		r.handles.put(l)
		r.tables.replace(old, l)
	}
	r.time(old, l)
	r.recatalog(was, is)
	r.replaceEnds(was, is)
}

// time looks at when a lease ends that takes the place of old, and counts who is expected to renew one.
// Either may be nil: there is none. One that is permanent never ends, and nobody is.
func (r *Registry) time(old, l *Lease) {
	was, is := old != nil && !old.Permanent, l != nil && !l.Permanent
	switch {
	case was && is:
		if l.Registered != old.Registered || l.Owner != old.Owner { // else it ends when old does
			r.expiry.Move(l.Handle.Slot, r.end(l))
		}
	case is:
		r.expiry.Add(l.Handle.Slot, r.end(l))
		r.expectation.join()
	case was:
		r.expiry.Remove(old.Handle.Slot)
		r.expectation.leave()
	}
}
