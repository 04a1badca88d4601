package kv

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// turn is what one operation does to one semaphore. It copies the semaphore with the first change, and
// at its end notes, once, that there was one.
type turn struct {
	state   *State
	at      At
	sem     *semaphore
	changed bool
}

// turn begins one at a lock or semaphore; nil: there is none of the name.
func (s *State) turn(at At, kind Kind, name string) *turn {
	if sem := s.permits.find(kind, name); sem != nil {
		return &turn{state: s, at: at, sem: sem}
	}
	return nil
}

// edit returns the semaphore for writing.
func (t *turn) edit() *semaphore {
	if !t.changed {
		t.sem = t.state.permits.editable(t.sem)
		t.changed = true
	}
	return t.sem
}

// end notes what has changed. What nobody holds, waits for or is delayed for is no more.
func (t *turn) end() {
	if !t.changed {
		return
	}
	t.sem.modified = t.at.Index
	t.state.permits.index = t.at.Index
	t.state.permits.edited(t.sem)
	t.state.change(t.at, t.sem.topic())
}

// tell wakes the session that waits for a permit.
func (t *turn) tell(session string) {
	t.state.change(t.at, Topic{Kind: PermitTopic, Name: PermitName(t.sem.kind, t.sem.name, session)})
}

// acquirePermit gives the session a permit, a place in the queue, or neither.
func (s *State) acquirePermit(at At, op AcquirePermit) Result {
	limit := op.limit()
	if refusal := s.permitRefusal(op, limit); refusal != "" {
		return Result{Refusal: refusal}
	}
	t := s.turn(at, op.Kind, op.Name)
	if t != nil {
		if t.sem.limit != limit && t.sem.lasts(at.Lease) {
			return Result{Refusal: t.sem.conflict(limit), Limit: t.sem.limit}
		}
		t.settle()
	}
	if t == nil || t.sem.idle() {
		t = s.open(t, at, op, limit)
	}
	res := t.acquire(s.session(op.Session).ID, op)
	t.settle()
	t.end()
	return res
}

// open begins the turn at a name's fresh semaphore. before is that at the one whose last waiters and
// delays this operation has found to be over; nil: there was none.
func (s *State) open(before *turn, at At, op AcquirePermit, limit uint32) *turn {
	if before != nil {
		before.end()
	}
	return &turn{state: s, at: at, sem: s.permits.open(op.Kind, strings.Clone(op.Name), limit)}
}

// limit is the limit that is asked for: a lock is a semaphore of one permit.
func (op AcquirePermit) limit() uint32 {
	if op.Kind == Lock {
		return 1
	}
	return op.Limit
}

