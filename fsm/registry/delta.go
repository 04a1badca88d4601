package registry

import (
	"slices"
	"strconv"
	"strings"
)

// hashOrder is the lexicographic order of the status names.
var hashOrder = [...]Status{Down, OutOfService, Starting, Unknown, Up}

// HashCode is apps__hashcode: for each status with instances, in lexicographic order, NAME_COUNT_.
// Source: com.netflix.discovery.shared.Applications.getReconcileHashCode.
func (v *View) HashCode() string {
	var b strings.Builder
	for _, s := range hashOrder {
		if n := v.tables.counts[s]; n > 0 {
			b.WriteString(s.String() + "_" + strconv.Itoa(n) + "_")
		}
	}
	return b.String()
}

// Delta is what changed within the delta window (180 s of lease clock, cut in steps of 30 s, so an
// entry lives 180 to 210 s): each instance once, in its current or last state, grouped by
// application, sorted by application, and inside it removed instances after the others (a Java client
// that does not know an application adopts the delta's as a whole, and corrects it by what follows).
// A quarantined instance is shown as a removed one.
type Delta struct {
	Leases   []*Lease
	HashCode string // of the whole registry, of the same moment
	// Version changes with every change and every step, and never goes back within an epoch.
	Version uint64
}

// DeltaStep numbers the 30 s steps of the lease clock; two deltas of one Index and one step are equal.
func (v *View) DeltaStep() int64 { return v.stamp.Lease / deltaStep }

// Delta cuts the delta out of the change list: O(changes in the window).
func (v *View) Delta() Delta {
	cut := deltaCut(v.stamp.Lease)
	var leases []*Lease
	v.tables.live.Reverse(func(_ Index, l *Lease) bool {
		if l.ChangedLease < cut {
			return false
		}
		if l.Quarantine != nil {
			l = asRemoved(l)
		}
		leases = append(leases, l)
		return true
	})
	v.tables.removed.Reverse(func(_ Index, rec Removal) bool {
		if !rec.Full {
			return false
		}
		if storedHere(rec.Lease) {
			leases = append(leases, rec.Lease)
		}
		return true
	})
	slices.SortFunc(leases, compareInDelta)
	return Delta{
		Leases:   leases,
		HashCode: v.HashCode(),
		// Neither goes back, so the sum stands still only if both do.
		Version: uint64(v.index) + uint64(v.DeltaStep()),
	}
}

func compareInDelta(a, b *Lease) int {
	ka, kb := a.Key(), b.Key()
	if c := strings.Compare(ka.App, kb.App); c != 0 {
		return c
	}
	if gone := a.Action == ActionDeleted; gone != (b.Action == ActionDeleted) {
		if gone {
			return 1
		}
		return -1
	}
	return strings.Compare(ka.ID, kb.ID)
}

// asRemoved is a quarantined lease as the delta shows it.
func asRemoved(l *Lease) *Lease {
	c := *l
	c.Action = ActionDeleted
	return &c
}
