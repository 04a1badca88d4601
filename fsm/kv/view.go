package kv

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/order"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// View is the state at one moment: immutable, safe for any number of readers. Each read returns the Index with which
// a blocking query for the same thing continues (Consul's X-Consul-Index): it grows with every change of what is
// read, never goes back, and is never 0.
type View struct {
	index       Index
	lease       int64 // lease clock, ms
	established int64 // lease clock, ms: when grace began
	level       byte  // of the formats
	bytes       int
	shown       *contents
	// Registry is the registry at the same moment, for transactions that read both; nil if unknown.
	Registry *registry.View
}

// View returns the present state for readers: a few small allocations after a change.
func (s *State) View() *View {
	return &View{index: s.index, lease: s.lease, established: s.established, level: s.level, bytes: s.bytes(), shown: s.share()}
}

// Bytes returns roughly how many bytes keys, records of deletions, sessions, locks with their queues and kept results
// take.
func (v *View) Bytes() int { return v.bytes }

// PermitBytes returns roughly how many bytes locks and semaphores with their queues take.
func (v *View) PermitBytes() int { return v.shown.permits.bytes }

// SessionCount returns the number of sessions.
func (v *View) SessionCount() int { return v.shown.sessions.byID.Len() }

// Index returns the index of the last change of anything in the view.
func (v *View) Index() Index { return v.index }

// Lease returns the lease clock (ms) of the newest operation in the view.
func (v *View) Lease() int64 { return v.lease }

// Get returns a key's pair, or nil. The index is the pair's ModifyIndex; for an absent key, that of the last write or
// deletion of any key, at least 1. Like all indexes of reads, it is at least that of the newest incarnation.
func (v *View) Get(key string) (*Pair, Index) {
	if p, ok := v.shown.keys.pairs.Get(key); ok {
		return p, max(p.ModifyIndex, v.shown.restored)
	}
	return nil, max(v.shown.keys.absentIndex(), v.shown.restored)
}

// List returns the pairs whose keys begin with prefix, in byte order, and the highest of their ModifyIndexes and of
// the deletions under the prefix; for the empty prefix, or if there are neither, the index of the last write or
// deletion of any key. ok is false, and there are no pairs, if they take more than MaxRead bytes.
func (v *View) List(prefix string) (pairs []*Pair, index Index, ok bool) {
	var newest Index
	left := MaxRead
	for p := range v.shown.keys.under(prefix) {
		newest = max(newest, p.ModifyIndex)
		if left -= p.Weight(); left >= 0 {
			pairs = append(pairs, p)
		}
	}
	if left < 0 {
		pairs = nil
	}
	return pairs, max(v.shown.keys.prefixIndex(prefix, newest), v.shown.restored), left >= 0
}

// Keys returns the keys that begin with prefix, in byte order, with List's index. With a separator, each key is cut
// after the first separator behind the prefix, and each result is listed once. ok is false, and there are no keys, if
// they take more than MaxRead bytes.
func (v *View) Keys(prefix, separator string) (keys []string, index Index, ok bool) {
	var newest Index
	left := MaxRead
	for p := range v.shown.keys.under(prefix) {
		newest = max(newest, p.ModifyIndex)
		key := p.Key
		if at := strings.Index(key[len(prefix):], separator); separator != "" && at >= 0 {
			key = key[:len(prefix)+at+len(separator)]
		}
		if left >= 0 && (len(keys) == 0 || keys[len(keys)-1] != key) {
			keys = append(keys, key)
			left -= pairWeight + len(key)
		}
	}
	if left < 0 {
		keys = nil
	}
	return keys, max(v.shown.keys.prefixIndex(prefix, newest), v.shown.restored), left >= 0
}

// LastRestoration says what the newest restore did; nil before the first.
func (v *View) LastRestoration() *Restoration { return v.shown.last }

// Pairs yields all pairs, by key.
func (v *View) Pairs() iter.Seq[*Pair] { return v.shown.keys.under("") }

// Len returns the number of keys.
func (v *View) Len() int { return v.shown.keys.pairs.Len() }

// Session returns a session, or nil, and the sessions' index.
func (v *View) Session(id string) (*Session, Index) {
	if l := v.shown.sessions.find(id); l != nil {
		return l.session, v.SessionIndex()
	}
	return nil, v.SessionIndex()
}

// Owner returns the principal that owns a session; "" if it belongs to everybody, or does not exist.
func (v *View) Owner(id string) string {
	if s, _ := v.Session(id); s != nil {
		return s.By
	}
	return ""
}

// Sessions yields all sessions, by id; their index is SessionIndex.
func (v *View) Sessions() iter.Seq[*Session] {
	return func(yield func(*Session) bool) {
		v.shown.sessions.byID.Scan(func(_ string, l *living) bool { return yield(l.session) })
	}
}

