package kv

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tidwall/btree"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// living is a session and what changes while it lives.
type living struct {
	session *Session
	renewed atomic.Int64 // lease clock, ms: views look at it while it is written
	slot    uint32       // in expiry, of one with a TTL; of the writer alone
}

// sessionGrace is what a session is given, beyond half its TTL, to be renewed after an epoch was
// established: clients renew every half.
const sessionGrace = 2000 // ms

// ends is the last millisecond (lease clock) of a session with a TTL, last renewed at a moment.
func (s *Session) ends(renewed, established int64) int64 {
	grace := min(s.TTL, s.TTL/2+sessionGrace)
	return max(order.Later(renewed, s.TTL), order.Later(established, grace))
}

// lockDelay is how long (ms) what the session held is kept from others when it ends.
func (s *Session) lockDelay() int64 {
	ns := min(max(s.LockDelay, 0), MaxLockDelay)
	return (ns + 999_999) / 1_000_000
}

func (s *State) createSession(at At, op CreateSession) Result {
	if refusal := s.refusal(op); refusal != "" {
		return Result{Refusal: refusal}
	}
	l := s.begin(newSession(at, op), s.lease)
	s.tables.sessionsIndex = at.Index
	s.change(at, Topic{Kind: SessionsTopic})
	return Result{OK: true, Session: l.session}
}

// refusal says why a session cannot be created; "": it can.
func (s *State) refusal(op CreateSession) string {
	if op.ID == "" {
		return "missing session"
	}
	if s.session(op.ID) != nil {
		return "session \"" + op.ID + "\" exists already" // of a proposer that draws badly
	}
	if len(op.NodeChecks)+len(op.ServiceChecks) > MaxSessionChecks {
		return fmt.Sprintf("a session may depend on %d checks, not on %d", MaxSessionChecks, len(op.NodeChecks)+len(op.ServiceChecks))
	}
	if !s.catalog.HasNode(op.Node) {
		return "Missing node registration"
	}
	for _, id := range slices.Concat(op.NodeChecks, op.ServiceChecks) {
		switch critical, known := s.catalog.Check(op.Node, id); {
		case !known:
			return "Missing check '" + id + "' registration"
		case critical:
			return "Check '" + id + "' is in critical state"
		}
	}
	return ""
}

// newSession keeps nothing of the log entry that op came in, which may be much larger.
func newSession(at At, op CreateSession) *Session {
	return &Session{
		ID:            strings.Clone(strings.ToLower(op.ID)),
		Name:          strings.Clone(op.Name),
		Node:          strings.Clone(op.Node),
		TTL:           max(op.TTL, 0),
		TTLText:       strings.Clone(op.TTLText),
		LockDelay:     op.LockDelay,
		Behavior:      op.Behavior,
		Checks:        cloneStrings(op.Checks),
		NodeChecks:    cloneStrings(op.NodeChecks),
		ServiceChecks: cloneStrings(op.ServiceChecks),
		CreateIndex:   at.Index,
		ModifyIndex:   at.Index,
		CreatedAt:     at.Lease,
		CreatedWall:   at.Wall,
	}
}

// cloneStrings copies a list and its strings; an empty one is nil.
func cloneStrings(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	c := make([]string, len(list))
	for i, s := range list {
		c[i] = strings.Clone(s)
	}
	return c
}

// begin enters a session that was last renewed at a moment (lease clock, ms).
func (s *State) begin(session *Session, renewed int64) *living {
	l := &living{session: session}
	l.renewed.Store(renewed)
	s.tables.setSession(l)
	s.links.add(session)
	if session.TTL > 0 {
		l.slot = s.slots.take(l)
		s.expiry.Add(l.slot, s.ends(l))
	}
	return l
}

// ends is the last millisecond (lease clock) of a session with a TTL if it is not renewed again.
func (s *State) ends(l *living) int64 { return l.session.ends(l.renewed.Load(), s.established) }

func (s *State) renewSession(op RenewSession) Result {
	l, ok := s.tables.sessions.Get(strings.ToLower(op.ID))
	if !ok {
		return Result{}
	}
	l.renewed.Store(s.lease)
	return Result{OK: true, Session: l.session}
}

