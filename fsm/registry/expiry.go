package registry

import "github.com/seed-20419f34/rollcall/fsm/order"

// leaseEnd is the end of something that a lease carries: an override or a quarantine.
type leaseEnd struct {
	set    Index // Set of what ends; no two of a kind share one
	kind   endKind
	handle Handle
}

type endKind uint8

const (
	endOfOverride endKind = iota
	endOfQuarantine
)

func eachEnd(l *Lease, do func(at int64, e leaseEnd)) {
	if o := l.Override; o != nil && o.Until > 0 {
		do(o.Until, leaseEnd{o.Set, endOfOverride, l.Handle})
	}
	if q := l.Quarantine; q != nil {
		do(q.Until, leaseEnd{q.Set, endOfQuarantine, l.Handle})
	}
}

// renewalGrace is how much time a client gets, beyond one renewal interval, to come back after an epoch was
// established or self-preservation went off: a client whose calls failed tries again only at its next beat.
const renewalGrace = 5000 // ms

// wayOfRenewals is the extra time (ms) for a lease of another datacenter, because its renewals arrive later.
const wayOfRenewals = 30_000

// graces holds the moments (lease clock, ms) when all leases last got a grace.
type graces struct {
	established int64 // when a leadership was established
	// resumed is when self-preservation went off because silent clients came back; 0 if it never did. They come back
	// one by one, and without the grace the last ones would be evicted as soon as enough others had renewed. Upstream
	// gives no grace.
	resumed int64
	each    bool // each epoch gives a full grace, see Registry.GraceEachEpoch
}

// began returns when the latest of them began.
func (g graces) began() int64 { return max(g.established, g.resumed) }

// localEnd returns the last moment of a lease of this datacenter: one duration after its last renewal, and at most
// one grace later if leaders change meanwhile; but not before its grace after self-preservation went off.
func localEnd(l *Lease, renewed int64, g graces, doubled bool) int64 {
	lived, grace := livedUntil(l, renewed, doubled), l.grace()
	if g.each {
		return max(lived, g.began()+grace)
	}
	return max(order.EndWithGrace(lived, g.established, grace), g.resumed+grace)
}

// livedUntil returns when a lease has lived one duration after its last renewal. doubled gives a second duration to a
// lease that was renewed since its registration, as Lease.renew does upstream.
func livedUntil(l *Lease, renewed int64, doubled bool) int64 {
	duration := int64(l.Duration) * 1000
	if doubled && renewed > l.StartedLease {
		return renewed + 2*duration
	}
	return renewed + duration
}

// grace returns how long (ms of lease clock) the lease cannot end after a leadership was established, or after
// self-preservation ended.
func (l *Lease) grace() int64 {
	return min(int64(l.Duration)*1000, int64(l.Interval)*1000+renewalGrace)
}