// SessionIndex returns the Index of the last creation or end of a session, at least 1.
func (v *View) SessionIndex() Index { return max(v.shown.sessions.index, v.shown.restored, 1) }

// Renewed returns when (lease clock, ms) a session was last renewed, live: it may be newer than the view.
func (v *View) Renewed(s *Session) int64 {
	if l := v.shown.sessions.find(s.ID); l != nil {
		return l.renewed.Load()
	}
	return s.CreatedAt
}

// Ends returns when (lease clock, ms) a session's TTL and grace have passed if it is not renewed, live; 0 means
// never.
func (v *View) Ends(s *Session) int64 {
	if s.TTL == 0 {
		return 0
	}
	return s.ends(v.Renewed(s), v.established, v.level)
}

// Delayed returns until when (lease clock, ms) a lock-delay keeps a key from being acquired, or 0.
func (v *View) Delayed(key string) int64 {
	return v.shown.keys.delays.end(key, v.lease)
}

// Service is sessions, keys and locks as their users see them. It needs consensus: only consensus.Raft implements it.
// Safe for concurrent use. It returns the errors of registry.Service.
type Service interface {
	// Apply performs ops in order, one result per op. The context bounds the wait, not the effect.
	Apply(ctx context.Context, ops ...Op) ([]Result, error)
	// View returns the state, at least as new as read demands; Stale never fails.
	View(ctx context.Context, read order.Consistency) (*View, error)
	// Watch begins to wait for a change. A caller that first calls Watch, then reads a View, and waits if the View
	// shows nothing new, misses no change.
	Watch(t Topic) *Wait
}

// Holds reports whether an acquisition lasts: by session, or (session "") by any. now is the token of the present
// holder, for a semaphore that of the session, or 0.
func (v *View) Holds(f Fence, session string) (holds bool, now Index) {
	return v.shown.fenceHolds(f, strings.ToLower(session))
}

// Held yields what a session holds: keys, locks and semaphores, by kind and name.
func (v *View) Held(session string) iter.Seq[Fence] {
	session = strings.ToLower(session)
	return func(yield func(Fence) bool) {
		for p := range v.shown.keys.heldBy(session) {
			if !yield(Fence{Kind: Key, Name: p.Key, Index: p.Fence}) {
				return
			}
		}
		for _, s := range stakesOf(v.shown.permits.stakes, session) {
			m, _ := v.shown.permits.find(s.kind, s.name).positions.Get(session)
			if m.fence != 0 && !yield(Fence{Kind: s.kind, Name: s.name, Index: m.fence}) {
				return
			}
		}
	}
}

// HoldsOrWaits reports whether a session holds a lock or semaphore, or waits for it.
func (v *View) HoldsOrWaits(kind Kind, name, session string) bool {
	sem := v.shown.permits.find(kind, name)
	if sem == nil {
		return false
	}
	_, stands := sem.positions.Get(strings.ToLower(session))
	return stands
}

// Permits returns a lock or semaphore, nil if no session holds it or waits for it and no lock-delay blocks it, and
// the index with which a blocking query continues. It costs O(holders and queue).
func (v *View) Permits(kind Kind, name string) (*Permits, Index) {
	if sem := v.shown.permits.find(kind, name); sem != nil {
		return sem.permits(), max(sem.modified, v.shown.restored)
	}
	return nil, max(v.shown.permits.index, v.shown.restored, 1)
}

// AllPermits yields locks or semaphores by name.
func (v *View) AllPermits(kind Kind) iter.Seq[*Permits] {
	return func(yield func(*Permits) bool) {
		v.shown.permits.all.Ascend(named{kind: kind}, func(n named) bool {
			return n.kind == kind && yield(n.sem.permits())
		})
	}
}

// Oldest returns the keys under a prefix that exceed what one DeleteTree may delete, the longest unchanged first.
func (v *View) Oldest(prefix string) (keys []string) {
	pairs := slices.SortedFunc(v.shown.keys.under(prefix), func(a, b *Pair) int {
		return cmp.Or(cmp.Compare(a.ModifyIndex, b.ModifyIndex), strings.Compare(a.Key, b.Key))
	})
	for _, p := range pairs[:max(0, len(pairs)-MaxDeleted)] {
		keys = append(keys, p.Key)
	}
	return keys
}

// Figures returns the counts of what exceeded a bound.
func (v *View) Figures() *Figures { return v.shown.figures }

// Use returns what a principal has.
func (v *View) Use(principal string) Use {
	use, _ := v.shown.uses.Get(principal)
	return use
}

// Uses yields the use of each principal that has anything, by name.
func (v *View) Uses() iter.Seq2[string, Use] {
	return func(yield func(string, Use) bool) { v.shown.uses.Scan(yield) }
}
