package kv

import (
	"iter"
	"strings"
)

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
