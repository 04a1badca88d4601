package kv

import (
	"errors"
	"fmt"
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Thaw is the inverse of Freeze. It verifies what can be verified: an inconsistent snapshot is refused as a whole.
func Thaw(f Frozen, catalog Catalog) (*State, error) {
	if err := f.verify(catalog.Next); err != nil {
		return nil, fmt.Errorf("frozen coordination: %w", err)
	}
	s := New(catalog)
	s.index, s.lease, s.epoch, s.established = f.Index, f.Lease, f.Epoch, f.Established
	s.keys.index, s.sessions.index, s.permits.index = f.KeysIndex, f.SessionsIndex, f.PermitsIndex
	s.keys.deletions.pruned = f.Pruned
	s.restored, s.last, s.staged = f.Restored, f.Last, f.Staged
	for _, d := range f.Deletions {
		s.keys.deletions.enter(d)
	}
	for _, state := range f.Sessions {
		s.addSession(state.Session, state.Renewed)
	}
	for _, p := range f.Pairs {
		s.keys.replace(nil, p)
		s.uses.replace(nil, p)
		s.count(holder(p), 1)
	}
	for _, d := range f.Delays {
		s.keys.delays.set(d.Key, d.Until)
	}
	for _, r := range f.Kept {
		s.kept.add(&r)
	}
	if err := s.thawPermits(f.Permits); err != nil {
		return nil, fmt.Errorf("frozen coordination: %w", err)
	}
	var err error
	if s.access, err = access.TableOf(f.Access); err != nil {
		return nil, fmt.Errorf("frozen access control: %w", err)
	}
	return s, nil
}

// thawPermits enters the permits of a snapshot, whose sessions and clock are already in the state.
func (s *State) thawPermits(permits []*Permits) error {
	var last named
	for i, p := range permits {
		at := named{kind: p.Kind, name: p.Name}
		if i > 0 && compareNamed(last, at) >= 0 {
			return fmt.Errorf("permits of %q are not after those of %q", p.Name, last.name)
		}
		if err := s.verifyPermits(p); err != nil {
			return fmt.Errorf("permits of %q: %w", p.Name, err)
		}
		if err := s.thawSemaphore(p); err != nil {
			return fmt.Errorf("permits of %q: %w", p.Name, err)
		}
		last = at
	}
	return nil
}

// verifyPermits checks what a semaphore's own operations keep true.
func (s *State) verifyPermits(p *Permits) error {
	// Counted in 64 bits: a limit may be any 32-bit number.
	taken, limit := uint64(len(p.Holders))+uint64(len(p.Delays)), uint64(p.Limit)
	switch {
	case p.Kind != Lock && p.Kind != Semaphore:
		return fmt.Errorf("kind %d is neither a lock nor a semaphore", p.Kind)
	case limit == 0 || p.Kind == Lock && limit != 1:
		return fmt.Errorf("a limit of %d", limit)
	case taken > limit:
		return fmt.Errorf("%d are held or kept back, of %d", taken, limit)
	case taken == 0:
		return errors.New("no session holds it, and no lock-delay keeps it back")
	case len(p.Queue) > 0 && taken < limit:
		return fmt.Errorf("%d wait, while one is free", len(p.Queue))
	case p.ModifyIndex == 0 || p.ModifyIndex > s.permits.index:
		return fmt.Errorf("modified at %d, but the last change of a lock or semaphore was %d", p.ModifyIndex, s.permits.index)
	case !slices.IsSorted(p.Delays):
		return errors.New("its lock-delays are not in the order of time")
	}
	return nil
}

// thawSemaphore enters the permits of one name.
func (s *State) thawSemaphore(p *Permits) error {
	sem := s.permits.editable(s.permits.open(p.Kind, p.Name, p.Limit))
	sem.modified = p.ModifyIndex
	for _, h := range p.Holders {
		if err := s.verifyPosition(sem, h.Session, h.Since, h.Value); err != nil {
			return err
		}
		if last, _, _ := sem.holders.Max(); h.Fence <= last || h.Fence > sem.modified {
			return fmt.Errorf("session %q holds it by token %d, which is not in %d to %d", h.Session, h.Fence, last+1, sem.modified)
		}
		sem.setHolder(h)
		s.permits.addStake(sem, h.Session)
		s.count(h.Session, 1)
	}
	for _, w := range p.Queue {
		if err := s.verifyPosition(sem, w.Session, w.Since, w.Value); err != nil {
			return err
		}
		sem.addWaiter(w)
		s.permits.addStake(sem, w.Session)
		s.permits.waiting++
		s.count(w.Session, 1)
	}
	for _, until := range p.Delays {
		if until > order.Later(s.lease, MaxLockDelay/1_000_000) {
			return fmt.Errorf("the end of a lock-delay at %d is too far from the lease clock's %d", until, s.lease)
		}
		s.permits.addDelay(sem, until)
	}
	s.permits.edited(sem)
	return nil
}

// verifyPosition checks that a session may hold or wait.
func (s *State) verifyPosition(sem *semaphore, session string, since int64, value []byte) error {
	if _, ok := s.sessions.byID.Get(session); !ok {
		return fmt.Errorf("session %q, which holds it or waits for it, is not there", session)
	}
	if _, twice := sem.positions.Get(session); twice {
		return fmt.Errorf("session %q holds it or waits for it twice", session)
	}
	if len(value) > MaxPermitValue {
		return fmt.Errorf("session %q has a value of %d bytes, more than %d", session, len(value), MaxPermitValue)
	}
	if since > s.lease {
		return fmt.Errorf("session %q holds it or waits for it since %d, after the lease clock's %d", session, since, s.lease)
	}
	return nil
}
