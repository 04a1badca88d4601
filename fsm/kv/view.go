package kv

import (
	"context"
	"iter"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Entry is a key's. Immutable.
type Entry struct {
	Key         string
	Value       []byte
	Flags       uint64
	Session     string // the holder; "": none
	LockIndex   uint64 // how often it was acquired by a new holder
	CreateIndex Index
	ModifyIndex Index
	// Fence is the Index of the last acquisition, which the holder's writes and acquiring again leave
	// as it is; 0: it was never acquired. It holds while there is a Session. A key that is written again
	// within a day after its deletion keeps it.
	Fence Index
}

// Fields walks an entry.
func (e *Entry) Fields(c *codec.Codec) {
	c.Lasting(&e.Key) // lives on when its value, which is most of the record, was replaced
	c.Bytes(&e.Value)
	c.Uint64(&e.Flags)
	c.Lasting(&e.Session)
	c.Uint64(&e.LockIndex)
	codec.Uint(c, &e.CreateIndex)
	codec.Uint(c, &e.ModifyIndex)
	codec.Uint(c, &e.Fence)
}

// entryWeight is what an entry takes beside its key and value, in bytes, about: in memory and in answers.
const entryWeight = 128

// Weight is what an entry takes, in bytes, about.
func (e *Entry) Weight() int { return entryWeight + len(e.Key) + len(e.Value) }

// Session is one session. Immutable but for its last renewal, see View.Renewed.
type Session struct {
	ID            string
	Name          string
	Node          string // "": the cluster's logical node
	TTL           int64  // ms; 0: none
	TTLText       string
	LockDelay     int64 // ns
	Behavior      Behavior
	Checks        []string // legacy list, as given; nil: none was given
	NodeChecks    []string
	ServiceChecks []string
	CreateIndex   Index
	ModifyIndex   Index
	CreatedAt     int64 // lease clock, ms
	CreatedWall   int64 // ms since the epoch
}

func (s *Session) fields(c *codec.Codec) {
	c.Lasting(&s.ID)
	c.String(&s.Name)
	c.String(&s.Node)
	c.Int64(&s.TTL)
	c.String(&s.TTLText)
	c.Int64(&s.LockDelay)
	s.Behavior.fields(c)
	given(c, &s.Checks)
	c.Strings(&s.NodeChecks)
	c.Strings(&s.ServiceChecks)
	codec.Uint(c, &s.CreateIndex)
	codec.Uint(c, &s.ModifyIndex)
	c.Int64(&s.CreatedAt)
	c.Int64(&s.CreatedWall)
}

// given walks a list that differs from none at all even if it is empty.
func given(c *codec.Codec, all *[]string) {
	there := *all != nil
	if c.Bool(&there); there {
		c.Strings(all)
	}
	switch {
	case !c.Reading():
	case !there:
		*all = nil
	case *all == nil:
		*all = []string{}
	}
}

// sessionWeight is what a session takes beside its texts, in bytes, about; checkWeight a check in its lists.
const (
	sessionWeight = 512
	checkWeight   = 64
)

func (s *Session) weight() int {
	bytes := sessionWeight + len(s.Name) + len(s.Node) + len(s.TTLText)
	for _, list := range [][]string{s.Checks, s.NodeChecks, s.ServiceChecks} {
		for _, check := range list {
			bytes += checkWeight + len(check)
		}
	}
	return bytes
}

// Permits is a lock or semaphore that somebody holds or waits for, or that a lock-delay blocks.
// Immutable.
type Permits struct {
	Kind        Kind // Lock or Semaphore
	Name        string
	Limit       uint32   // 1 for a lock
	Holders     []Holder // in the order of acquisition
	Queue       []Waiter // in the order in which permits will be given
	Delays      []int64  // ends of lock-delays (lease clock, ms), ascending; each keeps one permit back
	ModifyIndex Index
}

// Fields walks a lock or semaphore.
func (p *Permits) Fields(c *codec.Codec) {
	p.Kind.fields(c)
	c.Lasting(&p.Name)
	c.Uint32(&p.Limit)
	codec.List(c, &p.Holders, 5, (*Holder).fields)
	codec.List(c, &p.Queue, 4, (*Waiter).fields)
	codec.List(c, &p.Delays, 1, func(until *int64, c *codec.Codec) { c.Int64(until) })
	codec.Uint(c, &p.ModifyIndex)
}

// Holder holds a permit.
type Holder struct {
	Session string
	Fence   Index // token: the Index of the acquisition
	Since   int64 // lease clock, ms
	Wall    int64 // the same moment, ms since the epoch
	Value   []byte
}

func (h *Holder) fields(c *codec.Codec) {
	c.Lasting(&h.Session)
	codec.Uint(c, &h.Fence)
	c.Int64(&h.Since)
	c.Int64(&h.Wall)
	c.Bytes(&h.Value)
}

// Waiter waits for a permit.
type Waiter struct {
	Session string
	Since   int64 // lease clock, ms
	Until   int64 // lease clock, ms: it is passed over after that
	Value   []byte
}

func (w *Waiter) fields(c *codec.Codec) {
	c.Lasting(&w.Session)
	c.Int64(&w.Since)
	c.Int64(&w.Until)
	c.Bytes(&w.Value)
}

// View is the state at one moment: immutable, safe for any number of readers. Each read returns the
// Index by which a blocking query for the same thing goes on (Consul's X-Consul-Index): it grows with
// every change of what is read, never goes back, and is never 0.
type View struct {
	index       Index
	lease       int64 // lease clock, ms
	established int64 // lease clock, ms: when grace began
	bytes       int
	shown       *shown
}

// Bytes is what keys, records of deletions, sessions, locks with their queues and remembered answers take, about.
func (v *View) Bytes() int { return v.bytes }

// PermitBytes is what locks and semaphores with their queues take, about.
func (v *View) PermitBytes() int { return v.shown.permits.bytes }

// SessionCount is the number of sessions.
func (v *View) SessionCount() int { return v.shown.tables.sessions.Len() }

// Index is that of the last change of anything in the view.
func (v *View) Index() Index { return v.index }

// Lease is the lease clock (ms) of the newest operation in the view.
func (v *View) Lease() int64 { return v.lease }

// Get returns a key's entry, nil if there is none. The index is the entry's ModifyIndex; of an absent
// key that of the last write or deletion of any key, at least 1.
func (v *View) Get(key string) (*Entry, Index) {
	if e, ok := v.shown.tables.entries.Get(key); ok {
		return e, e.ModifyIndex
	}
	return nil, v.shown.tables.keysIndex()
}

// List returns the entries whose keys begin with prefix, in byte order, and the highest of their
// ModifyIndexes and of the deletions under the prefix; for the empty prefix, and where there is
// neither, that of the last write or deletion of any key.
// ok is false, and there are no entries, if they take more than MaxRead bytes.
func (v *View) List(prefix string) (entries []*Entry, index Index, ok bool) {
	var newest Index
	left := MaxRead
	for e := range v.shown.tables.under(prefix) {
		newest = max(newest, e.ModifyIndex)
		if left -= e.Weight(); left >= 0 {
			entries = append(entries, e)
		}
	}
	if left < 0 {
		entries = nil
	}
	return entries, v.shown.tables.prefixIndex(prefix, newest), left >= 0
}

// Keys returns the keys that begin with prefix, in byte order, with List's index. With a separator
// each is cut after the first one that follows the prefix, and each cut is listed once.
// ok is false, and there are no keys, if they take more than MaxRead bytes.
func (v *View) Keys(prefix, separator string) (keys []string, index Index, ok bool) {
	var newest Index
	left := MaxRead
	for e := range v.shown.tables.under(prefix) {
		newest = max(newest, e.ModifyIndex)
		key := cut(e.Key, len(prefix), separator)
		if left >= 0 && (len(keys) == 0 || keys[len(keys)-1] != key) {
			keys = append(keys, key)
			left -= entryWeight + len(key)
		}
	}
	if left < 0 {
		keys = nil
	}
	return keys, v.shown.tables.prefixIndex(prefix, newest), left >= 0
}

// cut ends a key behind the first separator that follows the prefix of a length, if there is one.
func cut(key string, prefix int, separator string) string {
	if separator == "" {
		return key
	}
	if at := strings.Index(key[prefix:], separator); at >= 0 {
		return key[:prefix+at+len(separator)]
	}
	return key
}

// Len is the number of keys.
func (v *View) Len() int { return v.shown.tables.entries.Len() }

// Read performs the operations of a transaction that writes nothing. ok is false, and there is nothing, if the
// entries take more than MaxRead bytes.
func (v *View) Read(ops []KeyOp) (entries []*Entry, errs []TxnError, ok bool) {
	for i, op := range ops {
		if op.lacksKey() {
			errs = append(errs, TxnError{OpIndex: i, What: noKey})
		}
	}
	if errs != nil {
		return nil, errs, true
	}
	left := MaxRead
	for i, op := range ops {
		found, what := v.shown.tables.read(op, &left)
		if left < 0 {
			return nil, nil, false
		}
		if what != "" {
			errs = append(errs, TxnError{OpIndex: i, What: what})
		}
		entries = append(entries, found...)
	}
	if errs != nil {
		return nil, errs, true
	}
	return entries, nil, true
}

// Session returns a session, nil if there is none, and the sessions' index.
func (v *View) Session(id string) (*Session, Index) {
	if l := v.living(id); l != nil {
		return l.session, v.SessionIndex()
	}
	return nil, v.SessionIndex()
}

// living finds a session; nil: there is none.
func (v *View) living(id string) *living {
	l, _ := v.shown.tables.sessions.Get(strings.ToLower(id))
	return l
}

// Sessions yields all sessions, by id; SessionIndex is their index: that of the last creation or end.
func (v *View) Sessions() iter.Seq[*Session] {
	return func(yield func(*Session) bool) {
		v.shown.tables.sessions.Scan(func(_ string, l *living) bool { return yield(l.session) })
	}
}

// SessionIndex is the Index of the last creation or end of a session; 1 if there was none.
func (v *View) SessionIndex() Index { return max(v.shown.tables.sessionsIndex, 1) }

// Renewed is when (lease clock, ms) a session was last renewed, live: it may be newer than the view.
func (v *View) Renewed(s *Session) int64 {
	if l := v.living(s.ID); l != nil {
		return l.renewed.Load()
	}
	return s.CreatedAt
}

// Ends is when (lease clock, ms) a session's TTL and grace have passed if it is not renewed, live; 0:
// never.
func (v *View) Ends(s *Session) int64 {
	if s.TTL == 0 {
		return 0
	}
	return s.ends(v.Renewed(s), v.established)
}

// Delayed says until when (lease clock, ms) a lock-delay keeps a key from being acquired; 0: it does not.
func (v *View) Delayed(key string) int64 {
	if until, ok := v.shown.tables.delays.Get(key); ok && v.lease < until {
		return until
	}
	return 0
}

// Service is sessions, keys and locks as their users see them. It needs consensus: only consensus.Raft
// implements it. Safe for concurrent use. Its errors are those of registry.Service.
type Service interface {
	// Apply performs ops in order, one result per op. The context bounds the wait, not the effect.
	Apply(ctx context.Context, ops ...Op) ([]Result, error)
	// View returns the state, at least as new as read demands; Stale never fails.
	View(ctx context.Context, read order.Consistency) (*View, error)
	// Watch begins to wait for a change. Whoever waits calls it first, then reads a View, and waits if
	// that shows nothing new: then no change is missed.
	Watch(t Topic) *Wait
}

// fenceHolds says whether an acquisition lasts, and whose does now; 0: nobody's.
func (s *State) fenceHolds(f *Fence) (holds bool, now Index) {
	return fenceHolds(&s.tables, &s.permits, *f, "")
}

// Holds says whether an acquisition lasts: by session, or (session "") by whomever. now is the token of
// whoever holds; of a semaphore that of the session; 0: nobody.
func (v *View) Holds(f Fence, session string) (holds bool, now Index) {
	return fenceHolds(&v.shown.tables, &v.shown.permits, f, strings.ToLower(session))
}

func fenceHolds(t *tables, p *permitTables, f Fence, session string) (holds bool, now Index) {
	var by string
	if f.Kind == Key {
		by, now = t.holder(f.Name)
	} else {
		by, now = p.holder(f, session)
	}
	return now != 0 && now == f.Index && (session == "" || session == by), now
}

// holder is who holds a key, and its token; 0: nobody.
func (t *tables) holder(key string) (session string, token Index) {
	if e, ok := t.entries.Get(key); ok && e.Session != "" {
		return e.Session, e.Fence
	}
	return "", 0
}

// holder is who holds what a Fence names, and its token; 0: nobody. Of a semaphore's holders it is
// the session that is asked for, else the one that the token names.
func (p *permitTables) holder(f Fence, session string) (by string, token Index) {
	sem := p.find(f.Kind, f.Name)
	switch {
	case sem == nil:
		return "", 0
	case f.Kind == Lock:
		_, h, _ := sem.holders.Min()
		return h.Session, h.Fence
	case session != "":
		m, _ := sem.members.Get(session)
		return session, m.fence
	}
	h, _ := sem.holders.Get(f.Index)
	return h.Session, h.Fence
}

// Held yields what a session holds: keys, locks and semaphores, by kind and name.
func (v *View) Held(session string) iter.Seq[Fence] {
	session = strings.ToLower(session)
	return func(yield func(Fence) bool) {
		for e := range v.shown.tables.heldBy(session) {
			if !yield(Fence{Kind: Key, Name: e.Key, Index: e.Fence}) {
				return
			}
		}
		for _, s := range v.shown.permits.stakesOf(session) {
			m, _ := v.shown.permits.find(s.kind, s.name).members.Get(session)
			if m.fence != 0 && !yield(Fence{Kind: s.kind, Name: s.name, Index: m.fence}) {
				return
			}
		}
	}
}

// Stands says whether a session holds a lock or semaphore, or waits for it.
func (v *View) Stands(kind Kind, name, session string) bool {
	sem := v.shown.permits.find(kind, name)
	if sem == nil {
		return false
	}
	_, stands := sem.members.Get(strings.ToLower(session))
	return stands
}

// Permits returns a lock or semaphore, nil if nobody holds, waits or is delayed, and the index by which
// a blocking query goes on. It costs O(holders and queue).
func (v *View) Permits(kind Kind, name string) (*Permits, Index) {
	if sem := v.shown.permits.find(kind, name); sem != nil {
		return sem.permits(), sem.modified
	}
	return nil, max(v.shown.permits.index, 1)
}

// AllPermits yields locks or semaphores by name.
func (v *View) AllPermits(kind Kind) iter.Seq[*Permits] {
	return func(yield func(*Permits) bool) {
		v.shown.permits.all.Ascend(named{kind: kind}, func(n named) bool {
			return n.kind == kind && yield(n.sem.permits())
		})
	}
}
