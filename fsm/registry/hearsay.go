package registry

// UnknownAge is the age (ms) that is told of a lease whose last renewal is hearsay: whoever has the
// instance takes it for no renewal. A cluster that has it not takes the lease for one that has ended; a node
// without consensus see Registry.WithoutConsensus.
const UnknownAge = 365 * 24 * 60 * 60 * 1000

// Doubt makes hearsay of all renewals so far, because the lease clock stood still for an unknown time: the
// node was down, or its process was paused. Hearsay is as old as the lease clock says, or any older. It
// keeps a lease from ending here, but is told to nobody as a renewal and is no ground to keep what another
// server has seen end. The next renewal of a lease is as good as ever. It is no part of the state, and for
// a registry without consensus only: a cluster's lease clock runs whichever node is down.
func (r *Registry) Doubt() { r.tables.renewals.doubts.Add(1) }

// WithoutConsensus makes this the registry of one node for itself. It enters what it knows nothing of also if
// that is hearsay elsewhere: who told it may have acknowledged it before it was down, and told nobody. It gets
// one lease. What ended meanwhile has a record of removal here.
func (r *Registry) WithoutConsensus() { r.withoutConsensus = true }

// hearsay says whether the lease in a slot was not renewed since the last Doubt. One that is permanent
// needs no renewals.
func (t *renewals) hearsay(l *Lease) bool {
	e := t.at(l.Handle.Slot)
	return !l.Permanent && e.doubts.Load() != t.doubts.Load() && e.generation.Load() == l.Handle.Gen
}

// doubt makes hearsay of the last renewal of the lease in a slot.
func (t *renewals) doubt(slot uint32) { t.at(slot).doubts.Store(t.doubts.Load() - 1) }

// Age is how long ago (ms) a live lease was last renewed, at a moment of the lease clock (ms), as it is
// told to other servers: UnknownAge where that is hearsay.
func (v *View) Age(l *Lease, now int64) int64 {
	if v.tables.renewals.hearsay(l) {
		return UnknownAge
	}
	return max(now-v.LastRenewal(l).Lease, 0)
}
