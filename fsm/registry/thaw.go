package registry

import (
	"errors"
	"fmt"
	"slices"
)

// Thaw builds a registry from a frozen state, verifying what can be verified (handles unique and
// inside the table, order, indexes not above Index): a snapshot that lies is refused as a whole.
func Thaw(f Frozen) (*Registry, error) {
	if err := f.verify(); err != nil {
		return nil, fmt.Errorf("frozen registry: %w", err)
	}
	r := New()
	r.index, r.clock, r.epoch = f.Index, f.Clock, f.Epoch
	r.established, r.cluster = f.Established, f.Cluster
	r.tables.registered, r.tables.canceled = slices.Clone(f.Registered), slices.Clone(f.Canceled)
	r.thawHandles(f)
	for _, s := range f.Leases {
		r.thawLease(s)
	}
	r.thawRemovals(f)
	return r, nil
}

func (r *Registry) thawHandles(f Frozen) {
	r.handles.leases = make([]*Lease, f.Slots)
	r.handles.slots = make(map[Key]uint32, len(f.Leases))
	r.handles.generation = f.Generation
	r.handles.free = slices.Clone(f.Free)
	slices.Reverse(r.handles.free) // the table uses the last one first
	r.tables.renewals.grow(int(f.Slots))
}

func (r *Registry) thawLease(s LeaseState) {
	r.handles.put(s.Lease)
	r.handles.name(s.Lease)
	r.tables.add(s.Lease)
	r.tables.renewals.begin(s.Lease.Handle, s.Renewed)
	r.expiry.add(s.Lease.Handle.Slot, r.end(s.Lease))
}

func (r *Registry) thawRemovals(f Frozen) {
	r.tables.pruned = f.Pruned
	for _, rec := range f.Removals {
		r.tables.removed.Set(rec.Lease.Changed, rec)
		r.records[rec.Lease.Key()] = rec.Lease.Changed
		r.touchApp(rec.Lease.Instance.App, rec.Lease.Changed)
	}
	// A record that was pruned may have been an application's last change. Which one is not known
	// any more, so all applications count as changed then: at worst a document is built once more.
	for app := range r.View().Apps() {
		r.touchApp(app.Name, f.Pruned)
	}
	r.shared = nil
}

// touchApp notes a change of an application, if it still exists.
func (r *Registry) touchApp(name string, changed Index) {
	if _, ok := r.tables.apps.Get(name); ok {
		app := r.tables.editable(name)
		app.Changed = max(app.Changed, changed)
	}
}

// verify checks everything that the state's own operations keep true.
func (f *Frozen) verify() error {
	changed := make(map[Index]struct{}, len(f.Leases)+len(f.Removals))
	return errors.Join(
		f.verifySlots(),
		f.verifyLeases(changed),
		f.verifyRemovals(changed),
		f.verifyRecent(),
	)
}

// verifySlots checks that every slot of the table is either free or has one lease.
func (f *Frozen) verifySlots() error {
	if uint64(f.Slots) != uint64(len(f.Leases)+len(f.Free)) {
		return fmt.Errorf("%d slots, but %d leases and %d free slots", f.Slots, len(f.Leases), len(f.Free))
	}
	used := make([]bool, f.Slots)
	take := func(slot uint32) error {
		if slot >= f.Slots || used[slot] {
			return fmt.Errorf("slot %d is outside the table of %d or there twice", slot, f.Slots)
		}
		used[slot] = true
		return nil
	}
	for _, slot := range f.Free {
		if err := take(slot); err != nil {
			return err
		}
	}
	for _, s := range f.Leases {
		if s.Lease == nil || s.Lease.Instance == nil {
			return errors.New("a lease without an instance")
		}
		if err := take(s.Lease.Handle.Slot); err != nil {
			return err
		}
	}
	return nil
}

func (f *Frozen) verifyLeases(changed map[Index]struct{}) error {
	generations := make(map[uint32]struct{}, len(f.Leases))
	for i, s := range f.Leases {
		l := s.Lease
		if l == nil || l.Instance == nil {
			return nil // verifySlots reports it
		}
		if i > 0 && compareKeys(f.Leases[i-1].Lease.Key(), l.Key()) >= 0 {
			return fmt.Errorf("lease %s is not after %s", l.Key(), f.Leases[i-1].Lease.Key())
		}
		if err := f.verifyLive(s); err != nil {
			return fmt.Errorf("lease %s: %w", l.Key(), err)
		}
		if _, twice := generations[l.Handle.Gen]; twice {
			return fmt.Errorf("lease %s: generation %d is there twice", l.Key(), l.Handle.Gen)
		}
		generations[l.Handle.Gen] = struct{}{}
		if err := f.verifyChanged(l, changed); err != nil {
			return err
		}
	}
	return nil
}

