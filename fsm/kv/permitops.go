package kv

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// AcquirePermit asks for a lock (Kind Lock, Limit is ignored) or one of the permits of a semaphore.
// A session that holds one already keeps it, with its token: OK is true. If none is free, or another session
// waits already, the session joins the queue's end for Wait (ms of lease clock); 0: it does not. A session that
// waits keeps its place when it asks again, for the new Wait and with the new Value; a try (Wait 0) of such a
// session changes neither. Permits are given in the order of the queue, by whatever operation frees them,
// one of a name per operation, so that no two holders have one token.
// Refusal: an unknown session; a semaphore of another limit, see Result.Limit.
type AcquirePermit struct {
	Kind    Kind
	Name    string
	Session string
	Limit   uint32 // >= 1; the first acquisition fixes it until no session holds or waits any more
	Value   []byte // at most MaxPermitValue bytes, shown with the holder; replaced by acquiring again
	Wait    int64
}

// MaxPermitValue bounds AcquirePermit.Value, in bytes.
const MaxPermitValue = 4096

func (AcquirePermit) kind() byte { return 8 }

func (op AcquirePermit) fields(c *codec.Codec) AcquirePermit {
	op.Kind.fields(c)
	c.String(&op.Name)
	c.String(&op.Session)
	c.Uint32(&op.Limit)
	c.Bytes(&op.Value)
	c.Int64(&op.Wait)
	return op
}

// apply gives the session a permit, a place in the queue, or neither.
func (op AcquirePermit) apply(s *State, at At) Result {
	limit := op.limit()
	if refusal := op.refusal(s, limit); refusal != "" {
		return Result{Refusal: refusal}
	}
	t := s.turn(at, op.Kind, op.Name)
	if refusal := op.crowded(s, t); refusal != "" {
		return Result{Refusal: refusal, Excess: Crowded}
	}
	if t != nil {
		if t.sem.limit != limit && t.sem.lasts(at.Lease) {
			return Result{Refusal: t.sem.conflict(limit), Limit: t.sem.limit}
		}
		t.serveQueue()
	}
	if t == nil || t.sem.idle() {
		t = op.newTurn(s, at, t, limit)
	}
	res := op.acquire(t, s.session(op.Session).ID)
	t.serveQueue()
	t.finish()
	return res
}

// crowded returns why the session may neither hold nor wait (it or the queue has too much already), or "". t is nil for a new
// lock or semaphore.
func (op AcquirePermit) crowded(s *State, t *turn) string {
	l := s.sessions.find(op.Session)
	if t != nil {
		if _, has := t.sem.positions.Get(l.session.ID); has {
			return ""
		}
		if op.Wait > 0 && t.sem.queue.Len() >= MaxQueue {
			if refusal := s.beyond("%d sessions wait for %q, and no more may: try again when there are fewer", MaxQueue, op.Name); refusal != "" {
				return refusal
			}
		}
	}
	return s.crowded(l.session, l.held)
}

// limit is the limit that is asked for: a lock is a semaphore of one permit.
func (op AcquirePermit) limit() uint32 {
	if op.Kind == Lock {
		return 1
	}
	return op.Limit
}

// refusal says why an acquisition cannot be tried, whatever the semaphore's state; "": it can.
func (op AcquirePermit) refusal(s *State, limit uint32) string {
	switch {
	case op.Kind != Lock && op.Kind != Semaphore:
		return fmt.Sprintf("%q is to be a lock or a semaphore, not of kind %d", op.Name, op.Kind)
	case op.Session == "":
		return missingSession
	case s.session(op.Session) == nil:
		return fmt.Sprintf("invalid session %q", op.Session)
	case limit < 1:
		return fmt.Sprintf("semaphore %q needs a limit of 1 or more, not %d", op.Name, limit)
	case len(op.Value) > MaxPermitValue:
		return fmt.Sprintf("value for %q has %d bytes, and may have %d", op.Name, len(op.Value), MaxPermitValue)
	}
	return ""
}

// newTurn is the turn at a name's fresh semaphore. before is that at the one whose last waiters and
// delays this operation has found to be over; nil: there was none.
func (op AcquirePermit) newTurn(s *State, at At, before *turn, limit uint32) *turn {
	if before != nil {
		before.finish()
	}
	return &turn{state: s, at: at, sem: s.permits.open(op.Kind, strings.Clone(op.Name), limit)}
}

// acquire is the part of an acquisition that follows when the queue is in order.
func (op AcquirePermit) acquire(t *turn, session string) Result {
	res := Result{Limit: t.sem.limit}
	at, ok := t.sem.positions.Get(session)
	switch {
	case ok && at.fence != 0:
		op.replaceValue(t, at.fence)
		res.OK, res.Fence = true, at.fence
	case ok:
		op.waitAgain(t, at.ticket)
		res.Place = t.sem.place(at.ticket)
	case !t.sem.full() && t.mayGrant(): // so no session waits
		t.grant(session, op.Value)
		res.OK, res.Fence = true, t.at.Index
	case op.Wait > 0:
		ticket := t.addWaiter(Waiter{
			Session: session,
			Since:   t.at.Lease,
			Until:   order.Later(t.at.Lease, op.Wait),
			Value:   cloneBytes(op.Value),
		})
		res.Place = t.sem.place(ticket)
	}
	return res
}

