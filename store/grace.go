package store

import (
	"iter"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// allInGrace says that there are leases and not one of them can end yet at now, because a leadership
// was established only lately (both are lease clock, ms).
func allInGrace(v *registry.View, established, now int64) bool {
	some := false
	for l := range everyLease(v) {
		some = true
		if now > established+l.Grace() {
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