func (f *Frozen) verifyLive(s LeaseState) error {
	l := s.Lease
	switch {
	case l.Handle.Gen == 0 || l.Handle.Gen > f.Generation:
		return fmt.Errorf("generation %d is not in 1 to %d", l.Handle.Gen, f.Generation)
	case l.EvictedAt != 0:
		return errors.New("it is live and was removed")
	case l.Registered == 0 || l.Registered > l.Changed:
		return fmt.Errorf("registered at %d, after its last change at %d", l.Registered, l.Changed)
	case l.Duration < MinDuration || l.Duration > MaxDuration:
		return fmt.Errorf("duration %d s is not in %d to %d", l.Duration, MinDuration, MaxDuration)
	case l.Interval < MinRenewalInterval || l.Interval > MaxRenewalInterval:
		return fmt.Errorf("renewal interval %d s is not in %d to %d", l.Interval, MinRenewalInterval, MaxRenewalInterval)
	case int(l.Instance.Status) >= len(statusNames) || int(l.Instance.Overridden) >= len(statusNames):
		return fmt.Errorf("status %d or override %d has no name", l.Instance.Status, l.Instance.Overridden)
	case s.Renewed.Lease > f.Clock.Lease:
		return fmt.Errorf("renewed at %d, after the lease clock's %d", s.Renewed.Lease, f.Clock.Lease)
	}
	return nil
}

func (f *Frozen) verifyRemovals(changed map[Index]struct{}) error {
	seen := make(map[Key]struct{}, len(f.Leases)+len(f.Removals))
	for _, s := range f.Leases {
		if s.Lease != nil && s.Lease.Instance != nil {
			seen[s.Lease.Key()] = struct{}{}
		}
	}
	before := Removal{Lease: &Lease{Changed: f.Pruned}}
	for _, rec := range f.Removals {
		if rec.Lease == nil || rec.Lease.Instance == nil {
			return errors.New("a record of removal without an instance")
		}
		key := rec.Lease.Key()
		if _, twice := seen[key]; twice {
			return fmt.Errorf("removal of %s: the instance is live or was removed twice", key)
		}
		seen[key] = struct{}{}
		if err := rec.verifyAfter(before); err != nil {
			return fmt.Errorf("removal of %s: %w", key, err)
		}
		if err := f.verifyChanged(rec.Lease, changed); err != nil {
			return err
		}
		before = rec
	}
	return nil
}

// verifyAfter checks a record of removal, given the one before it.
func (m Removal) verifyAfter(before Removal) error {
	switch {
	case m.Kind != Canceled && m.Kind != Evicted:
		return fmt.Errorf("unknown kind %d", m.Kind)
	case m.Lease.EvictedAt <= 0:
		return errors.New("without its time")
	case m.Lease.Changed <= before.Lease.Changed:
		return fmt.Errorf("index %d is not after %d", m.Lease.Changed, before.Lease.Changed)
	case before.Full && !m.Full:
		return errors.New("reduced, but an older one is not")
	}
	return nil
}

// verifyChanged checks that the change of l has an Index of its own.
func (f *Frozen) verifyChanged(l *Lease, changed map[Index]struct{}) error {
	if l.Changed == 0 || l.Changed > f.Index {
		return fmt.Errorf("change of %s: index %d is not in 1 to %d", l.Key(), l.Changed, f.Index)
	}
	if _, twice := changed[l.Changed]; twice {
		return fmt.Errorf("change of %s: index %d is there twice", l.Key(), l.Changed)
	}
	changed[l.Changed] = struct{}{}
	return nil
}

func (f *Frozen) verifyRecent() error {
	if n := max(len(f.Registered), len(f.Canceled)); n > recentLength {
		return fmt.Errorf("a recent queue has %d entries, more than %d", n, recentLength)
	}
	if f.Pruned > f.Index {
		return fmt.Errorf("removals up to %d are pruned, but the index is %d", f.Pruned, f.Index)
	}
	return nil
}
