package registry

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// verify checks what the state's own operations keep true and the walk that read it cannot know: that walk already
// refuses values without a name, and missing ones. Each check relies on those before it. The catalog is checked while
// it is thawed.
func (f *Frozen) verify() error {
	checks := []func() error{f.verifySlots, f.verifyLeases, f.verifyRemovals, f.verifyIndexes,
		f.verifyDetails, f.verifyHistories, f.verifyTransitions, f.verifyBounds, f.verifyKnown}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// verifySlots checks that every slot of the table is either free or has one lease.
func (f *Frozen) verifySlots() error {
	if uint64(f.Slots) != uint64(len(f.Leases)+len(f.Free)) {
		return fmt.Errorf("%d slots, but %d leases and %d free slots", f.Slots, len(f.Leases), len(f.Free))
	}
	used := slices.Clone(f.Free)
	for _, s := range f.Leases {
		used = append(used, s.Lease.Handle.Slot)
	}
	slices.Sort(used)
	for i, slot := range used {
		if slot != uint32(i) {
			return fmt.Errorf("slot %d is not there once", i)
		}
	}
	return nil
}

func (f *Frozen) verifyLeases() error {
	generations := make([]uint64, 0, len(f.Leases))
	for i, s := range f.Leases {
		if i > 0 && f.Leases[i-1].Lease.Key().Compare(s.Lease.Key()) >= 0 {
			return fmt.Errorf("lease %s is not after %s", s.Lease.Key(), f.Leases[i-1].Lease.Key())
		}
		if err := f.verifyLive(s); err != nil {
			return fmt.Errorf("lease %s: %w", s.Lease.Key(), err)
		}
		generations = append(generations, s.Lease.Handle.Gen)
	}
	if twice, ok := repeated(generations); ok {
		return fmt.Errorf("generation %d is there twice", twice)
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
	case l.Duration < minDuration || l.Duration > maxDuration:
		return fmt.Errorf("duration %d s is not in %d to %d", l.Duration, minDuration, maxDuration)
	case l.Interval < minRenewalInterval || l.Interval > maxRenewalInterval:
		return fmt.Errorf("renewal interval %d s is not in %d to %d", l.Interval, minRenewalInterval, maxRenewalInterval)
	case s.Renewed.Lease > f.Clock.Lease:
		return fmt.Errorf("renewed at %d, after the lease clock's %d", s.Renewed.Lease, f.Clock.Lease)
	case l.BeganLease > l.StartedLease || l.StartedLease > s.Renewed.Lease:
		return fmt.Errorf("its life began at %d, its registration was at %d, its last renewal at %d", l.BeganLease, l.StartedLease, s.Renewed.Lease)
	case max(l.ByClient, l.ByRemote, l.Described, l.Overrode) > l.Changed:
		return fmt.Errorf("a part of it changed at %d, after its last change at %d", max(l.ByClient, l.ByRemote, l.Described, l.Overrode), l.Changed)
	case l.Defined == 0 || l.Defined > l.Changed || l.Quarantine != nil && l.Defined < l.Changed:
		return fmt.Errorf("defined at %d, with its last change at %d; it is quarantined: %t", l.Defined, l.Changed, l.Quarantine != nil)
	case max(s.Client, s.Remote) > max(s.Renewed.Lease, 0): // 0: none; the clock may be younger than the renewal
		return fmt.Errorf("a client or a replicator renewed it at %d, after its last renewal at %d", max(s.Client, s.Remote), s.Renewed.Lease)
	}
	return nil
}

func (f *Frozen) verifyRemovals() error {
	seen := make(map[Key]struct{}, len(f.Removals))
	before := Removal{Lease: &Lease{Changed: f.Pruned}}
	for _, rec := range f.Removals {
		key := rec.Lease.Key()
		compare := func(s LeaseState, key Key) int { return s.Lease.Key().Compare(key) }
		_, live := slices.BinarySearchFunc(f.Leases, key, compare)
		if _, twice := seen[key]; twice || live {
			return fmt.Errorf("removal of %s: the instance is live or was removed twice", key)
		}
		seen[key] = struct{}{}
		if err := rec.verifyAfter(before); err != nil {
			return fmt.Errorf("removal of %s: %w", key, err)
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

// verifyIndexes checks that every change has its own Index, which was given out.
func (f *Frozen) verifyIndexes() error {
	indexes := make([]Index, 0, len(f.Leases)+len(f.Removals)+1)
	for _, s := range f.Leases {
		indexes = append(indexes, s.Lease.Changed)
	}
	for _, m := range f.Removals {
		indexes = append(indexes, m.Lease.Changed)
	}
	if twice, ok := repeated(indexes); ok {
		return fmt.Errorf("index %d is there twice", twice)
	}
	p := f.Parts
	if newest := slices.Max(append(indexes, f.Pruned, f.Restored, p.Services, p.Nodes, p.Checks, p.LogicalServices, p.Logical)); newest > f.Index {
		return fmt.Errorf("a change has index %d, but the last one given out is %d", newest, f.Index)
	}
	return nil
}

// verifyTransitions checks the transitions of self-preservation; the last one is the present state.
func (f *Frozen) verifyTransitions() error {
	if n := len(f.Transitions); n > transitionsKept {
		return fmt.Errorf("%d transitions of self-preservation, more than %d", n, transitionsKept)
	}
	before := int64(0)
	for _, p := range f.Transitions {
		if at := p.Since.Lease; at < before || at > f.Clock.Lease {
			return fmt.Errorf("self-preservation changed at %d, after a change at %d, at a lease clock of %d", at, before, f.Clock.Lease)
		}
		if p.State == PreservationHeld && p.Until == 0 {
			return errors.New("self-preservation is held without an end")
		}
		before = p.Since.Lease
	}
	if f.Preservation != newest(f.Transitions) {
		return errors.New("self-preservation is not what its last transition made of it")
	}
	return nil
}

// verifyBounds checks the lengths of the recent queues, the settings and upstream's bookkeeping.
func (f *Frozen) verifyBounds() error {
	recent := max(len(f.Registered), len(f.Canceled))
	switch e, s := f.Expectation, f.Settings; {
	case recent > recentLength:
		return fmt.Errorf("a recent queue has %d entries, more than %d", recent, recentLength)
	case s.Bound < 0 || s.ExpectationUpdate < 0:
		return fmt.Errorf("a bound of %d ms or an update every %d ms is negative", s.Bound, s.ExpectationUpdate)
	case e.Minute < 0 || e.Minute > f.Clock.Lease/minute:
		return fmt.Errorf("renewals are counted in minute %d, at a lease clock of %d", e.Minute, f.Clock.Lease)
	case e.NextUpdate > order.Later(f.Clock.Lease, s.ExpectationUpdate):
		return fmt.Errorf("the expectation is updated at %d, at a lease clock of %d and every %d ms", e.NextUpdate, f.Clock.Lease, s.ExpectationUpdate)
	}
	return nil
}

// repeated sorts values and returns one that occurs twice, if any does.
func repeated[T cmp.Ordered](values []T) (twice T, ok bool) {
	slices.Sort(values)
	for i := 1; i < len(values); i++ {
		if values[i-1] == values[i] {
			return values[i], true
		}
	}
	return twice, false
}

// verifyDetails checks the details of overrides and quarantines. A change sets at most one of each, which is how two
// that end together are told apart.
func (f *Frozen) verifyDetails() error {
	var set [2][]Index
	for _, s := range f.Leases {
		l := s.Lease
		if err := verifyDetails(l); err != nil {
			return fmt.Errorf("lease %s: %w", l.Key(), err)
		}
		eachEnd(l, func(_ int64, e leaseEnd) { set[e.kind] = append(set[e.kind], e.set) })
	}
	if twice, ok := repeated(set[endOfOverride]); ok {
		return fmt.Errorf("two overrides were set at %d", twice)
	}
	if twice, ok := repeated(set[endOfQuarantine]); ok {
		return fmt.Errorf("two quarantines were set at %d", twice)
	}
	return nil
}

func verifyDetails(l *Lease) error {
	if o := l.Override; o != nil {
		switch {
		case l.Instance.Overridden == Unknown:
			return errors.New("details of an override that it does not have")
		case o.Set == 0 || o.Set > l.Changed:
			return fmt.Errorf("overridden at %d, after its last change at %d", o.Set, l.Changed)
		}
	}
	if q := l.Quarantine; q != nil && (q.Set == 0 || q.Set > l.Changed) {
		return fmt.Errorf("quarantined at %d, after its last change at %d", q.Set, l.Changed)
	}
	return nil
}

// verifyHistories checks the histories of instances, live and gone.
func (f *Frozen) verifyHistories() error {
	for _, s := range f.Leases {
		if err := verifyHistory(s.History.Events(), f.Clock.Lease); err != nil {
			return fmt.Errorf("lease %s: %w", s.Lease.Key(), err)
		}
	}
	for _, m := range f.Removals {
		if err := verifyHistory(m.History.Events(), f.Clock.Lease); err != nil {
			return fmt.Errorf("removal of %s: %w", m.Lease.Key(), err)
		}
	}
	return nil
}

func verifyHistory(events []Event, now int64) error {
	for i, e := range events {
		switch {
		case e.Times == 0:
			return errors.New("an event that never happened")
		case e.At.Lease > now || i > 0 && e.At.Lease < events[i-1].At.Lease:
			return fmt.Errorf("an event at %d of the lease clock, out of order or in the future", e.At.Lease)
		}
	}
	return nil
}

// verifyKnown checks what is known about other servers.
func (f *Frozen) verifyKnown() error {
	err := errors.Join(verifyNames("link", f.Links), verifyNames("sender", f.Senders), verifyNames("peer", f.Peers))
	if err != nil {
		return err
	}
	now := f.Clock.Lease
	for _, l := range f.Links {
		if l.Since > l.LastContact || l.LastContact > now || l.Cut < 0 {
			return fmt.Errorf("link %s: heard since %d, last at %d, cut after %d, at a lease clock of %d", l.DC, l.Since, l.LastContact, l.Cut, now)
		}
	}
	for _, s := range f.Senders {
		if s.Name == "" || s.LastMessage.Lease > now {
			return fmt.Errorf("sender %q of %q: heard at %d, at a lease clock of %d", s.Name, s.DC, s.LastMessage.Lease, now)
		}
	}
	for _, p := range f.Peers {
		switch {
		case p.Cursor > f.Index || !p.Known && p.Cursor > 0:
			return fmt.Errorf("peer %s: cursor %d (known: %t), but the last change is %d", p.Name, p.Cursor, p.Known, f.Index)
		case p.Since.Lease > now:
			return fmt.Errorf("peer %s: paused or resumed at %d, at a lease clock of %d", p.Name, p.Since.Lease, now)
		}
	}
	return nil
}

// verifyNames checks that a list has each name once, in ascending order.
func verifyNames[T named](what string, list []T) error {
	before := ""
	for _, entry := range list {
		if before >= entry.name() {
			return fmt.Errorf("%s %q after %q, want ascending names", what, entry.name(), before)
		}
		before = entry.name()
	}
	return nil
}