func (s *State) destroySession(at At, op DestroySession) Result {
	if l, ok := s.tables.sessions.Get(strings.ToLower(op.ID)); ok {
		s.end(at, []*living{l})
	}
	return Result{OK: true}
}

func (s *State) expireSession(at At, op ExpireSession) Result {
	l, ok := s.tables.sessions.Get(strings.ToLower(op.ID))
	if !ok || !s.epoch.Leads(at.Term, op.Epoch) || l.session.CreateIndex != op.Created || l.renewed.Load() != op.RenewedAt {
		return Result{}
	}
	if l.session.TTL == 0 || s.ends(l) >= at.Lease {
		return Result{} // the stamp decides, however far the proposer's clock was
	}
	s.end(at, []*living{l})
	return Result{OK: true}
}

// Lose ends the sessions that depend on checks which turned critical or are gone, in the operation
// that made them so, under its Index. It says whether any did.
func (s *State) Lose(at At, checks []CheckRef) bool {
	s.Advance(at.Lease)
	at.Lease = s.lease
	var lost []string
	for _, ref := range checks {
		lost = slices.AppendSeq(lost, s.links.of(ref))
	}
	slices.Sort(lost)
	lost = slices.Compact(lost)
	ended := make([]*living, len(lost))
	for i, id := range lost {
		ended[i], _ = s.tables.sessions.Get(id)
	}
	s.end(at, ended)
	return len(ended) > 0
}

// LoseNode ends the sessions of a node that was deregistered.
func (s *State) LoseNode(at At, node string) bool { return s.Lose(at, []CheckRef{{Node: node}}) }

// end invalidates sessions, in one step: all are gone before what one of them held goes to whoever
// waits for it, who may be another of them.
func (s *State) end(at At, ended []*living) {
	for _, l := range ended {
		s.tables.deleteSession(l.session.ID)
		s.links.remove(l.session)
		if l.session.TTL > 0 {
			s.expiry.Remove(l.slot)
			s.slots.release(l.slot)
		}
	}
	for _, l := range ended {
		s.loseKeys(at, l.session)
		s.losePermits(at, l.session)
		s.tables.sessionsIndex = at.Index
		s.change(at, Topic{Kind: SessionsTopic})
	}
}

// loseKeys takes its keys from a session that ended.
func (s *State) loseKeys(at At, session *Session) {
	for _, e := range slices.Collect(s.tables.heldBy(session.ID)) {
		s.delay(e.Key, session.lockDelay())
		if session.Behavior == DeleteKeys {
			s.remove(at, e)
		} else {
			s.free(at, e)
		}
	}
}

// links say which sessions end with which check, and (check "") with which node. They are derived from
// the sessions, and so no part of a snapshot.
type links struct{ tree *btree.BTreeG[link] }

type link struct {
	ref     CheckRef
	session string
}

func newLinks() links { return links{order.NewTree(compareLinks)} }

func compareLinks(a, b link) int {
	return cmp.Or(strings.Compare(a.ref.Node, b.ref.Node), strings.Compare(a.ref.ID, b.ref.ID), strings.Compare(a.session, b.session))
}

func (l links) add(s *Session) {
	for ref := range s.refs() {
		l.tree.Set(link{ref, s.ID})
	}
}

func (l links) remove(s *Session) {
	for ref := range s.refs() {
		l.tree.Delete(link{ref, s.ID})
	}
}

// of yields the ids of the sessions that end with a check or node.
func (l links) of(ref CheckRef) iter.Seq[string] {
	return func(yield func(string) bool) {
		l.tree.Ascend(link{ref: ref}, func(l link) bool { return l.ref == ref && yield(l.session) })
	}
}

// refs yields what a session ends with.
func (s *Session) refs() iter.Seq[CheckRef] {
	return func(yield func(CheckRef) bool) {
		if !yield(CheckRef{Node: s.Node}) {
			return
		}
		for _, list := range [][]string{s.NodeChecks, s.ServiceChecks} {
			for _, id := range list {
				if !yield(CheckRef{Node: s.Node, ID: id}) {
					return
				}
			}
		}
	}
}
