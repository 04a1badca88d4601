package registry

import (
	"cmp"

	"github.com/seed-20419f34/rollcall/fsm/order"
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

// graces are the moments (lease clock, ms) at which all leases were last given a grace.
type graces struct {
	established int64 // a leadership was
	// Self-preservation went off because silent clients came back; 0: it never did. They come back one by one, and without
	// the grace the last ones would be evicted as soon as enough others had renewed. Upstream gives none.
	resumed int64
	each    bool // each epoch gives a whole grace, see Registry.GraceEachEpoch
}

// began is when the last of them began.
func (g graces) began() int64 { return max(g.established, g.resumed) }

// localEnd is the last moment of a lease of this datacenter: one duration after its last renewal, and no more than
// one grace later if leaders change meanwhile; but not before its grace after self-preservation went off.
func localEnd(l *Lease, renewed int64, g graces, doubled bool) int64 {
	lived, grace := livedUntil(l, renewed, doubled), l.Grace()
	if g.each {
		return max(lived, g.began()+grace)
	}
	return max(order.EndWithGrace(lived, g.established, grace), g.resumed+grace)
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
