package consensus

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/wait"
	"github.com/seed-20419f34/rollcall/store/consensus/membership"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
)

// freshInterval is the longest time between two proofs of how far this node is behind, while a leader can give them
// and somebody asks for the age. unaskedInterval is the same while nobody asks: a proof costs all nodes something.
const (
	freshInterval   = 100 * time.Millisecond
	unaskedInterval = 500 * time.Millisecond
)

// Age returns how old this node's state can be: the time since it had everything that was acknowledged. A node that
// has not heard of the log's end since it started can only go by the stamp of its newest entry, which comes from
// another node's wall clock: see Heard.
func (r *reader) Age(now time.Time) time.Duration {
	r.want()
	return r.age(now)
}

// Heard reports whether this node, since it started, has applied everything that a leader named as its own.
func (r *reader) Heard() bool {
	if !r.heard.Load() && !r.fresh.newest(r.cfg.Machine.Index()).IsZero() {
		r.heard.Store(true)
	}
	return r.heard.Load()
}

// want has the age proven soon, and often for a while.
func (r *reader) want() {
	if !r.asked.Load() && !r.asked.Swap(true) {
		r.wanted.Fire()
	}
}

func (r *reader) age(now time.Time) time.Duration {
	since := r.fresh.newest(r.cfg.Machine.Index())
	if since.IsZero() {
		// The state of a node that has applied nothing counts from 1970: there may be a log whose end it does not
		// know.
		return max(elapsed(r.cfg.Opened, now), r.cfg.World.Wall(now).Sub(time.UnixMilli(r.cfg.Machine.View().Stamp().Wall)))
	}
	return elapsed(since, now)
}

// stayFresh keeps proving how far this node is behind. Linearizable reads prove it as well; while there are enough of
// them it has nothing to do.
func (r *reader) stayFresh(ctx context.Context) {
	for ctx.Err() == nil {
		r.pauseProofs(ctx)
		if r.age(time.Now()) > freshInterval/2 {
			r.prove(ctx) // no need to log a failure: the age grows
		}
	}
}

// pauseProofs waits until the age must be proven again.
func (r *reader) pauseProofs(ctx context.Context) {
	wanted, pause := r.wanted.Wait(), unaskedInterval
	if r.asked.Swap(false) {
		wanted, pause = nil, freshInterval
	}
	wait.Pause(ctx, wanted, pause)
}

// prove makes one attempt to learn how far this node is behind: the leader asks the voters as for a linearizable
// read, the others ask the leader.
func (r *reader) prove(ctx context.Context) {
	if r.cfg.Leadership.Own() != nil {
		ctx, cancel := context.WithTimeout(ctx, r.cfg.Nodes.AttemptLimit())
		defer cancel()
		r.proven.join(ctx) // leaderIndex records the proof
		return
	}
	began := time.Now()
	if leader, reply, ok := r.askFresh(ctx, FreshQuestion{Asked: r.asked.Load()}); ok {
		r.addProof(began.Add(-reply.Age), reply.Index)
		r.setTerms(leader, reply)
	}
}

// askFresh asks the leader how far it is. It returns false if no other node leads, or the leader did not answer.
func (r *reader) askFresh(ctx context.Context, question FreshQuestion) (*membership.Leader, FreshReply, bool) {
	leader := r.cfg.Leadership.Other()
	if leader == nil {
		return nil, FreshReply{}, false
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(leader.Replaced, cancel)()
	address := r.cfg.Nodes.DialAddress(leader.ID, leader.Address)
	reply, err := port.Invoke[FreshReply](ctx, r.cfg.Nodes, address, "Node.Fresh", question)
	return leader, reply, err == nil && reply.Answer == port.OK
}

// LeaderDiskFull reports whether another node leads and its disk is nearly full. Without an answer it returns false.
func (r *reader) LeaderDiskFull(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Nodes.AttemptLimit())
	defer cancel()
	_, reply, ok := r.askFresh(ctx, FreshQuestion{})
	return ok && reply.DiskFull
}

// termsHold is how long a node relies on what a leader has told it: no two clocks run alike.
const termsHold = 10 * time.Second

func (r *reader) setTerms(leader *membership.Leader, reply FreshReply) *membership.Terms {
	t := &membership.Terms{Leader: leader, Seen: reply.Bound, At: time.Now(), Level: reply.Level}
	r.cfg.Leadership.SetTerms(t)
	return t
}

// TermsOf returns what this node knows of a leader's leadership, and asks the leader if that is nothing, or old. Its
// errors wrap port.ErrNotSent.
func (r *reader) TermsOf(ctx context.Context, leader *membership.Leader, address string) (*membership.Terms, error) {
	if t := r.cfg.Leadership.Terms(); t != nil && t.Leader == leader && time.Since(t.At) < termsHold {
		return t, nil
	}
	reply, err := port.Invoke[FreshReply](ctx, r.cfg.Nodes, address, "Node.Fresh", FreshQuestion{})
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", port.ErrNotSent, err)
	case reply.Answer != port.OK:
		return nil, fmt.Errorf("%w: %s: %w", port.ErrNotSent, address, registry.ErrNoLeader)
	}
	return r.setTerms(leader, reply), nil
}

// FreshQuestion is what a node asks the leader by Fresh.
type FreshQuestion struct {
	Asked bool // readers ask for its age: the leader must prove often that it leads
}

// FreshReply answers Fresh.
type FreshReply struct {
	Answer port.Outcome
	Index  uint64        // newest applied entry
	Age    time.Duration // Index covers what was acknowledged until this long ago
	Bound  fsm.Bound     // permits a batch to take effect in this leadership until now
	Level  byte          // of the formats, that the leader writes
	// DiskFull is set if the leader's disk has too little room for operations that add something.
	DiskFull bool
}

// Fresh says how far the leader has applied the log and how long ago it last proved that it leads. It makes no proof
// of its own, so many followers cost as few proofs as one.
func (r *reader) Fresh(question FreshQuestion) FreshReply {
	l := r.cfg.Leadership.Own()
	if l == nil {
		return FreshReply{Answer: port.NotLeader}
	}
	reply := FreshReply{Bound: l.Bound(time.Now()), Level: r.cfg.Machine.Level()}
	if question.Asked {
		r.want()
	}
	reply.Age = r.age(time.Now())
	reply.Index = r.cfg.Machine.Index()
	reply.DiskFull = r.cfg.DiskFull != nil && r.cfg.DiskFull()
	return reply
}
