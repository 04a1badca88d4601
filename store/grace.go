package store

import (
	"iter"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// renewalGrace is what a client is given beyond one renewal interval, ms. Package registry holds every
// lease to it; here it only tells when the first one can end.
const renewalGrace = 5000

// allInGrace says that there are leases and not one of them can end yet at now, because a leadership
// was established only lately (both are lease clock, ms).
func allInGrace(v *registry.View, established, now int64) bool {
	some := false
	for l := range everyLease(v) {
		some = true
		if now > established+min(int64(l.Duration)*1000, int64(l.Interval)*1000+renewalGrace) {
			return false
		}
	}
	return some
}

// everyLease yields the leases of a view, the quarantined ones after the others.
func everyLease(v *registry.View) iter.Seq[*registry.Lease] {
	return func(yield func(*registry.Lease) bool) {
		for l := range v.Leases() {
			if !yield(l) {
				return
			}
		}
		v.Quarantined(yield)
	}
}
