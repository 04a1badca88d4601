package registry

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
)

// Bounds of the records of removals.
const (
	maxRemovalAge = 24 * 60 * 60 * 1000 // ms of lease clock, looked at once per delta step
	maxRemovals   = 100_000
	maxRemoved    = 256 << 20 // bytes of all records, see Removal.weight
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
	if err := v.reachesBack(after); err != nil {
		return nil, err
	}
	var changes []Change
	for c := range v.since(after) {
		if changes = append(changes, c); len(changes) == limit {
			break
		}
	}
	return changes, nil
}

// ChangesOf returns the selected ones of the changes after an index, oldest first. It fails as
// Changes does.
func (v *View) ChangesOf(after Index, which Selector) ([]Change, error) {
	if err := v.reachesBack(after); err != nil {
		return nil, err
	}
	var changes []Change
	for c := range v.since(after) {
		if which.Selects(c.Lease.Key()) {
			changes = append(changes, c)
		}
	}
	return changes, nil
}

// reachesBack fails with ErrTooOld if the change list does not have all changes after an index.
func (v *View) reachesBack(after Index) error {
	if after < v.tables.pruned {
		return fmt.Errorf("changes after %d, removals up to %d are forgotten: %w", after, v.tables.pruned, ErrTooOld)
	}
	return nil
}

// since yields the elements of the change list after an index, oldest first.
func (v *View) since(after Index) iter.Seq[Change] {
	return func(yield func(Change) bool) {
		if after >= v.index {
			return
		}
		live, removed := v.tables.live.Iter(), v.tables.removed.Iter()
		moreLive, moreRemoved := live.Seek(after+1), removed.Seek(after+1)
		for moreLive || moreRemoved {
			var c Change
			if moreLive && (!moreRemoved || live.Key() < removed.Key()) {
				c = changeOf(live.Value())
				moreLive = live.Next()
			} else {
				rec := removed.Value()
				c = Change{Index: removed.Key(), Lease: rec.Lease, Kind: rec.Kind}
				moreRemoved = removed.Next()
			}
			if !yield(c) {
				return
			}
		}
	}
}

// changeOf is the last change of a live lease.
func changeOf(l *Lease) Change {
	c := Change{Index: l.Changed, Lease: l, Kind: Live}
	if l.Quarantine != nil {
		c.Kind = Hidden
	}
	return c
}

// Removal returns the record of a removal; ok is false if there is none, or no longer. It walks the
// records, newest first.
func (v *View) Removal(key Key) (rec Removal, ok bool) {
	v.tables.removed.Reverse(func(_ Index, m Removal) bool {
		if ok = m.Lease.Key() == key; ok {
			rec = m
		}
		return !ok
	})
	return rec, ok
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
	r.setRecord(rec)
	for n := r.tables.removed.Len(); n > maxRemovals || n > 1 && r.recordBytes > maxRemoved; n-- {
		r.prune()
	}
}

// setRecord enters the record of a removal, or puts it in the place of the one of the same Index.
func (r *Registry) setRecord(rec Removal) {
	r.records[rec.Lease.Key()] = rec.Lease.Changed
	if old, ok := r.tables.removed.Set(rec.Lease.Changed, rec); ok {
		r.recordBytes -= old.weight()
	}
	r.recordBytes += rec.weight()
	r.shared = nil
}

// amend changes the record of a removal. Readers see no change, so it takes no Index.
func (r *Registry) amend(rec Removal) {
	r.setRecord(rec)
	if r.withoutConsensus {
		r.amended[rec.Lease.Changed] = struct{}{}
	}
}

// Amended returns, by Index ascending, the records of removals that changed without an Index since it was last
// called: FreezeSince does not have them. It is for a registry WithoutConsensus, whose disk follows it.
func (r *Registry) Amended() []Removal {
	var records []Removal
	for _, at := range slices.Sorted(maps.Keys(r.amended)) {
		rec, _ := r.tables.removed.Get(at)
		records = append(records, rec)
	}
	clear(r.amended)
	return records
}

// Amends is how many records Amended would return.
func (r *Registry) Amends() int { return len(r.amended) }

// supersede drops the record of a key that is registered again: the change list has the live instance
// now, whose version is newer than the record's.
func (r *Registry) supersede(key Key) {
	if at, ok := r.records[key]; ok {
		delete(r.records, key)
		delete(r.amended, at)
		old, _ := r.tables.removed.Delete(at)
		r.recordBytes -= old.weight()
	}
}

// leadsLong is how long (ms) a leadership lasts before an absence says anything.
const leadsLong = 10 * 60 * 1000

// TellsAbsence says whether what is neither here nor in a record is known, at a moment of the lease clock (ms),
// to have been removed. While no record was ever pruned there is one of everything that was removed, so that
// what is absent was never here: this cluster was founded anew, or its clients talked to another one so far.
// One that goes on with an older copy of its data has a new leadership, and its clients tell it what it lacks.
func (v *View) TellsAbsence(now int64) bool {
	return v.tables.pruned > 0 && now-v.graceBegan >= leadsLong
}

// sweep ends a delta step: records that left the delta window are reduced, and those that are too
// old are pruned. It costs O(removals in the delta window and those pruned).
func (r *Registry) sweep() {
	r.reduce()
	for {
		_, oldest, ok := r.tables.removed.Min()
		if !ok || oldest.Lease.ChangedLease >= r.clock.Lease-maxRemovalAge {
			return
		}
		r.prune()
	}
}

// prune forgets the oldest record of a removal.
func (r *Registry) prune() {
	at, rec, _ := r.tables.removed.PopMin()
	delete(r.records, rec.Lease.Key())
	delete(r.amended, at)
	r.recordBytes -= rec.weight()
	r.tables.pruned = at
	r.shared = nil
}

// reduced returns the record without what only the delta needs. Strings are copied, because they must
// not keep alive the memory that the instance came in.
func (m Removal) reduced() Removal {
	l := m.Lease
	return Removal{Kind: m.Kind, History: m.History, Lease: &Lease{
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
		Owner:        strings.Clone(l.Owner),
		Edit:         l.Edit,
		Quarantine:   l.Quarantine.clone(),
	}}
}
