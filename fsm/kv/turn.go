package kv

import "github.com/seed-20419f34/rollcall/fsm/order"

// turn is what one operation does to one semaphore. It copies the semaphore at the first change, and records the
// change once, when it finishes.
type turn struct {
	state   *State
	at      At
	sem     *semaphore
	changed bool
}

// turn returns the turn for a lock or semaphore, or nil if nothing has the name.
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

// finish records the changes. A semaphore that no session holds or waits for and no lock-delay blocks is removed.
func (t *turn) finish() {
	if !t.changed {
		return
	}
	t.sem.modified = t.at.Index
	t.state.permits.index = t.at.Index
	t.state.permits.edited(t.sem)
	topic := Topic{Kind: SemaphoreTopic, Name: t.sem.name}
	if t.sem.kind == Lock {
		topic.Kind = LockTopic
	}
	t.state.change(t.at, topic)
}

// wake wakes the session that waits for a permit.
func (t *turn) wake(session string) {
	t.state.change(t.at, Topic{Kind: PermitTopic, Name: PermitName(t.sem.kind, t.sem.name, session)})
}

// mayGrant reports whether this operation may still give away a permit of the semaphore. It may do so once: two
// holders must not have the same token.
func (t *turn) mayGrant() bool { return t.sem.granted != t.at.Index }

// grant gives a free permit to a session, which has left the queue.
func (t *turn) grant(session string, value []byte) {
	sem := t.edit()
	sem.granted = t.at.Index
	sem.setHolder(Holder{
		Session: session,
		Fence:   t.at.Index,
		Since:   t.at.Lease,
		Wall:    t.at.Wall,
		Value:   cloneBytes(value),
	})
	t.state.permits.addStake(sem, session)
	t.state.count(session, 1)
}

// serveQueue brings the queue in order: it drops the sessions that no longer wait, and gives a permit that is free,
// or whose lock-delay is over, to the first that waits. If it could give more, delays that end now keep the rest
// back, so that other operations give them.
func (t *turn) serveQueue() {
	t.dropPassed()
	t.dropEnded()
	if t.sem.queue.Len() > 0 && t.mayGrant() && (!t.sem.full() || t.endOldestDelay()) {
		ticket, _, _ := t.sem.queue.Min()
		w := t.removeWaiter(ticket)
		t.grant(w.Session, w.Value)
		t.wake(w.Session)
	}
	if t.sem.queue.Len() == 0 {
		for t.endOldestDelay() { // no session waits for what they kept back
		}
		return
	}
	for !t.sem.full() {
		t.state.permits.addDelay(t.edit(), t.at.Lease)
	}
}

// dropPassed drops the waiters whose time is up.
func (t *turn) dropPassed() {
	for {
		until, ticket, ok := t.sem.ends.First()
		if !ok || until >= t.at.Lease {
			return
		}
		t.dropWaiter(ticket)
	}
}

// dropEnded drops sessions that end in this same operation from the queue's head. Those behind it are dropped when it
// is their turn.
func (t *turn) dropEnded() {
	for {
		ticket, w, ok := t.sem.queue.Min()
		if !ok || t.state.session(w.Session) != nil {
			return
		}
		t.dropWaiter(ticket)
	}
}

// addWaiter enters a waiter at the queue's end, and returns its ticket.
func (t *turn) addWaiter(w Waiter) (ticket uint64) {
	ticket = t.edit().addWaiter(w)
	t.state.permits.addStake(t.sem, w.Session)
	t.state.permits.waiting++
	t.state.count(w.Session, 1)
	return ticket
}

// removeWaiter removes a waiter from the queue.
func (t *turn) removeWaiter(ticket uint64) Waiter {
	w := t.edit().dequeue(ticket)
	t.sem.positions.Delete(w.Session)
	t.state.permits.removeStake(t.sem, w.Session)
	t.state.permits.waiting--
	t.state.count(w.Session, -1)
	return w
}

// dropWaiter removes a waiter from the queue, and wakes it.
func (t *turn) dropWaiter(ticket uint64) {
	w := t.removeWaiter(ticket)
	t.wake(w.Session)
}

// endOldestDelay ends the oldest lock-delay if its time has passed.
func (t *turn) endOldestDelay() (ended bool) {
	until, _, ok := t.sem.delays.Min()
	if !ok || until > t.at.Lease {
		return false
	}
	t.state.permits.removeDelay(t.edit(), until)
	return true
}

// release finishes a turn by taking a permit from its holder, and keeping it back for delay ms.
func (t *turn) release(fence Index, delay int64) {
	h, _ := t.edit().holders.Delete(fence)
	t.sem.bytes -= weightWith(h.Value)
	t.sem.positions.Delete(h.Session)
	t.state.permits.removeStake(t.sem, h.Session)
	t.state.count(h.Session, -1)
	if delay > 0 {
		t.state.permits.addDelay(t.sem, order.Later(t.at.Lease, delay))
	}
	t.serveQueue()
	t.finish()
}

// losePermits takes everything that a session holds or waits for when it ends. All sessions that end in the same
// operation have already been removed from the state: s.session does not find them.
func (s *State) losePermits(at At, session *Session) {
	for _, stake := range stakesOf(s.permits.stakes, session.ID) {
		t := s.turn(at, stake.kind, stake.name)
		p, _ := t.sem.positions.Get(session.ID)
		if p.fence != 0 {
			t.release(p.fence, session.lockDelay())
			continue
		}
		t.dropWaiter(p.ticket)
		t.serveQueue()
		t.finish()
	}
}
