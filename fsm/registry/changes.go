package registry

import (
	"fmt"
	"strings"
)

// Bounds of the records of removals.
const (
	maxRemovalAge = 24 * 60 * 60 * 1000 // ms of lease clock, looked at once per delta step
	maxRemovals   = 100_000
)

// Change is an element of the change list: a live instance at its last change, or the record of a
// removal.
type Change struct {
	Index Index
	Lease *Lease // a removed one has EvictedAt set; see Removal for what is kept of it
	Kind  ChangeKind
}

// ChangeKind says what a Change is.
type ChangeKind uint8

// The kinds. Evicted and Canceled are records of removal; Hidden is a live lease in quarantine, which
// readers take for removed.
const (
	Live ChangeKind = iota
	Canceled
	Evicted
	Hidden
)

// Changes returns the elements of the change list after an index, oldest first, at most limit (0: all).
// It fails with ErrTooOld if records newer than after were pruned already.
func (v *View) Changes(after Index, limit int) ([]Change, error) {
	if after < v.tables.pruned {
		return nil, fmt.Errorf("changes after %d, removals up to %d are forgotten: %w", after, v.tables.pruned, ErrTooOld)
	}
	if after >= v.index {
		return nil, nil
	}
	var changes []Change
	live, removed := v.tables.live.Iter(), v.tables.removed.Iter()
	moreLive, moreRemoved := live.Seek(after+1), removed.Seek(after+1)
	for (moreLive || moreRemoved) && (limit == 0 || len(changes) < limit) {
		if moreLive && (!moreRemoved || live.Key() < removed.Key()) {
			changes = append(changes, Change{Index: live.Key(), Lease: live.Value(), Kind: Live})
			moreLive = live.Next()
			continue
		}
		changes = append(changes, Change{Index: removed.Key(), Lease: removed.Value().Lease, Kind: removed.Value().Kind})
		moreRemoved = removed.Next()
	}
	return changes, nil
}

// record returns the record of a key's removal; ok is false if there is none, or no longer.
func (r *Registry) record(key Key) (rec Removal, ok bool) {
	at, ok := r.records[key]
	if !ok {
		return Removal{}, false
	}
	return r.tables.removed.Get(at)
}

// remember enters the record of a removal, and forgets the oldest if there are too many.
func (r *Registry) remember(rec Removal) {
	r.records[rec.Lease.Key()] = rec.Lease.Changed
	r.tables.removed.Set(rec.Lease.Changed, rec)
	for r.tables.removed.Len() > maxRemovals {
		r.prune()
	}
}

// supersede drops the record of a key that is registered again: the change list has the live
// instance now, and its life tells that there was another.
func (r *Registry) supersede(key Key) {
	if at, ok := r.records[key]; ok {
		delete(r.records, key)
		r.tables.removed.Delete(at)
	}
}

// sweep ends a delta step: records that left the delta window are reduced, and those that are too
// old are pruned. It costs O(removals in the delta window and those pruned).
func (r *Registry) sweep() {
	r.reduce(deltaCut(r.clock.Lease))
	for {
		_, oldest, ok := r.tables.removed.Min()
		if !ok || oldest.Lease.ChangedLease >= r.clock.Lease-maxRemovalAge {
			return
		}
		r.prune()
	}
}

// reduce reduces the records of removals before cut. Those that are not reduced yet are the newest.
func (r *Registry) reduce(cut int64) {
	var old []Removal
	r.tables.removed.Reverse(func(_ Index, rec Removal) bool {
		if rec.Full && rec.Lease.ChangedLease < cut {
			old = append(old, rec)
		}
		return rec.Full
	})
	for _, rec := range old {
		rec = rec.reduced()
		r.tables.removed.Set(rec.Lease.Changed, rec)
		r.records[rec.Lease.Key()] = rec.Lease.Changed // with the new strings
		r.shared = nil
	}
}

// prune forgets the oldest record of a removal.
func (r *Registry) prune() {
	at, rec, _ := r.tables.removed.PopMin()
	delete(r.records, rec.Lease.Key())
	r.tables.pruned = at
	r.shared = nil
}

// reduced returns the record without what only the delta needs. The key is copied, because it must
// not keep alive the memory that the instance came in.
func (m Removal) reduced() Removal {
	l := m.Lease
	return Removal{Kind: m.Kind, Lease: &Lease{
		Instance: &Instance{
			InstanceID: strings.Clone(l.Instance.ID()),
			App:        strings.Clone(l.Instance.App),
			LastDirty:  l.Instance.LastDirty,
		},
		EvictedAt:    l.EvictedAt,
		Action:       l.Action,
		Life:         l.Life,
		Changed:      l.Changed,
		ChangedLease: l.ChangedLease,
		Origin:       l.Origin,
	}}
}