// replaceValue gives the session's acquisition another value.
func (op AcquirePermit) replaceValue(t *turn, fence Index) {
	if h, _ := t.sem.holders.Get(fence); !bytes.Equal(h.Value, op.Value) {
		h.Value = cloneBytes(op.Value)
		t.edit().setHolder(h)
	}
}

// waitAgain is asking by a session that waits already: its place stays. A try changes nothing, for
// another request of the session may be waiting.
func (op AcquirePermit) waitAgain(t *turn, ticket uint64) {
	w, _ := t.sem.queue.Get(ticket)
	until := order.Later(t.at.Lease, op.Wait)
	if op.Wait <= 0 || w.Until == until && bytes.Equal(w.Value, op.Value) {
		return
	}
	sem := t.edit()
	sem.dequeue(ticket)
	w.Until, w.Value = until, cloneBytes(op.Value)
	sem.enqueue(ticket, w)
}

// ReleasePermit gives a permit back; the next in the queue has it in the same operation. OK is false
// if the session does not hold one, or (Index not 0) not by this acquisition: nothing changes then.
type ReleasePermit struct {
	Kind    Kind
	Name    string
	Session string
	Index   Index
}

func (ReleasePermit) kind() byte { return 9 }

func (op ReleasePermit) fields(c *codec.Codec) ReleasePermit {
	op.Kind.fields(c)
	c.String(&op.Name)
	c.String(&op.Session)
	codec.Uint(c, &op.Index)
	return op
}

func (op ReleasePermit) apply(s *State, at At) Result {
	if op.Session == "" {
		return Result{Refusal: missingSession}
	}
	t := s.turn(at, op.Kind, op.Name)
	if t == nil {
		return Result{}
	}
	p, _ := t.sem.positions.Get(strings.ToLower(op.Session))
	if p.fence == 0 || op.Index != 0 && op.Index != p.fence {
		return Result{}
	}
	t.release(p.fence, 0)
	return Result{OK: true}
}

// LeaveQueue stops waiting. OK says that the session holds a permit afterwards: one that it holds by now
// it keeps, with Result.Fence, unless Release is set: then the permit is given back, for the request that would
// use it has ended.
type LeaveQueue struct {
	Kind    Kind
	Name    string
	Session string
	Release bool
}

func (LeaveQueue) kind() byte { return 10 }

func (op LeaveQueue) fields(c *codec.Codec) LeaveQueue {
	op.Kind.fields(c)
	c.String(&op.Name)
	c.String(&op.Session)
	c.Bool(&op.Release)
	return op
}

func (op LeaveQueue) apply(s *State, at At) Result {
	if op.Session == "" {
		return Result{Refusal: missingSession}
	}
	t := s.turn(at, op.Kind, op.Name)
	if t == nil {
		return Result{}
	}
	p, ok := t.sem.positions.Get(strings.ToLower(op.Session))
	switch {
	case !ok:
		return Result{}
	case p.fence == 0:
		t.dropWaiter(p.ticket) // another request of its session may be waiting
		t.serveQueue()
		t.finish()
		return Result{}
	case op.Release:
		t.release(p.fence, 0)
		return Result{}
	}
	return Result{OK: true, Fence: p.fence}
}

// EndDelay ends a lock-delay whose time has passed, proposed as ExpireSession is: a lock or semaphore
// goes to the next in its queue. Until is the delay's end that is meant (lease clock, ms).
type EndDelay struct {
	Epoch Epoch
	Kind  Kind
	Name  string
	Until int64
}

func (EndDelay) kind() byte { return 7 }

func (op EndDelay) fields(c *codec.Codec) EndDelay {
	op.Epoch.Fields(c)
	op.Kind.fields(c)
	c.String(&op.Name)
	c.Int64(&op.Until)
	return op
}

// apply removes a lock-delay. The stamp decides like everywhere: that the proposer's clock was further is not
// enough. Of a key that is no change, and a view may go on to have the lock-delay: a reader compares its end with
// the clock.
func (op EndDelay) apply(s *State, at At) Result {
	switch {
	case !s.epoch.Leads(at.Term, op.Epoch) || op.Until > at.Lease:
		return Result{}
	case op.Kind != Key:
		return op.servePermits(s, at)
	}
	if until, ok := s.keys.delays.until.Get(op.Name); !ok || until != op.Until {
		return Result{}
	}
	s.keys.delays.remove(op.Name)
	return Result{OK: true}
}

// servePermits gives a permit whose lock-delay is over to the next in the queue.
func (op EndDelay) servePermits(s *State, at At) Result {
	t := s.turn(at, op.Kind, op.Name)
	if t == nil {
		return Result{}
	}
	if _, ok := t.sem.delays.Get(op.Until); !ok {
		return Result{}
	}
	t.serveQueue()
	t.finish()
	return Result{OK: true}
}
