package registry

// ownerBy is the datacenter that an instance belongs to after a registration; before is the one until
// then.
func ownerBy(o Origin, before string) string {
	switch o.Kind {
	case Client:
		return ""
	case RemoteDC:
		return o.DC
	default:
		return before
	}
}

// renewOwner makes an instance that was renewed belong to those to whom its client talks.
func (r *Registry) renewOwner(l *Lease, origin Origin) Result {
	switch {
	case origin.Kind == Client && !l.Local():
		return r.takeOwnership(l)
	case origin.Kind == RemoteDC && l.Local():
		return r.cede(l, origin)
	}
	return Result{}
}

// takeOwnership makes an instance of another datacenter, which a client renewed here, the own one's, if its
// owner cannot be heard or does not hear the client any more: it will not tell whether it lives. Without
// a link there is no owner who would ever say anything else.
func (r *Registry) takeOwnership(l *Lease) Result {
	link, ok := find(r.servers.links, l.Owner)
	if !ok || !link.Silent(r.clock.Lease) && r.renewedLately(l, r.tables.renewals.at(l.Handle.Slot).renewedByRemote) {
		return Result{}
	}
	return r.makeLocal(l)
}

// makeLocal makes an instance the own datacenter's because its clients renew it here.
func (r *Registry) makeLocal(l *Lease) Result {
	owned := *l
	owned.Owner = ""
	return r.exchange(l, &owned, ActionModified, FromClient, Event{Kind: EventOwned})
}

// cede gives an instance of the own datacenter to the remote one that is heard to renew it, if no client
// has renewed it here for long. Else both would own it, after its client was away for a while.
func (r *Registry) cede(l *Lease, origin Origin) Result {
	if _, ok := find(r.servers.links, origin.DC); !ok || !r.deserted(l) {
		return Result{}
	}
	c := *l
	c.Owner = origin.DC
	return r.exchange(l, &c, ActionModified, origin, Event{Kind: EventCeded})
}

// deserted says that no client of the own datacenter has renewed a lease for long.
func (r *Registry) deserted(l *Lease) bool {
	return !r.renewedLately(l, r.tables.renewals.at(l.Handle.Slot).renewedByClient)
}

// renewedLately says whether whoever renewed a lease last at a moment may still be there: two intervals have
// not passed.
func (r *Registry) renewedLately(l *Lease, renewed int64) bool {
	return r.clock.Lease-renewed <= 2*int64(l.Interval)*1000
}

// clocksDiffer is how much earlier (ms) a renewal may seem to another datacenter than it was.
const clocksDiffer = 1000

// precedes says whether what another datacenter tells of the own one's instance, renewed last so long ago (ms),
// is of a life that ended before the present one began. The own datacenter has forgotten it then: it was
// founded anew, or its record of the removal was pruned. What is on its way longer seems to be renewed later, so
// that a small difference of clocks is all that may make it seem earlier.
func (r *Registry) precedes(origin Origin, l *Lease, age int64) bool {
	return l.Local() && origin.Kind == RemoteDC && r.ago(age).Lease+clocksDiffer < l.BeganLease
}

// outlive gives the own datacenter's instance a life after one that another datacenter still knows of.
func (r *Registry) outlive(old *Lease, life uint32) Result {
	l := *old
	l.Life = max(old.Life, life) + 1
	res := r.exchange(old, &l, ActionModified, FromClient)
	res.Outcome = Older
	return res
}

// Owner is Lease.Owner of the live lease of a handle; "" also if there is none.
func (r *Registry) Owner(h Handle) string {
	if l := r.handles.byHandle(h); l != nil {
		return l.Owner
	}
	return ""
}
