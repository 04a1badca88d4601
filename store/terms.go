package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// A batch that its node has given up must not take effect any more, wherever a copy of it was held up.
// So every copy says in which leadership it may take effect and until when, by the leader's own clock
// (fsm.Bound). That clock is the leadership's tenure, not the lease clock, which charges nobody for
// pauses and outages and so says less than the time that has passed.

// errLate: a copy of a batch came after its bound.
var errLate = errors.New("after its time")

// tenure is how long a leadership has lasted at a time, in ms.
func (l *leadership) tenure(now time.Time) int64 { return now.Sub(l.began).Milliseconds() }

// bound lets a batch take effect in a leadership until a time of this node's clock.
func (l *leadership) bound(until time.Time) fsm.Bound {
	return fsm.Bound{Leadership: l.epoch.Index, Until: l.tenure(until)}
}

// permits says whether a batch may be proposed now.
func (l *leadership) permits(b fsm.Bound, now time.Time) bool {
	return b == fsm.Bound{} || (b.Leadership == l.epoch.Index && l.tenure(now) <= b.Until)
}

// terms is what a node knows of the leadership of another, by which it bounds its batches.
type terms struct {
	leader *leaderView
	seen   fsm.Bound // how long the leadership had lasted
	at     time.Time // when this node heard that, which is later
}

// bound lets a batch take effect until a time of this node's clock, or a little earlier: by the time
// that the leader's answer took.
func (t *terms) bound(until time.Time) fsm.Bound {
	return fsm.Bound{Leadership: t.seen.Leadership, Until: t.seen.Until + until.Sub(t.at).Milliseconds()}
}

// termsHold is how long a node goes by what a leader has told it: no two clocks run alike.
const termsHold = 10 * time.Second

func (s *Raft) noteTerms(leader *leaderView, reply FreshReply) {
	s.terms.Store(&terms{leader: leader, seen: reply.Bound, at: time.Now()})
}

// termsOf returns what this node knows of a leader's leadership, and asks if that is nothing, or old. Its
// errors wrap errNotSent.
func (s *Raft) termsOf(ctx context.Context, leader *leaderView, address string) (*terms, error) {
	if t := s.terms.Load(); t != nil && t.leader == leader && time.Since(t.at) < termsHold {
		return t, nil
	}
	reply, err := invoke[FreshReply](ctx, s.peers, address, "Node.Fresh", struct{}{})
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errNotSent, err)
	case reply.Answer != answerOK:
		return nil, fmt.Errorf("%w: %s: %w", errNotSent, address, registry.ErrNoLeader)
	}
	t := &terms{leader: leader, seen: reply.Bound, at: time.Now()}
	s.terms.Store(t)
	return t, nil
}
