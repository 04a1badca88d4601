package registry

import (
	"cmp"
	"math"
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

// renewalGrace is what a client is given, beyond one renewal interval, to come back after an epoch was
// established or self-preservation went off: one that was not heard before tries again only at its next
// beat.
const renewalGrace = 5000 // ms

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

// due returns the slots of leases that have ended at now, and corrects the ends of those that were
// renewed since they were last looked at.
func (r *Registry) due(now int64) []uint32 { return r.expiry.Ended(now, r.slotEnd) }

// reorder looks at all leases again, after their ends may have become earlier.
func (r *Registry) reorder() { r.expiry.Reorder(r.slotEnd) }

func (r *Registry) slotEnd(slot uint32) int64 { return r.end(r.handles.leases[slot]) }

// end is the last millisecond of a live lease, by the lease clock.
func (r *Registry) end(l *Lease) int64 {
	return r.known.end(l, r.renewed(l).Lease, r.graceBegan(), r.settings.DoubledLease)
}

// Ends is the last moment (lease clock, ms) of a live lease, live as LastRenewal is: its duration
// after the last renewal, or the grace after the present leadership was established or self-preservation
// went off. A lease of another
// datacenter is given 30 s more, for the way of its renewals, and one whole duration after the link
// was heard again. One that is permanent has none: math.MaxInt64.
func (v *View) Ends(l *Lease) int64 {
	return v.known.end(l, v.LastRenewal(l).Lease, v.graceBegan, v.settings.DoubledLease)
}

// wayOfRenewals is what a lease of another datacenter is given (ms), for its renewals come later.
const wayOfRenewals = 30_000

// end is the last moment of a lease of whatever owner.
func (k *known) end(l *Lease, renewed, graceBegan int64, doubled bool) int64 {
	if l.Permanent {
		return math.MaxInt64
	}
	end := endOf(l, renewed, graceBegan, doubled)
	if l.Local() {
		return end
	}
	end = max(end, livedUntil(l, renewed, doubled)+wayOfRenewals)
	if link, ok := find(k.links, l.Owner); ok {
		end = max(end, link.Since+int64(l.Duration)*1000)
	}
	return end
}

// endOf is the last moment of a lease of the own datacenter: one duration after its last renewal, but not
// before min(duration, renewal interval + 5 s) after the grace of all leases began.
func endOf(l *Lease, renewed, graceBegan int64, doubled bool) int64 {
	return max(livedUntil(l, renewed, doubled), graceBegan+l.Grace())
}

// graceBegan is when (lease clock, ms) all leases were last given a grace: when the leadership was
// established, or when self-preservation went off because the silent came back. They come back one by
// one, and without it whoever comes last would be evicted as soon as enough others were heard. Upstream
// gives nobody the second one.
func (r *Registry) graceBegan() int64 {
	if r.settings.Expectation {
		return r.established
	}
	return max(r.established, r.returned)
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

// NeedsClock says that something waits for the lease clock: a lease, self-preservation, an override or
// quarantine that ends, a check that expects heartbeats or is to be reaped.
func (r *Registry) NeedsClock() bool {
	return r.expiry.Len() > 0 || r.preservation().State != PreservationOff || r.ends.Len() > 0 || r.catalog.Ends() > 0
}
