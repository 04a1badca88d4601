package registry

// ReplicaOf is a live lease as it is told to other servers, at a moment of the lease clock (ms).
func (v *View) ReplicaOf(l *Lease, now int64) Replica {
	i := l.Instance
	op := Replica{
		Instance: i.with(l.reported(), Unknown, i.LastDirty), Life: l.Life, Edit: l.Edit, Owner: l.Owner,
		Age: v.Age(l, now), Overridden: i.Overridden, Permanent: l.Permanent,
	}
	if o := l.Override; o != nil {
		op.OverrideBy = o.By
		if o.Until > 0 {
			op.OverrideFor = rest(o.Until, now)
		}
	}
	if q := l.Quarantine; q != nil {
		op.QuarantineBy, op.QuarantineFor = q.By, rest(q.Until, now)
	}
	return op
}

// rest is the time (ms) until an end. One that is due has not ended: 0 would say that there is none.
func rest(until, now int64) int64 { return max(until-now, 1) }

// RemoveOf is a record of removal as it is told to other servers, at a moment of the lease clock (ms).
// Of a reduced one the last renewal is not known; it counts as renewed when it was removed.
func (v *View) RemoveOf(rec Removal, now int64) Remove {
	l := rec.Lease
	return Remove{
		Key: l.Key(), Kind: rec.Kind, Life: l.Life, LastDirty: l.Instance.LastDirty, Owner: l.Owner,
		Age: max(now-rec.renewed(), 0),
	}
}

// Age is how long ago (ms) a live lease was last renewed, at a moment of the lease clock (ms), as it is
// told to other servers: UnknownAge where that is hearsay.
func (v *View) Age(l *Lease, now int64) int64 {
	if v.tables.renewals.hearsay(l) {
		return UnknownAge
	}
	return max(now-v.LastRenewal(l).Lease, 0)
}
