package registry

import (
	"errors"
	"fmt"
)

// verifyDetails checks what is known of overrides and quarantines. A change sets at most one of each,
// which is how two that end together are told apart.
func (f *Frozen) verifyDetails() error {
	var set [2][]Index
	for _, s := range f.Leases {
		l := s.Lease
		if err := l.verifyDetails(); err != nil {
			return fmt.Errorf("lease %s: %w", l.Key(), err)
		}
		l.ends(func(_ int64, e leaseEnd) { set[e.kind] = append(set[e.kind], e.set) })
	}
	if twice, ok := repeated(set[endOfOverride]); ok {
		return fmt.Errorf("two overrides were set at %d", twice)
	}
	if twice, ok := repeated(set[endOfQuarantine]); ok {
		return fmt.Errorf("two quarantines were set at %d", twice)
	}
	return nil
}

func (l *Lease) verifyDetails() error {
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

// verifyHistories checks what is remembered of instances, live and gone.
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
