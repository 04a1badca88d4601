package kv

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// CreateSession creates a session. The proposer drew ID, a UUID in lower case. Result.Refusal says, in Consul's
// words, that the node or a check is not registered, or a check is critical.
type CreateSession struct {
	ID        string
	Name      string
	Node      string // "": the cluster's logical node
	TTL       int64  // ms that it lives without a renewal; 0: it does not end by time
	TTLText   string // the text that clients gave and read back; Consul's means half of what the session lives
	LockDelay int64  // ns; at most MaxLockDelay counts
	Behavior  Behavior
	Checks    []string // legacy list as given, only shown; nil if not given
	// NodeChecks are the effective checks of Node; ServiceChecks are ids of checks of services on Node.
	NodeChecks    []string
	ServiceChecks []string
}

// MaxSessionChecks is how many checks a session may depend on.
const MaxSessionChecks = 256

func (CreateSession) kind() byte { return 3 }

func (op CreateSession) fields(c *codec.Codec) CreateSession {
	c.String(&op.ID)
	c.String(&op.Name)
	c.String(&op.Node)
	c.Int64(&op.TTL)
	c.String(&op.TTLText)
	c.Int64(&op.LockDelay)
	op.Behavior.fields(c)
	optionalStrings(c, &op.Checks)
	c.Strings(&op.NodeChecks)
	c.Strings(&op.ServiceChecks)
	return op
}

func (op CreateSession) apply(s *State, at At) Result {
	if refusal := op.refusal(s); refusal != "" {
		return Result{Refusal: refusal}
	}
	session := op.session(at)
	if refusal := s.crowded(session, 0); refusal != "" {
		return Result{Refusal: refusal, Excess: Crowded}
	}
	s.addSession(session, s.lease)
	s.sessions.index = at.Index
	s.change(at, Topic{Kind: SessionsTopic})
	return Result{OK: true, Session: session}
}

// refusal returns why a session cannot be created, or "".
func (op CreateSession) refusal(s *State) string {
	if op.ID == "" {
		return missingSession
	}
	if s.session(op.ID) != nil {
		return "session \"" + op.ID + "\" exists already" // from a proposer that draws badly
	}
	if len(op.NodeChecks)+len(op.ServiceChecks) > MaxSessionChecks {
		return fmt.Sprintf("a session may depend on %d checks, not on %d", MaxSessionChecks, len(op.NodeChecks)+len(op.ServiceChecks))
	}
	if !s.catalog.HasNode(op.Node) {
		return NoNode
	}
	for _, id := range slices.Concat(op.NodeChecks, op.ServiceChecks) {
		switch status, known := s.catalog.CheckState(op.Node, id); {
		case !known:
			return "Missing check '" + id + "' registration"
		case status == catalog.Critical:
			return "Check '" + id + "' is in critical state"
		}
	}
	return ""
}

// NoNode is the Refusal of a session on an unknown node.
const NoNode = "Missing node registration"

