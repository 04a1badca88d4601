package registry

import "cmp"

// replaceEnds notes the ends of l instead of those of old, the lease of the same key. Either may be the
// zero Lease: there is none.
func (r *Registry) replaceEnds(old, l *Lease) {
	if old.Override == l.Override && old.Quarantine == l.Quarantine {
		return
	}
	eachEnd(old, r.ends.Delete)
	eachEnd(l, r.ends.Set)
}

// note remembers an event of a live lease, as it is afterwards.
func (r *Registry) note(l *Lease, origin Origin, e Event) {
	history := &r.tables.renewals.at(l.Handle.Slot).history
	history.Store(history.Load().with(r.event(l, origin, e)))
}

// event fills in what is the same for all events: the time, who sent the operation, and the status.
func (r *Registry) event(l *Lease, origin Origin, e Event) Event {
	e.At, e.Times, e.Origin, e.Status = r.clock, 1, origin, l.Instance.Status
	if e.Kind == EventOverridden {
		e.Status = l.Instance.Overridden
	}
	return e
}

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
	if was.Service != is.Service {
		r.catalog.ReplaceService(cmp.Or(l, old).Key(), was.Service, is.Service, r.moment())
	}
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

// renewed is the last renewal of a live lease.
func (r *Registry) renewed(l *Lease) Stamp {
	s, _ := r.tables.renewals.last(l.Handle)
	return s
}

// renewLease notes that a live lease was renewed now. It is no change.
func (r *Registry) renewLease(l *Lease, origin Origin) { r.tables.renewals.beat(l, origin, r.clock) }

// heartbeat is renewLease by the client itself, of whom it is remembered if it is late.
func (r *Registry) heartbeat(l *Lease, origin Origin) { r.heartbeatAt(l, origin, r.clock) }

func (r *Registry) heartbeatAt(l *Lease, origin Origin, at Stamp) {
	silent := at.Lease - r.tables.renewals.beat(l, origin, at)
	if !l.Permanent && silent*2 > int64(l.Interval)*3000 {
		r.note(l, origin, Event{Kind: EventRenewedLate, For: silent})
	}
}

// heartbeatAgo is a heartbeat some ms ago, of which another server tells now. It says whether the lease
// is renewed by that: not if it was renewed later than that already.
func (r *Registry) heartbeatAgo(l *Lease, origin Origin, ms int64) bool {
	if ms == 0 {
		r.heartbeat(l, origin)
		return true
	}
	at := r.ago(ms)
	if at.Lease < r.renewed(l).Lease {
		r.tables.renewals.at(l.Handle.Slot).hear(l, origin, at.Lease)
		return false
	}
	r.heartbeatAt(l, origin, at)
	return true
}

// maxAgo bounds (ms) how long ago another server may say that something was. No lease lives as long.
const maxAgo = 7 * 24 * 60 * 60 * 1000

// ago is the moment some ms ago.
func (r *Registry) ago(ms int64) Stamp {
	ms = min(max(ms, 0), maxAgo)
	return Stamp{Lease: r.clock.Lease - ms, Wall: r.clock.Wall - ms}
}

// change replaces a live lease's instance in place: the lease goes on. e is what happened.
func (r *Registry) change(old *Lease, instance *Instance, origin Origin, e Event) Result {
	l := *old
	l.Instance = instance
	return r.exchange(old, &l, ActionModified, origin, e)
}

// edit is change where the override is another one, or ended. Its details end with it.
func (r *Registry) edit(old *Lease, instance *Instance, origin Origin, e Event) Result {
	l := *old
	l.Instance, l.Override = instance, nil
	l.Edit++
	return r.exchange(old, &l, ActionModified, origin, e)
}

// exchange puts l, a changed copy, in the place of a live lease: the lease goes on.
func (r *Registry) exchange(old, l *Lease, action Action, origin Origin, events ...Event) Result {
	l.Action = action
	l.RenewedAt = r.renewed(old)
	r.mark(l, origin)
	for _, e := range events {
		markForEureka(l, e.Kind)
	}
	r.put(old, l, r.index)
	for _, e := range events {
		r.note(l, origin, e)
	}
	return Result{Index: r.index}
}

// markForEureka notes that the last change of l was of a kind that Eureka servers are told.
func markForEureka(l *Lease, kind EventKind) {
	switch kind {
	case EventMetadata, EventStatus:
		l.Described = l.Changed
	case EventOverridden, EventOverrideEnded:
		l.Overrode = l.Changed
	}
}

// mark takes the next Index for a change of l. What a node of the own datacenter sent counts for
// nobody: it tells the others itself.
func (r *Registry) mark(l *Lease, origin Origin) {
	r.step()
	l.Changed, l.ChangedLease = r.index, r.clock.Lease
	switch origin.Kind {
	case Client:
		l.ByClient = r.index
	case RemoteDC:
		l.ByRemote = r.index
	}
	l.UpdatedAt = r.clock.Wall
	if l.Instance.Status == Up && l.ServiceUpAt == 0 {
		l.ServiceUpAt = r.clock.Wall
	}
}
