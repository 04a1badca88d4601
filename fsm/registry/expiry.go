package registry

import (
	"cmp"
	"slices"
)

// leaseEnd is what ends of a lease beside itself: an override or a quarantine.
type leaseEnd struct {
	set    Index // of what ends; no two of a kind share one
	kind   endKind
	handle Handle
}

// endKind says what ends.
type endKind uint8

const (
	endOfOverride endKind = iota
	endOfQuarantine
)

func compareLeaseEnds(a, b leaseEnd) int {
	return cmp.Or(cmp.Compare(a.set, b.set), cmp.Compare(a.kind, b.kind))
}

func eachEnd(l *Lease, do func(at int64, e leaseEnd)) {
	if o := l.Override; o != nil && o.Until > 0 {
		do(o.Until, leaseEnd{o.Set, endOfOverride, l.Handle})
	}
	if q := l.Quarantine; q != nil {
		do(q.Until, leaseEnd{q.Set, endOfQuarantine, l.Handle})
	}
}

// renewalGrace is what a client is given, beyond one renewal interval, to come back after an epoch was
// established or self-preservation went off: a client whose calls failed before tries again only at its next
// beat.
const renewalGrace = 5000 // ms

// wayOfRenewals is what a lease of another datacenter is given (ms), for its renewals come later.
const wayOfRenewals = 30_000

// localEnd is the last moment of a lease of this datacenter: one duration after its last renewal, but not
// before min(duration, renewal interval + 5 s) after the grace of all leases began.
func localEnd(l *Lease, renewed, graceBegan int64, doubled bool) int64 {
	return max(livedUntil(l, renewed, doubled), graceBegan+l.Grace())
}

// livedUntil is when a lease has lived one duration after its last renewal. doubled gives a second duration
// to a lease that was renewed since its registration, as Lease.renew upstream does.
func livedUntil(l *Lease, renewed int64, doubled bool) int64 {
	duration := int64(l.Duration) * 1000
	if doubled && renewed > l.StartedLease {
		return renewed + 2*duration
	}
	return renewed + duration
}

// Expired says whether the lease's one duration has passed at now (lease clock, ms), given its last
// renewal and an additional time granted to all (ms). It ends strictly after the last millisecond.
// A renewal gives one duration, not two as upstream (Lease.renew adds the duration a second time);
// View.Ends knows of grace and of Settings.DoubledLease.
func (l *Lease) Expired(now, renewed, additional int64) bool {
	return l.EvictedAt > 0 || now > renewed+int64(l.Duration)*1000+additional
}

// Grace is the time (ms of lease clock) after the establishment of a leadership, and after the end of
// self-preservation, within which the
// lease does not end.
func (l *Lease) Grace() int64 {
	return min(int64(l.Duration)*1000, int64(l.Interval)*1000+renewalGrace)
}

// Ending returns what is due at a moment of the lease clock (ms), under the present epoch: an
// EndOverride or EndQuarantine for each override and quarantine whose time has passed, oldest first, then
// an ExpireCheck for each check whose TTL has, and a DeregisterCatalog for each service of which a check
// was critical for longer than its ReapAfter, oldest first. It costs O(due).
func (r *Registry) Ending(now int64) []Op {
	var due []Op
	for _, e := range r.ends.Due(now) {
		if e.kind == endOfOverride {
			due = append(due, EndOverride{r.epoch, e.handle, e.set})
		} else {
			due = append(due, EndQuarantine{r.epoch, e.handle, e.set})
		}
	}
	return append(due, r.checksEnding(now)...)
}

// Expired returns leases that have ended at now (lease clock, ms), oldest end first, at most limit:
// those that Ends says have ended. It costs O(due leases), not a walk; a lease that is returned and
// not evicted is returned again.
func (r *Registry) Expired(now int64, limit int) []EvictItem {
	due := r.due(now)
	slices.SortFunc(due, r.expiry.Compare)
	due = due[:min(len(due), max(limit, 0))]
	items := make([]EvictItem, len(due))
	for i, slot := range due {
		l := r.handles.leases[slot]
		items[i] = EvictItem{Handle: l.Handle, Registered: l.Registered, RenewedAt: r.renewed(l).Lease}
	}
	return items
}

// NeedsClock says that something waits for the lease clock: a lease, self-preservation, an override or
// quarantine that ends, a check that expects heartbeats or is to be reaped.
func (r *Registry) NeedsClock() bool {
	return r.expiry.Len() > 0 || r.preservation().State != PreservationOff || r.ends.Len() > 0 || r.catalog.Ends() > 0
}
