package local

import (
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// saved is what one write brings to the disk.
type saved struct {
	frozen registry.Frozen // what changed after an index
	after  registry.Index
	level  byte           // of the formats, at which it is written
	whole  bool           // frozen is everything, and what the disk has is removed
	view   *registry.View // of the same moment

	amended []registry.Removal // records that the disk has, and that changed since without an index

	renewed  bool                  // the renewals of leases that did not change are there too
	renewals []registry.LeaseState // of them only the times count
}

// capture captures what changed after an index, to be written at a level of the formats; or everything.
func capture(r *registry.Registry, after registry.Index, level byte, everything bool) saved {
	what := saved{frozen: r.FreezeSince(after), after: after, level: level, view: r.View(), amended: onDisk(r.AmendedRecords(), after)}
	// If something was removed, and its record pruned, since the disk was written, nothing says any more that the disk
	// has what was removed.
	if everything || what.frozen.Pruned > after {
		what.frozen, what.whole, what.amended = r.Freeze(), true, nil
	}
	return what
}

// onDisk are those of the records, by index ascending, that a disk has which was written up to an index.
func onDisk(records []registry.Removal, written registry.Index) []registry.Removal {
	newer := slices.IndexFunc(records, func(rec registry.Removal) bool { return rec.Lease.Changed > written })
	if newer < 0 {
		return records
	}
	return records[:newer]
}

// renewedSince returns the leases that did not change, but were renewed at or after a moment of the lease
// clock (ms), in the order of their names.
func (w *saved) renewedSince(at int64) []*registry.Lease {
	var leases []*registry.Lease
	for l := range w.view.All() {
		if l.Changed <= w.after && w.view.LastRenewal(l).Lease >= at {
			leases = append(leases, l)
		}
	}
	return leases
}

// addRenewal adds the renewals of a lease that is still there. They may be newer than all else that is
// written, whose clock they must not pass.
func (w *saved) addRenewal(s registry.LeaseState, ok bool) {
	if !ok {
		return
	}
	now := w.frozen.Clock.Lease
	s.Renewed.Lease, s.Client, s.Remote = min(s.Renewed.Lease, now), min(s.Client, now), min(s.Remote, now)
	w.renewals = append(w.renewals, s)
}

const (
	// renewalsAge is how old (lease clock) the renewals on disk may get, and the lease clock itself, where
	// nothing else is to be written. After a crash clients seem to have been silent for so long.
	renewalsAge = 10 * time.Second
	// reserved is by how much the index jumps at each start: more than a node gives out before it
	// writes. An index is so never given out twice, also where the disk is written when the node stops.
	reserved registry.Index = 1 << 20
)
