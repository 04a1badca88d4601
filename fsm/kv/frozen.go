package kv

import (
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// Frozen is the whole of a State at one moment. Everything that has an order has a canonical one.
type Frozen struct {
	Index         Index // of the last change
	Lease         int64 // lease clock, ms
	Epoch         Epoch
	Established   int64 // lease clock when the epoch was established, ms
	KeysIndex     Index // of the last write or deletion of a key
	SessionsIndex Index // of the last creation or end of a session
	PermitsIndex  Index // of the last change of a lock or semaphore
	Pruned        Index // of the newest record of a deletion that was forgotten

	Entries   []*Entry       // by key
	Deletions []Deletion     // by key
	Sessions  []SessionState // by id
	Delays    []Delay        // of keys, by key
	Permits   []*Permits     // by kind and name
	Answers   []Answer       // of Once, oldest first
}

// Head walks everything that is one value, but for the clock and the epoch, which are the registry's.
func (f *Frozen) Head(c *codec.Codec) {
	codec.Uint(c, &f.Index)
	codec.Uint(c, &f.KeysIndex)
	codec.Uint(c, &f.SessionsIndex)
	codec.Uint(c, &f.PermitsIndex)
	codec.Uint(c, &f.Pruned)
}

// SessionState is a session and its last renewal (lease clock, ms).
type SessionState struct {
	Session *Session
	Renewed int64
}

// Fields walks a session that lives.
func (s *SessionState) Fields(c *codec.Codec) {
	codec.Ptr(c, &s.Session).fields(c)
	c.Int64(&s.Renewed)
}

// Deletion records when a key was last deleted, until it is written again or the record is too old.
type Deletion struct {
	Key   string
	Index Index
	At    int64 // lease clock, ms
	Fence Index // of the key's last acquisition; 0: none
}

// Fields walks the record of a deletion.
func (d *Deletion) Fields(c *codec.Codec) {
	c.Lasting(&d.Key)
	codec.Uint(c, &d.Index)
	c.Int64(&d.At)
	codec.Uint(c, &d.Fence)
}

// Delay is a lock-delay of a key.
type Delay struct {
	Key   string
	Until int64 // lease clock, ms
}

// Fields walks a lock-delay.
func (d *Delay) Fields(c *codec.Codec) {
	c.Lasting(&d.Key)
	c.Int64(&d.Until)
}

// Answer is what a Once was answered.
type Answer struct {
	Key    string
	At     int64  // lease clock, ms
	Digest uint64 // of the operation
	Result Result
}

// Fields walks an answer.
func (a *Answer) Fields(c *codec.Codec) {
	c.Lasting(&a.Key)
	c.Int64(&a.At)
	c.Uint64(&a.Digest)
	a.Result.Fields(c)
}

// Freeze returns the whole state for a snapshot, in milliseconds; it stays valid while the state goes
// on. Equal states freeze to equal values.
func (s *State) Freeze() Frozen {
	return Frozen{
		Index:         s.index,
		Lease:         s.lease,
		Epoch:         s.epoch,
		Established:   s.established,
		KeysIndex:     s.tables.keys,
		SessionsIndex: s.tables.sessionsIndex,
		PermitsIndex:  s.permits.index,
		Pruned:        s.tables.pruned,

		Entries:   s.tables.entries.Values(),
		Deletions: s.tables.deletions.Values(),
		Sessions:  s.sessionStates(),
		Delays:    s.delays(),
		Permits:   s.freezePermits(),
		Answers:   s.answers.freeze(),
	}
}

func (s *State) sessionStates() []SessionState {
	states := make([]SessionState, 0, s.tables.sessions.Len())
	s.tables.sessions.Scan(func(_ string, l *living) bool {
		states = append(states, SessionState{Session: l.session, Renewed: l.renewed.Load()})
		return true
	})
	return states
}

func (s *State) delays() []Delay {
	delays := make([]Delay, 0, s.tables.delays.Len())
	s.tables.delays.Scan(func(key string, until int64) bool {
		delays = append(delays, Delay{Key: key, Until: until})
		return true
	})
	return delays
}

func (a *answers) freeze() []Answer {
	frozen := make([]Answer, len(a.order))
	for i, answer := range a.order {
		frozen[i] = *answer
	}
	return frozen
}

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
