package kv

import "fmt"

// Thaw is the inverse of Freeze. It verifies what can be verified: a snapshot that lies is refused as
// a whole.
func Thaw(f Frozen, catalog Catalog) (*State, error) {
	if err := f.verify(); err != nil {
		return nil, fmt.Errorf("frozen coordination: %w", err)
	}
	s := New(catalog)
	s.index, s.lease, s.epoch, s.established = f.Index, f.Lease, f.Epoch, f.Established
	s.tables.keys, s.tables.sessionsIndex, s.permits.index = f.KeysIndex, f.SessionsIndex, f.PermitsIndex
	s.tables.pruned = f.Pruned
	for _, e := range f.Entries {
		s.tables.setEntry(e)
		s.tables.hold(nil, e)
	}
	for _, d := range f.Deletions {
		s.tables.setDeletion(d)
		s.tables.aged.Set(aged{d.Index, d.Key})
	}
	for _, state := range f.Sessions {
		s.begin(state.Session, state.Renewed)
	}
	for _, d := range f.Delays {
		s.setDelay(d)
	}
	for _, answer := range f.Answers {
		s.answers.add(&answer)
	}
	if err := s.thawPermits(f.Permits); err != nil {
		return nil, fmt.Errorf("frozen coordination: %w", err)
	}
	return s, nil
}
