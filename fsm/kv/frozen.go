package kv

import (
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// Frozen is the whole of a State at one moment. Every list has a canonical order.
type Frozen struct {
	Index         Index // of the last change
	Lease         int64 // lease clock, ms
	Epoch         Epoch
	Established   int64 // lease clock when the epoch was established, ms
	KeysIndex     Index // of the last write or deletion of a key
	SessionsIndex Index // of the last creation or end of a session
	PermitsIndex  Index // of the last change of a lock or semaphore
	Pruned        Index // of the newest dropped record of a deletion

	Pairs     []*Pair        // by key
	Deletions []Deletion     // by key
	Sessions  []SessionState // by id
	Delays    []Delay        // of keys, by key
	Permits   []*Permits     // by kind and name
	Kept      []KeptResult   // of Once, oldest first

	Restored Index        // where the newest incarnation began; 0 if none did
	Last     *Restoration // nil if nothing was ever restored
	Staged   Staged

	Access access.Content
}

// Head walks all single values, except the clock and the epoch, which the registry has.
func (f *Frozen) Head(c *codec.Codec) {
	codec.Uint(c, &f.Index)
	codec.Uint(c, &f.KeysIndex)
	codec.Uint(c, &f.SessionsIndex)
	codec.Uint(c, &f.PermitsIndex)
	codec.Uint(c, &f.Pruned)
	codec.Uint(c, &f.Restored)
	codec.Optional(c, &f.Last, (*Restoration).fields)
	c.Lasting(&f.Staged.ID)
	f.Staged.By.Fields(c)
	c.Uint64(&f.Staged.Parts)
	c.Int64(&f.Staged.Since)
}

// Freeze returns the whole state for a snapshot, in milliseconds; it stays valid while the state goes
// on. Equal states freeze to equal values.
func (s *State) Freeze() Frozen {
	return Frozen{
		Index:         s.index,
		Lease:         s.lease,
		Epoch:         s.epoch,
		Established:   s.established,
		KeysIndex:     s.keys.index,
		SessionsIndex: s.sessions.index,
		PermitsIndex:  s.permits.index,
		Pruned:        s.keys.deletions.pruned,

		Pairs:     s.keys.pairs.Values(),
		Deletions: s.keys.deletions.byKey.Values(),
		Sessions:  s.sessions.freeze(),
		Delays:    s.keys.delays.freeze(),
		Permits:   s.permits.freeze(),
		Kept:      s.kept.freeze(),

		Restored: s.restored,
		Last:     s.last,
		Staged:   s.staged.freeze(),

		Access: s.access.Content,
	}
}

func (t *sessionTable) freeze() []SessionState {
	frozen := make([]SessionState, 0, t.byID.Len())
	t.byID.Scan(func(_ string, l *living) bool {
		frozen = append(frozen, SessionState{Session: l.session, Renewed: l.renewed.Load()})
		return true
	})
	return frozen
}

func (d *delays) freeze() []Delay {
	frozen := make([]Delay, 0, d.until.Len())
	d.until.Scan(func(key string, until int64) bool {
		frozen = append(frozen, Delay{Key: key, Until: until})
		return true
	})
	return frozen
}

func (p *permitTable) freeze() []*Permits {
	frozen := make([]*Permits, 0, p.all.Len())
	p.all.Scan(func(n named) bool {
		frozen = append(frozen, n.sem.permits())
		return true
	})
	return frozen
}
