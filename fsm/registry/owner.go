package registry

// ownerBy returns the datacenter that an instance belongs to after a registration; before is the previous one.
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

// renewOwner gives a renewed instance to the datacenter that its client talks to.
func (r *Registry) renewOwner(l *Lease, origin Origin, yields bool) Result {
	switch {
	case origin.Kind == Client && !l.Local():
		return r.takeOwnership(l)
	case origin.Kind == RemoteDC && l.Local() && !r.holds(l, yields):
		return r.cede(l, origin)
	}
	return Result{}
}

// takeOwnership makes this datacenter the owner of a remote instance that a client renewed here, when the link to its
// owner is cut or the owner no longer sees renewals: the owner will not say whether the instance lives. Without a
// link, no owner would ever object.
func (r *Registry) takeOwnership(l *Lease) Result {
	link, ok := find(r.servers.links, l.Owner)
	if !ok || !link.Silent(r.clock.Lease) && r.renewedLately(l, r.tables.renewals.at(l.Handle.Slot).renewedByRemote) {
		return Result{}
	}
	return r.makeLocal(l)
}

// makeLocal makes this datacenter the owner of an instance because clients renew it here.
func (r *Registry) makeLocal(l *Lease) Result {
	owned := *l
	owned.Owner = ""
	return r.exchange(l, &owned, ActionModified, FromClient, Event{Kind: EventOwned})
}

// cede gives an instance of this datacenter to the remote one that renews it, if no client has renewed it here for a
// while. Otherwise both would own it after its client was away.
func (r *Registry) cede(l *Lease, origin Origin) Result {
	if _, ok := find(r.servers.links, origin.DC); !ok || !r.deserted(l) {
		return Result{}
	}
	c := *l
	c.Owner = origin.DC
	return r.exchange(l, &c, ActionModified, origin, Event{Kind: EventCeded})
}

// deserted reports whether no client of this datacenter has renewed a lease lately.
func (r *Registry) deserted(l *Lease) bool {
	return !r.renewedLately(l, r.tables.renewals.at(l.Handle.Slot).renewedByClient.Load())
}

// renewedLately reports whether the client whose last renewal was at a moment may still be there: two intervals have
// not passed.
func (r *Registry) renewedLately(l *Lease, renewed int64) bool {
	return r.clock.Lease-renewed <= 2*int64(l.Interval)*1000
}

// clocksDiffer is how much earlier (ms) a renewal may seem to another datacenter than it was.
const clocksDiffer = 1000

// precedes reports whether another datacenter's message about this one's instance, last renewed age ms ago, is about
// a life that ended before the present one began. This datacenter no longer knows that life: its cluster was founded
// anew, or the record of the removal was pruned. A slow message makes the renewal seem later, so only a small
// difference of clocks can make it seem earlier.
func (r *Registry) precedes(origin Origin, l *Lease, age int64) bool {
	return l.Local() && origin.Kind == RemoteDC && r.ago(age).Lease+clocksDiffer < l.BeganLease
}

// outlive gives this datacenter's instance a life after one that another datacenter still knows.
func (r *Registry) outlive(old *Lease, life uint32) Result {
	l := *old
	l.Life = max(old.Life, life) + 1
	res := r.exchange(old, &l, ActionModified, FromClient)
	res.Outcome = Older
	return res
}

// Owner returns Lease.Owner of the live lease of a handle, "" also if the handle is dead.
func (r *Registry) Owner(h Handle) string {
	if l := r.handles.byHandle(h); l != nil {
		return l.Owner
	}
	return ""
}

// lives reports whether a lease belongs to this datacenter and its own clients have renewed it within its duration
// before now (lease clock, ms): renewals by another datacenter keep nobody out. A permanent one lives until removed.
func (k *otherServers) lives(l *Lease, t *renewals, now int64, g graces, doubled bool) bool {
	e := t.at(l.Handle.Slot)
	return l.Local() && (l.Permanent || e.isOf(l) && k.endsAt(l, e.renewedByClient.Load(), g, doubled) >= now)
}

// holds reports whether an operation of another datacenter, which yields or not, must leave a lease as it is.
func (r *Registry) holds(l *Lease, yields bool) bool {
	return yields && r.level >= Level3 && r.servers.lives(l, r.tables.renewals, r.clock.Lease, r.graces(), r.settings.DoubledLease)
}

// livesSkipped bounds how many lives ahead another datacenter's message may be for this one to outlive it: otherwise
// a few messages would bring the instance's life to MaxCount.
const livesSkipped = 1000
