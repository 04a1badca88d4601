package registry

import (
	"iter"
)

// Removals yields the records of removals, oldest first.
func (v *View) Removals() iter.Seq[Removal] {
	return func(yield func(Removal) bool) {
		v.tables.removed.Scan(func(_ Index, rec Removal) bool { return yield(rec) })
	}
}
