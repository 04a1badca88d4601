package registry

import "iter"

// settlingTime is how long (ms of lease clock) after a change of an instance two servers need not
// agree on it yet.
const settlingTime = 10_000

// Settled yields the live leases, quarantined ones included, that two servers can be expected to
// agree on at a moment of the lease clock (ms): unchanged for 10 s, and not ended. They are sorted by
// application and id. all is false: only those of an owner ("": the own datacenter).
func (v *View) Settled(now int64, all bool, owner string) iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		for l := range v.All() {
			if (all || l.Owner == owner) && now-l.ChangedLease >= settlingTime && v.Ends(l) >= now && !yield(l) {
				return
			}
		}
	}
}

// SettledIndex is the newest index of the change list up to which all changes are settled at a moment
// of the lease clock (ms): what is newer, comparisons may leave out, and readers of the list must tell.
func (v *View) SettledIndex(now int64) Index {
	settled, fresh := v.tables.pruned, v.index+1 // fresh: the oldest change that is not settled
	old := func(l *Lease) bool {
		if now-l.ChangedLease < settlingTime {
			fresh = min(fresh, l.Changed)
			return true
		}
		settled = max(settled, l.Changed)
		return false
	}
	v.tables.live.Reverse(func(_ Index, l *Lease) bool { return old(l) })
	v.tables.removed.Reverse(func(_ Index, m Removal) bool { return old(m.Lease) })
	return min(settled, fresh-1) // records that were made after it may have been forgotten for their number
}
