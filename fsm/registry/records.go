package registry

import (
	"maps"
	"slices"
)

// MaxRemovalAge is how long (ms of lease clock) the record of a removal is kept at most, along with the operators'
// acts that wait for the instance to come back.
const MaxRemovalAge = 24 * 60 * 60 * 1000

// Bounds of the records of removals.
const (
	maxRemovals = 100_000
	maxRemoved  = 256 << 20 // bytes of all records, see Removal.weight
)

// record returns the record of a key's removal; ok is false if no record is kept, or no longer.
func (r *Registry) record(key Key) (rec Removal, ok bool) {
	at, ok := r.records[key]
	if !ok {
		return Removal{}, false
	}
	return r.tables.removed.Get(at)
}

// overrideAgain returns the override with which an instance comes back: the one in its record, if it outlasts the
// lease and has not ended.
func (r *Registry) overrideAgain(rec Removal) *Override {
	o := rec.waiting(r.level, r.clock.Lease)
	if o == nil {
		return nil
	}
	c := *o
	c.Set, c.Drain = r.Next(), false
	return &c
}

// addRecord enters the record of a removal, and forgets the oldest if there are too many.
func (r *Registry) addRecord(rec Removal) {
	r.setRecord(rec)
	for n := r.tables.removed.Len(); n > maxRemovals || n > 1 && r.recordBytes > maxRemoved; n-- {
		r.prune()
	}
}

// setRecord enters the record of a removal, or replaces the one with the same Index.
func (r *Registry) setRecord(rec Removal) {
	r.keepRecord(rec.Lease.Key())
	r.records[rec.Lease.Key()] = rec.Lease.Changed
	if old, ok := r.tables.removed.Set(rec.Lease.Changed, rec); ok {
		r.recordBytes -= old.weight()
	}
	r.recordBytes += rec.weight()
	r.shared = nil
}

// amendWith replaces the lease in the record of a removal with l, and notes the event. Readers see no change, so it
// takes no Index.
func (r *Registry) amendWith(rec Removal, l Lease, origin Origin, e Event) {
	rec.Lease = &l
	rec.History.newest = rec.History.newest.with(r.event(&l, origin, e))
	r.setRecord(rec)
	if r.withoutConsensus {
		r.amended[rec.Lease.Changed] = struct{}{}
	}
}

// AmendedRecords returns, by Index ascending, the records of removals that changed without an Index since the
// last call: FreezeSince does not have them. It is for a registry WithoutConsensus, whose disk follows it.
func (r *Registry) AmendedRecords() []Removal {
	var records []Removal
	for _, at := range slices.Sorted(maps.Keys(r.amended)) {
		rec, _ := r.tables.removed.Get(at)
		records = append(records, rec)
	}
	clear(r.amended)
	return records
}

func (r *Registry) AmendedCount() int { return len(r.amended) }

// supersede drops the record of a key that is registered again: the change list now has the live instance, whose
// version is newer.
func (r *Registry) supersede(key Key) {
	if at, ok := r.records[key]; ok {
		r.keepRecord(key)
		delete(r.records, key)
		delete(r.amended, at)
		old, _ := r.tables.removed.Delete(at)
		r.recordBytes -= old.weight()
	}
}

// sweep ends a delta step: it reduces records that left the delta window, and prunes those that are too old. It costs
// O(removals in the delta window and those pruned).
func (r *Registry) sweep() {
	cut := deltaCut(r.clock.Lease)
	var left []Removal // the newest records are the ones not yet reduced
	r.tables.removed.Reverse(func(_ Index, rec Removal) bool {
		if rec.Full && rec.Lease.ChangedLease < cut {
			left = append(left, rec)
		}
		return rec.Full
	})
	for _, rec := range left {
		r.setRecord(rec.reduced(r.level >= Level3 && rec.Lease.outlasts())) // with the new strings in the map, too
	}
	for {
		_, oldest, ok := r.tables.removed.Min()
		if !ok || oldest.Lease.ChangedLease >= r.clock.Lease-MaxRemovalAge {
			return
		}
		r.prune()
	}
}

// prune forgets the oldest record of a removal.
func (r *Registry) prune() {
	at, rec, _ := r.tables.removed.PopMin()
	r.keepRecord(rec.Lease.Key())
	delete(r.records, rec.Lease.Key())
	delete(r.amended, at)
	r.recordBytes -= rec.weight()
	r.tables.pruned = at
	r.shared = nil
}

// remove removes a live lease and leaves a record; e is what happened.
func (r *Registry) remove(old *Lease, kind ChangeKind, origin Origin, e Event) {
	r.removeAs(old, *old, kind, origin, e)
}

// removeAs does what remove does, with l as the lease in the record.
func (r *Registry) removeAs(old *Lease, l Lease, kind ChangeKind, origin Origin, e Event) {
	l.Action = ActionDeleted
	l.EvictedAt = max(r.clock.Wall, 1) // 0 would mean that it lives
	l.RenewedAt = r.renewed(old)
	l.Origin = origin
	l.Service = nil
	r.mark(&l, origin)
	history := History{r.tables.renewals.past(old).with(r.event(&l, origin, e))}
	r.replaceLease(old, nil, r.index)
	r.keepRenewal(old.Handle.Slot)
	r.tables.renewals.release(old.Handle.Slot)
	r.recordCancel(l.Key())
	r.addRecord(Removal{Kind: kind, Full: true, Lease: &l, History: history})
}

func (r *Registry) recordCancel(key Key) {
	r.tables.canceled = r.tables.canceled.with(Recent{Wall: r.clock.Wall, Key: key})
	r.shared = nil
}

// keepRecord makes the undo restore the record of a key.
func (r *Registry) keepRecord(key Key) {
	if r.undo == nil {
		return
	}
	at, had := r.records[key]
	r.undo.Add(func() {
		if had {
			r.records[key] = at
		} else {
			delete(r.records, key)
		}
	})
}
