package kv

import (
	"cmp"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// living is a session and what changes while it lives.
type living struct {
	session *Session
	renewed atomic.Int64 // lease clock, ms: views read it while it is written
	slot    uint32       // of a session with a TTL; for the writer only
	held    int          // number of its keys, permits and places in queues; for the writer only
}

// sessionTable is the part of a View for sessions, and the writer's way to find them. The tree by id is
// copy-on-write.
type sessionTable struct {
	byID  order.Map[string, *living]
	index Index // of the last creation or end of a session
	bytes int   // of all sessions, see Session.weight
	*sessionEnds
}

// sessionEnds finds sessions by what ends them. It is derived from the sessions, and so not part of a snapshot; in
// views it is nil.
type sessionEnds struct {
	byCheck order.Tree[link]
	load    map[CheckRef]int // how much ends with each: its sessions, and what they hold
	slots   slots
	ends    order.Ends  // of the sessions with a TTL, by slot
	undo    *order.Undo // of the attempt in progress, see State.attempt; nil outside one
}

func newSessionTable() sessionTable {
	return sessionTable{
		byID: order.NewMap[string, *living](order.Degree),
		sessionEnds: &sessionEnds{load: map[CheckRef]int{}, byCheck: order.NewBoxedTree(func(a, b link) int {
			return cmp.Or(strings.Compare(a.ref.Node, b.ref.Node), strings.Compare(a.ref.ID, b.ref.ID), strings.Compare(a.session, b.session))
		})},
	}
}

// share returns a copy for views.
func (t *sessionTable) share() sessionTable {
	return sessionTable{byID: t.byID.Copy(), index: t.index, bytes: t.bytes}
}

// save returns a function that restores the table's present state. Until it is called, sessions may be removed but
// not added.
func (t *sessionTable) save() (undo func()) {
	saved, u := t.share(), new(order.Undo)
	t.undo = u
	return func() {
		u.Run()
		t.byID, t.index, t.bytes = saved.byID, saved.index, saved.bytes
	}
}

// find returns a session, or nil. The case of the id does not matter.
func (t *sessionTable) find(id string) *living {
	l, _ := t.byID.Get(strings.ToLower(id))
	return l
}

// add enters a session. end (lease clock, ms) is its end if it has a TTL and is not renewed.
func (t *sessionTable) add(l *living, end int64) {
	t.byID.Set(l.session.ID, l)
	t.bytes += l.session.Weight()
	t.addEnds(l, end)
}

// addEnds makes a session findable by what ends it.
func (t *sessionEnds) addEnds(l *living, end int64) {
	for ref := range l.session.refs() {
		t.byCheck.Set(link{ref, l.session.ID})
	}
	t.addLoad(l.session, 1+l.held)
	if l.session.TTL > 0 {
		l.slot = t.slots.reserve(l)
		t.ends.Add(l.slot, end)
	}
}

func (t *sessionTable) remove(l *living) {
	t.byID.Delete(l.session.ID)
	t.bytes -= l.session.Weight()
	for ref := range l.session.refs() {
		t.byCheck.Delete(link{ref, l.session.ID})
	}
	t.addLoad(l.session, -1-l.held)
	var end int64
	if l.session.TTL > 0 {
		end = t.ends.Known(l.slot)
		t.ends.Remove(l.slot)
		t.slots.release(l.slot)
	}
	if t.undo != nil {
		t.undo.Add(func() { t.addEnds(l, end) })
	}
}

// ended returns the sessions that have ended at now, oldest end first, and corrects the known ends of sessions that
// were renewed since the last call. end returns the true end of a session.
func (t *sessionTable) ended(now int64, end func(*living) int64) []*living {
	var ended []*living
	for _, slot := range t.ends.Ended(now, func(slot uint32) int64 { return end(t.slots.sessions[slot]) }) {
		ended = append(ended, t.slots.sessions[slot])
	}
	slices.SortFunc(ended, func(a, b *living) int {
		return cmp.Or(cmp.Compare(t.ends.Known(a.slot), t.ends.Known(b.slot)), strings.Compare(a.session.ID, b.session.ID))
	})
	return ended
}

// link tells that a session ends with a check, or (check "") with a node.
type link struct {
	ref     CheckRef
	session string
}

// slots numbers the sessions with a TTL. Two replicas may number them differently, so the numbers decide nothing.
type slots struct {
	sessions []*living // by slot; nil if free
	free     []uint32
}

func (s *slots) reserve(l *living) (slot uint32) {
	if last := len(s.free) - 1; last >= 0 {
		slot, s.free = s.free[last], s.free[:last]
		s.sessions[slot] = l
		return slot
	}
	s.sessions = append(s.sessions, l)
	return uint32(len(s.sessions) - 1)
}

func (s *slots) release(slot uint32) {
	s.sessions[slot] = nil
	s.free = append(s.free, slot)
}

// addHeld adds to what a session holds or waits for.
func (t *sessionTable) addHeld(l *living, by int) {
	l.held += by
	t.addLoad(l.session, by)
	if t.undo != nil {
		t.undo.Add(func() {
			l.held -= by
			t.addLoad(l.session, -by)
		})
	}
}

// addLoad adds to the load of each of a session's checks and of its node.
func (t *sessionEnds) addLoad(s *Session, by int) {
	for ref := range s.refs() {
		if ref.Node == "" && (ref.ID == "" || ref.ID == catalog.SerfHealth) {
			continue // only clients that may write nodes can remove these, and sessions depend on them by default
		}
		if t.load[ref] += by; t.load[ref] == 0 {
			delete(t.load, ref)
		}
	}
}
