package registry

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Change is an element of the change list: a live instance at its last change, or the record of a removal.
type Change struct {
	Index Index
	Lease *Lease // a removed one has EvictedAt set; Removal says what is kept of it
	Kind  ChangeKind
}

// Changes returns the elements of the change list after an index, oldest first, at most limit (0: all). It fails with
// ErrTooOld if records newer than after were already pruned, or a restore came after it.
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

// ChangesOf returns the selected changes after an index, oldest first. It fails as Changes does.
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

// reachesBack fails with ErrTooOld if the change list lacks some changes after an index.
func (v *View) reachesBack(after Index) error {
	if after < v.tables.restored {
		return fmt.Errorf("changes after %d, the cluster was restored at %d: %w", after, v.tables.restored, ErrTooOld)
	}
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
		live, removed := order.NewMapCursor(v.tables.live), order.NewMapCursor(v.tables.removed)
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

// changeOf returns the last change of a live lease.
func changeOf(l *Lease) Change {
	c := Change{Index: l.Changed, Lease: l, Kind: Live}
	if l.Quarantine != nil {
		c.Kind = Hidden
	}
	return c
}

// Why returns the kind of the newest event of what changed, live as LastRenewal is; ok is false if no event is
// remembered.
func (v *View) Why(c Change) (kind EventKind, ok bool) {
	newest := v.tables.renewals.past(c.Lease)
	if rec, removed := v.tables.removed.Get(c.Index); removed {
		newest = rec.History.newest
	}
	if newest == nil {
		return 0, false
	}
	return newest.kind, true
}

// leadsLong is how long (ms) a leadership must last before an absence proves anything.
const leadsLong = 10 * 60 * 1000

// NewestFirst yields the elements of the change list, newest first, each with the History of its instance.
func (v *View) NewestFirst() iter.Seq2[Change, History] {
	return func(yield func(Change, History) bool) {
		live, removed := order.NewMapCursor(v.tables.live), order.NewMapCursor(v.tables.removed)
		moreLive, moreRemoved := live.Last(), removed.Last()
		for moreLive || moreRemoved {
			var c Change
			var h History
			if moreLive && (!moreRemoved || live.Key() > removed.Key()) {
				c = changeOf(live.Value())
				h = History{v.tables.renewals.past(c.Lease)}
				moreLive = live.Prev()
			} else {
				rec := removed.Value()
				c, h = Change{Index: removed.Key(), Lease: rec.Lease, Kind: rec.Kind}, rec.History
				moreRemoved = removed.Prev()
			}
			if !yield(c, h) {
				return
			}
		}
	}
}

// TellsAbsence reports whether anything that is neither here nor in a record is known, at a moment of the lease clock
// (ms), to have been removed. As long as no record was ever pruned, everything that was removed has one; so whatever
// is absent was never here: this cluster was founded anew, or its clients talked to another one so far. A cluster
// that goes on with an older copy of its data has a new leadership, and its clients register what it lacks.
func (v *View) TellsAbsence(now int64) bool {
	return v.tables.pruned > 0 && now-v.graces.began() >= leadsLong
}

// Selector selects changes. The zero Selector selects all.
type Selector struct {
	App string // upper case; "": every application
}

// Selects reports whether changes of an instance are wanted.
func (s Selector) Selects(key Key) bool { return s.App == "" || s.App == key.App }

// Changes holds the changes after an index that a Selector selected.
type Changes struct {
	// View contains them; its Index is where to go on. It may be newer than the last of Items.
	View  *View
	Items []Change // oldest first; never empty
}

// Counts returns how many instances are listed with each status.
func (v *View) Counts() Counts { return v.tables.counts }

// Delta is what changed within the delta window (180 s of lease clock, cut in steps of 30 s, so an entry lives 180 to
// 210 s): each instance once, in its current or last state, grouped and sorted by application, with removed instances
// last within each (a Java client that does not know an application adopts the delta's as a whole, and corrects it by
// what follows). A quarantined instance is shown as removed.
type Delta struct {
	Leases   []*Lease
	HashCode string // of the whole registry at the same moment
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
		if l.Quarantine != nil { // shown as removed
			c := *l
			c.Action = ActionDeleted
			l = &c
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
		HashCode: v.Counts().HashCode(),
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

// Incarnation is the least by which the Index rises when a new incarnation begins. Operations that were acknowledged
// after the state was saved, and are lost, took fewer indexes than that, so none of those is given out again. Package
// kv keeps the sum below 2^53, the limit of exact numbers in JSON.
const Incarnation Index = 1 << 32

const (
	start2026 = 1_767_225_600_000       // ms since the epoch
	msPerHour = 3_600_000               // ms
	mostHours = 1 << 20                 // half of all possible incarnations: a wrong clock must leave some
	perMs     = Incarnation / msPerHour // more indexes than a cluster gives out in one
)

// Raise begins a new incarnation: the Index rises to Incarnation above the newest there was, here or (beyond) where
// the state comes from. Readers of the change list have to read everything again, and everything counts as changed.
//
// If the state is an old copy, later incarnations may have begun that nothing here knows about. Then wall is the time
// (ms since the epoch; 0 means nothing is unknown), and the incarnation is at least the number of hours since 2026,
// fractions included: incarnations that were begun one by one stay below it, and so does everything an earlier one
// has given out since.
func (r *Registry) Raise(beyond Index, wall int64) Index {
	r.index = max(r.Next()-1, beyond) + Incarnation
	if ms := wall - start2026; ms > 0 {
		r.index = max(r.index, Index(min(ms/msPerHour, mostHours))*Incarnation+Index(ms%msPerHour)*perMs)
	}
	r.tables.restored = r.index
	r.shared = nil
	return r.index
}
