package store

import "github.com/seed-20419f34/rollcall/fsm/registry"

// allInGrace says that there are leases and not one of them can end yet at now, because a leadership
// was established only lately (both are lease clock, ms).
func allInGrace(v *registry.View, established, now int64) bool {
	some := false
	for l := range v.All() {
		some = true
		if now > established+l.Grace() {
			return false
		}
	}
	return some
}