// permitRefusal says why an acquisition cannot be tried, whatever the semaphore's state; "": it can.
func (s *State) permitRefusal(op AcquirePermit, limit uint32) string {
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

const missingSession = "missing session"

// conflict refuses another limit.
func (m *semaphore) conflict(limit uint32) string {
	return fmt.Sprintf("semaphore %q has limit %d, not %d: the first that acquired it set it, and it stays until nobody holds it or waits for it", m.name, m.limit, limit)
}

// acquire is the part of an acquisition that follows when the queue is in order.
func (t *turn) acquire(session string, op AcquirePermit) Result {
	res := Result{Limit: t.sem.limit}
	m, ok := t.sem.members.Get(session)
	switch {
	case ok && m.fence != 0:
		t.replaceValue(m.fence, op.Value)
		res.OK, res.Fence = true, m.fence
	case ok:
		t.waitAgain(m.ticket, op)
		res.Place = t.sem.place(m.ticket)
	case !t.sem.full() && t.grants(): // so nobody waits
		t.grant(session, op.Value)
		res.OK, res.Fence = true, t.at.Index
	case op.Wait > 0:
		ticket := t.edit().join(Waiter{
			Session: session,
			Since:   t.at.Lease,
			Until:   order.Later(t.at.Lease, op.Wait),
			Value:   cloneBytes(op.Value),
		})
		t.state.permits.wait(t.sem, session)
		res.Place = t.sem.place(ticket)
	}
	return res
}

// replaceValue gives a holder's acquisition another value.
func (t *turn) replaceValue(fence Index, value []byte) {
	if h, _ := t.sem.holders.Get(fence); !bytes.Equal(h.Value, value) {
		h.Value = cloneBytes(value)
		t.edit().hold(h)
	}
}

// waitAgain is asking by one who waits already: its place stays. Who only tries changes nothing, for
// another request of its session may be waiting.
func (t *turn) waitAgain(ticket uint64, op AcquirePermit) {
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

// grants says whether this operation may still give a permit of the semaphore away. It may once: two
// holders must not have the same token.
func (t *turn) grants() bool { return t.sem.granted != t.at.Index }

// grant gives a free permit to a session, which is not in the queue any more.
func (t *turn) grant(session string, value []byte) {
	sem := t.edit()
	sem.granted = t.at.Index
	sem.hold(Holder{
		Session: session,
		Fence:   t.at.Index,
		Since:   t.at.Lease,
		Wall:    t.at.Wall,
		Value:   cloneBytes(value),
	})
	t.state.permits.stakes.Set(stake{session, sem.kind, sem.name})
}

// settle brings the queue in order: it drops who waits no longer, and gives a permit that is free, or
// whose lock-delay is over, to the first that waits. If more could be given the rest is kept back by
// delays that end now, and so given by operations of their own.
func (t *turn) settle() {
	t.dropPassed()
	t.dropEnded()
	if t.sem.queue.Len() > 0 && t.grants() && (!t.sem.full() || t.endDelay()) {
		t.grantFirst()
	}
	if t.sem.queue.Len() == 0 {
		t.endDelays()
		return
	}
	t.keepBack()
}

// dropPassed drops those whose time to wait has passed.
func (t *turn) dropPassed() {
	for {
		until, ticket, ok := t.sem.ends.First()
		if !ok || until >= t.at.Lease {
			return
		}
		t.drop(ticket)
	}
}

// dropEnded drops from the queue's head sessions that end in this same operation. Those behind it are
// dropped at their own turns.
func (t *turn) dropEnded() {
	for {
		ticket, w, ok := t.sem.queue.Min()
		if !ok || t.state.session(w.Session) != nil {
			return
		}
		t.drop(ticket)
	}
}

// drop takes somebody out of the queue, and says so.
func (t *turn) drop(ticket uint64) {
	w := t.leave(ticket)
	t.tell(w.Session)
}

// leave takes somebody out of the queue.
func (t *turn) leave(ticket uint64) Waiter {
	w := t.edit().leave(ticket)
	t.state.permits.unwait(t.sem, w.Session)
	return w
}

func (t *turn) grantFirst() {
	ticket, _, _ := t.sem.queue.Min()
	w := t.leave(ticket)
	t.grant(w.Session, w.Value)
	t.tell(w.Session)
}

// endDelay ends the oldest lock-delay if its time has passed.
func (t *turn) endDelay() (ended bool) {
	until, _, ok := t.sem.delays.Min()
	if !ok || until > t.at.Lease {
		return false
	}
	t.state.permits.undelay(t.edit(), until)
	return true
}

// endDelays ends all lock-delays whose time has passed: nobody waits for what they kept back.
func (t *turn) endDelays() {
	for t.endDelay() {
	}
}

// keepBack delays the permits that are free until now.
func (t *turn) keepBack() {
	for !t.sem.full() {
		t.state.permits.delay(t.edit(), t.at.Lease)
	}
}

func (s *State) releasePermit(at At, op ReleasePermit) Result {
	if op.Session == "" {
		return Result{Refusal: missingSession}
	}
	t := s.turn(at, op.Kind, op.Name)
	if t == nil {
		return Result{}
	}
	m, _ := t.sem.members.Get(strings.ToLower(op.Session))
	if m.fence == 0 || op.Index != 0 && op.Index != m.fence {
		return Result{}
	}
	t.release(m.fence, 0)
	return Result{OK: true}
}

// release ends a turn with a permit taken from its holder, and kept back for some ms.
func (t *turn) release(fence Index, delay int64) {
	h := t.edit().release(fence)
	t.state.permits.stakes.Delete(stake{h.Session, t.sem.kind, t.sem.name})
	if delay > 0 {
		t.state.permits.delay(t.sem, order.Later(t.at.Lease, delay))
	}
	t.settle()
	t.end()
}

func (s *State) leaveQueue(at At, op LeaveQueue) Result {
	if op.Session == "" {
		return Result{Refusal: missingSession}
	}
	t := s.turn(at, op.Kind, op.Name)
	if t == nil {
		return Result{}
	}
	m, ok := t.sem.members.Get(strings.ToLower(op.Session))
	switch {
	case !ok:
		return Result{}
	case m.fence == 0:
		t.drop(m.ticket) // another request of its session may be waiting
		t.settle()
		t.end()
		return Result{}
	case op.Release:
		t.release(m.fence, 0)
		return Result{}
	}
	return Result{OK: true, Fence: m.fence}
}

// endPermitDelay gives a permit whose lock-delay is over to the next. It was proposed under the present
// epoch. The stamp decides like everywhere: that the proposer's clock was further is not enough.
func (s *State) endPermitDelay(at At, op EndDelay) Result {
	t := s.turn(at, op.Kind, op.Name)
	if t == nil || op.Until > at.Lease {
		return Result{}
	}
	if _, ok := t.sem.delays.Get(op.Until); !ok {
		return Result{}
	}
	t.settle()
	t.end()
	return Result{OK: true}
}

// losePermits takes from a session that ends what it holds and waits for. All sessions that end in the
// same operation are gone from the state already: s.session does not find them.
func (s *State) losePermits(at At, session *Session) {
	for _, stake := range s.permits.stakesOf(session.ID) {
		t := s.turn(at, stake.kind, stake.name)
		m, _ := t.sem.members.Get(session.ID)
		if m.fence != 0 {
			t.release(m.fence, session.lockDelay())
			continue
		}
		t.drop(m.ticket)
		t.settle()
		t.end()
	}
}

// permitsDue adds the ends of lock-delays that are over at a moment (lease clock, ms): one for each
// permit that is kept back.
func (s *State) permitsDue(now int64, add func(until int64, op EndDelay)) {
	for until, d := range s.permits.delays.Due(now) {
		n, _ := s.permits.find(d.kind, d.name).delays.Get(until)
		for range n {
			add(until, EndDelay{Kind: d.kind, Name: d.name, Until: until})
		}
	}
}

// permitsNeedClock says that a lock or semaphore waits for a time of the lease clock: a lock-delay to
// end, or somebody's wait.
func (s *State) permitsNeedClock() bool { return s.permits.delays.Len() > 0 || s.permits.waiting > 0 }
