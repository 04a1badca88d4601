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
	level  byte           // level of the formats to write at
	whole  bool           // frozen is everything, and what the disk has is removed
	view   *registry.View // of the same moment

	amended []registry.Removal // records on the disk that have since changed without an index

	renewed  bool                  // includes renewals of leases that did not change
	renewals []registry.LeaseState // only their times count
}

// capture captures what changed after an index, or everything, to be written at a level of the formats.
func capture(r *registry.Registry, after registry.Index, level byte, everything bool) saved {
	what := saved{frozen: r.FreezeSince(after), after: after, level: level, view: r.View(), amended: onDisk(r.AmendedRecords(), after)}
	// If something was removed, and its record pruned, since the last write, nothing tells any longer that the disk
	// still has what was removed.
	if everything || what.frozen.Pruned > after {
		what.frozen, what.whole, what.amended = r.Freeze(), true, nil
	}
	return what
}

// onDisk returns the records, by index ascending, that a disk written up to an index has.
func onDisk(records []registry.Removal, written registry.Index) []registry.Removal {
	newer := slices.IndexFunc(records, func(rec registry.Removal) bool { return rec.Lease.Changed > written })
	if newer < 0 {
		return records
	}
	return records[:newer]
}

// renewedSince returns the leases that did not change, but were renewed at or after a moment of the lease clock (ms),
// in the order of their names.
func (w *saved) renewedSince(at int64) []*registry.Lease {
	var leases []*registry.Lease
	for l := range w.view.All() {
		if l.Changed <= w.after && w.view.LastRenewal(l).Lease >= at {
			leases = append(leases, l)
		}
	}
	return leases
}

// addRenewal adds the renewals of a lease that is still there. They may be newer than everything else in the write,
// and must not pass its clock.
func (w *saved) addRenewal(s registry.LeaseState, ok bool) {
	if !ok {
		return
	}
	now := w.frozen.Clock.Lease
	s.Renewed.Lease, s.Client, s.Remote = min(s.Renewed.Lease, now), min(s.Client, now), min(s.Remote, now)
	w.renewals = append(w.renewals, s)
}

const (
	// renewalsAge is how old (lease clock) the renewals and the lease clock on disk may get while nothing else is to
	// be written. After a crash clients seem to have been silent for that long.
	renewalsAge = 10 * time.Second
	// reserved is the jump of the index at each start: more than a node hands out before it writes. So no index is
	// handed out twice, even if the disk is written only when the node stops.
	reserved registry.Index = 1 << 20
)
