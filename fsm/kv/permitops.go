package kv

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// AcquirePermit asks for a lock (Kind Lock, Limit is ignored) or one of the permits of a semaphore. A session that
// already holds one keeps it, with its token: OK is true. If no permit is free, or another session is already
// waiting, the session joins the end of the queue for Wait (ms of lease clock); 0 means that it does not. A waiting
// session that asks again keeps its place, with the new Wait and the new Value; if it only tries (Wait 0), neither
// changes. Permits are given in the order of the queue, by whatever operation frees them, one per name and operation,
// so that no two holders have the same token.
// Refusal: an unknown session; a semaphore with another limit, see Result.Limit.
type AcquirePermit struct {
	Kind    Kind
	Name    string
	Session string
	Limit   uint32 // >= 1; the first acquisition fixes it for as long as any session holds or waits
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
	limit := op.Limit
	if op.Kind == Lock {
		limit = 1 // a lock is a semaphore of one permit
	}
	if refusal := op.refusal(s, limit); refusal != "" {
		return Result{Refusal: refusal}
	}
	t := s.turn(at, op.Kind, op.Name)
	if refusal := op.crowded(s, t); refusal != "" {
		return Result{Refusal: refusal, Excess: Crowded}
	}
	if t != nil {
		if t.sem.limit != limit && t.sem.lasts(at.Lease) {
			refusal := fmt.Sprintf("semaphore %q has limit %d, not %d: the first that acquired it set it, and it stays until nobody holds it or waits for it", op.Name, t.sem.limit, limit)
			return Result{Refusal: refusal, Limit: t.sem.limit}
		}
		t.serveQueue()
	}
	if t == nil || t.sem.idle() {
		if t != nil { // its last waiters and delays are over
			t.finish()
		}
		t = &turn{state: s, at: at, sem: s.permits.open(op.Kind, strings.Clone(op.Name), limit)}
	}
	res := op.acquire(t, s.session(op.Session).ID)
	t.serveQueue()
	t.finish()
	return res
}

// crowded returns why the session may neither hold nor wait (it or the queue has too much already), or "". t is nil
// for a new lock or semaphore.
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

// refusal returns why an acquisition cannot be tried, whatever the semaphore's state, or "".
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

// acquire is the rest of an acquisition, once the queue is in order.
func (op AcquirePermit) acquire(t *turn, session string) Result {
	res := Result{Limit: t.sem.limit}
	at, ok := t.sem.positions.Get(session)
	switch {
	case ok && at.fence != 0:
		if h, _ := t.sem.holders.Get(at.fence); !bytes.Equal(h.Value, op.Value) {
			h.Value = cloneBytes(op.Value)
			t.edit().setHolder(h)
		}
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

// waitAgain handles a waiting session that asks again: it keeps its place. A try changes nothing, because another
// request of the session may be waiting.
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

// ReleasePermit gives a permit back; the next in the queue gets it in the same operation. OK is false if the session
// does not hold a permit, or (Index not 0) not by this acquisition: then nothing changes.
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

// LeaveQueue stops waiting. OK says that the session holds a permit afterwards: if it got one in the meantime it
// keeps it, with Result.Fence, unless Release is set. Then the permit is given back, because the request that would
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

// EndDelay ends a lock-delay whose time has passed, proposed as ExpireSession is: a lock or semaphore goes to the
// next in its queue. Until (lease clock, ms) tells which delay it means.
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

// apply removes a lock-delay. The stamp decides, as everywhere: it is not enough that the proposer's clock was
// further. For a key this is not a change, and a view may keep the lock-delay: readers compare its end with the
// clock.
func (op EndDelay) apply(s *State, at At) Result {
	if !s.epoch.Leads(at.Term, op.Epoch) || op.Until > at.Lease {
		return Result{}
	}
	if op.Kind == Key {
		if until, ok := s.keys.delays.until.Get(op.Name); !ok || until != op.Until {
			return Result{}
		}
		s.keys.delays.remove(op.Name)
		return Result{OK: true}
	}
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