// session returns the new session. It keeps nothing of op's log entry, which may be much larger.
func (op CreateSession) session(at At) *Session {
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
		By:            strings.Clone(at.By),
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

// addSession enters a session that was last renewed at a moment (lease clock, ms).
func (s *State) addSession(session *Session, renewed int64) {
	l := &living{session: session}
	l.renewed.Store(renewed)
	s.sessions.add(l, s.sessionEnd(l))
	s.uses.add(session.By, 1, session.Weight())
}

// sessionEnd returns the last millisecond (lease clock) of a session with a TTL unless it is renewed again.
func (s *State) sessionEnd(l *living) int64 {
	return l.session.ends(l.renewed.Load(), s.established, s.level)
}

// RenewSession restarts a session's TTL. It takes no Index. OK is false if the session does not exist.
type RenewSession struct{ ID string }

func (RenewSession) kind() byte { return 4 }

func (op RenewSession) fields(c *codec.Codec) RenewSession {
	c.String(&op.ID)
	return op
}

func (op RenewSession) apply(s *State, _ At) Result {
	l := s.sessions.find(op.ID)
	if l == nil {
		return Result{}
	}
	l.renewed.Store(s.lease)
	return Result{OK: true, Session: l.session}
}

// DestroySession ends a session. OK is true even if the session does not exist.
type DestroySession struct{ ID string }

func (DestroySession) kind() byte { return 5 }

func (op DestroySession) fields(c *codec.Codec) DestroySession {
	c.String(&op.ID)
	return op
}

func (op DestroySession) apply(s *State, at At) Result {
	if l := s.sessions.find(op.ID); l != nil {
		s.endSessions(at, []*living{l})
	}
	return Result{OK: true}
}

// ExpireSession ends a session whose TTL has passed. The leader proposes it under its epoch; it takes
// effect only if the session was created by Created and last renewed at RenewedAt (lease clock, ms).
type ExpireSession struct {
	Epoch     Epoch
	ID        string
	Created   Index
	RenewedAt int64
}

func (ExpireSession) kind() byte { return 6 }

func (op ExpireSession) fields(c *codec.Codec) ExpireSession {
	op.Epoch.Fields(c)
	c.String(&op.ID)
	codec.Uint(c, &op.Created)
	c.Int64(&op.RenewedAt)
	return op
}

func (op ExpireSession) apply(s *State, at At) Result {
	l := s.sessions.find(op.ID)
	if l == nil || !s.epoch.Leads(at.Term, op.Epoch) || l.session.CreateIndex != op.Created || l.renewed.Load() != op.RenewedAt {
		return Result{}
	}
	if l.session.TTL == 0 || s.sessionEnd(l) >= at.Lease {
		return Result{} // the stamp decides, however far the proposer's clock was
	}
	s.endSessions(at, []*living{l})
	return Result{OK: true}
}

// Lose ends the sessions that depend on checks which turned critical or were removed, in the operation that did it,
// under its Index. It reports whether any did.
func (s *State) Lose(at At, checks []CheckRef) bool {
	s.Advance(at.Lease)
	at.Lease = s.lease
	var lost []string
	for _, ref := range checks {
		s.sessions.byCheck.Ascend(link{ref: ref}, func(l link) bool {
			if l.ref == ref {
				lost = append(lost, l.session)
			}
			return l.ref == ref
		})
	}
	slices.Sort(lost)
	lost = slices.Compact(lost)
	ended := make([]*living, len(lost))
	for i, id := range lost {
		ended[i] = s.sessions.find(id)
	}
	s.endSessions(at, ended)
	return len(ended) > 0
}

// LoseNode ends the sessions of a node that was deregistered.
func (s *State) LoseNode(at At, node string) bool { return s.Lose(at, []CheckRef{{Node: node}}) }

// endSessions invalidates sessions in one step: all are removed before anything that one of them held goes to the
// next in its queue, which may be another of them.
func (s *State) endSessions(at At, ended []*living) {
	for _, l := range ended {
		s.sessions.remove(l)
		s.uses.add(l.session.By, -1, -l.session.Weight()-l.held*heldWeight)
	}
	for _, l := range ended {
		s.loseKeys(at, l.session)
		s.losePermits(at, l.session)
		s.sessions.index = at.Index
		s.change(at, Topic{Kind: SessionsTopic})
	}
}

// loseKeys takes the keys of a session that ended.
func (s *State) loseKeys(at At, session *Session) {
	for _, p := range slices.Collect(s.keys.heldBy(session.ID)) {
		if delay := session.lockDelay(); delay > 0 {
			s.keys.delays.set(p.Key, order.Later(s.lease, delay))
		}
		if session.Behavior == DeleteKeys {
			s.removeKey(at, p)
			continue
		}
		released := s.successor(at, p.Key, p)
		released.Session = ""
		s.replaceKey(at, p, released)
	}
}
