package batcher

import (
	"math/rand/v2"
	"time"
)

// acceptor owns the tasks and decides when to hand out which (upstream: AcceptorExecutor). It is one goroutine. It
// sleeps until a hand-out is due, a worker reports or asks for work, or enough tasks have arrived to fill a batch or
// the buffer. It is not woken for each task, because that would cost more than everything else.
type acceptor[K comparable, T any] struct {
	config *Config[K, T]
	inbox  *inbox[K, T]
	work   chan<- work[K, T]

	pending  map[K]*holder[K, T]
	order    order[K, T]       // the order of pending
	inFlight map[K]struct{}    // ids that workers have, or that are in split
	blocked  int               // pending tasks whose id is in flight
	split    [][]*holder[K, T] // parts of batches that were refused as a whole
	requests int               // workers waiting for work
	shaper   trafficShaper
	pacer    pacer
	hurry    bool // pending tasks are due at once

	stats    Stats
	finished int // since the last publish
	used     mail[K, T]
	timer    *time.Timer
}

func newAcceptor[K comparable, T any](c *Config[K, T], b *inbox[K, T], w chan<- work[K, T]) *acceptor[K, T] {
	a := &acceptor[K, T]{
		config:   c,
		inbox:    b,
		work:     w,
		pending:  map[K]*holder[K, T]{},
		inFlight: map[K]struct{}{},
		shaper: newTrafficShaper(c.CongestionRetryDelay, c.NetworkFailureRetry, c.MaxRetryDelay,
			c.Backoff, rand.Int64N),
		pacer: pacer{rate: c.Rate},
		timer: time.NewTimer(time.Hour),
	}
	a.timer.Stop()
	return a
}

// serve hands out work until stop is closed.
func (a *acceptor[K, T]) serve(stop <-chan struct{}) {
	for {
		a.step()
		select {
		case <-a.inbox.wake:
		case <-a.timer.C:
		case <-stop:
			return
		}
	}
}

// drain hands out work, as soon as workers ask for it, until nothing is left or the time is over.
func (a *acceptor[K, T]) drain(most time.Duration) {
	a.hurry = true
	over := time.NewTimer(most)
	defer over.Stop()
	for {
		a.step()
		if a.inbox.idle() {
			return
		}
		select {
		case <-a.inbox.wake:
		case <-a.timer.C:
		case <-over.C:
			return
		}
	}
}

// close drops what is left, once no worker has anything.
func (a *acceptor[K, T]) close() {
	a.timer.Stop()
	a.inbox.close()
	a.collect(time.Now())
	for _, part := range a.split {
		a.release(part)
		for _, h := range part {
			a.drop(h, Stopped)
		}
	}
	a.split = nil
	for a.order.head != nil {
		a.drop(a.unqueue(a.order.head), Stopped)
	}
	a.requests = 0
	a.publish(1)
}

// step collects everything that was left for it before it hands out anything, so that the newest tasks are handed
// out.
func (a *acceptor[K, T]) step() {
	now := time.Now()
	a.collect(now)
	n := a.assign(now)
	if n.timer > 0 {
		a.timer.Reset(n.timer)
	} else {
		a.timer.Stop()
	}
	a.publish(n.tasks)
}

// collect empties the inputs: first what workers gave back, then what is new.
func (a *acceptor[K, T]) collect(now time.Time) {
	m := a.inbox.swap(a.used)
	a.used = m
	a.requests += m.requests
	for _, r := range m.reports {
		a.conclude(r, now)
	}
	if m.reached {
		a.shaper.reached()
	}
	for i := len(m.reports) - 1; i >= 0; i-- {
		if r := m.reports[i]; r.result.again() {
			a.reprocess(r.work.tasks, now)
		}
	}
	for _, h := range m.accepted {
		a.accept(h)
	}
}

// conclude records the result of a piece of work, except for the tasks that are to be sent again.
func (a *acceptor[K, T]) conclude(r report[K, T], now time.Time) {
	tasks := r.work.tasks
	n := uint64(len(tasks))
	a.shaper.record(r.result, r.work.started, now)
	switch r.result {
	case Success:
		a.stats.SuccessfulExecutions += n
		a.release(tasks)
		for _, h := range tasks {
			a.finished++
			a.config.Done(h.id, h.task)
		}
	case Congestion:
		a.stats.CongestionIssues += n
		a.release(tasks)
	case TransientError:
		a.stats.TransientErrors += n
		a.release(tasks)
	default:
		// A batch is split in halves until the task that spoils it is alone, and that one is dropped. The ids stay in
		// flight meanwhile.
		if len(tasks) == 1 {
			a.release(tasks)
			a.drop(tasks[0], Permanent)
			return
		}
		half := len(tasks) / 2
		a.split = append(a.split, tasks[:half], tasks[half:])
	}
}

// release records that tasks are no longer in flight.
func (a *acceptor[K, T]) release(tasks []*holder[K, T]) {
	for _, h := range tasks {
		delete(a.inFlight, h.id)
		if _, ok := a.pending[h.id]; ok {
			a.blocked--
		}
	}
}

// reprocess puts tasks that were given back at the head, the newest first, so that they return to their old order.
// When the buffer is full, it drops the oldest of them.
func (a *acceptor[K, T]) reprocess(tasks []*holder[K, T], now time.Time) {
	a.stats.ReplayedTasks += uint64(len(tasks))
	for i := len(tasks) - 1; i >= 0; i-- {
		h := tasks[i]
		newer, superseded := a.pending[h.id]
		switch {
		case h.expired(now):
			a.drop(h, Expired)
		case superseded:
			// Upstream drops the older one, but that may hold more than the newer one, which was submitted while it was
			// in flight (a heartbeat after a registration that never arrived). So they are merged, as if both were
			// pending, and the merged task takes the older one's place at the head.
			a.merge(h, newer)
			a.order.remove(newer)
			a.pending[h.id] = h
			a.order.prepend(h)
		case a.full():
			a.drop(h, Overflow)
		default:
			a.pending[h.id] = h
			a.order.prepend(h)
		}
	}
}

// accept puts a new task at the end, or merges it into the pending one of its id, whose place it takes. A task beyond
// the buffer drops the oldest.
func (a *acceptor[K, T]) accept(h *holder[K, T]) {
	if older, ok := a.pending[h.id]; ok {
		a.merge(older, h)
		return
	}
	if a.full() {
		a.drop(a.unqueue(a.order.head), Overflow)
	}
	a.pending[h.id] = h
	a.order.append(h)
	if a.isInFlight(h) {
		a.blocked++
	}
}

// merge makes the older task say what both do.
func (a *acceptor[K, T]) merge(older, newer *holder[K, T]) {
	a.stats.OverriddenTasks++
	a.finished++
	if a.config.Merge == nil {
		older.task, older.expiry = newer.task, newer.expiry
		return
	}
	older.task, older.expiry = a.config.Merge(older.task, newer.task), later(older.expiry, newer.expiry)
}

// unqueue removes a task from the pending ones.
func (a *acceptor[K, T]) unqueue(h *holder[K, T]) *holder[K, T] {
	delete(a.pending, h.id)
	a.order.remove(h)
	if a.isInFlight(h) {
		a.blocked--
	}
	return h
}

// drop gives up a task that is neither pending nor in flight.
func (a *acceptor[K, T]) drop(h *holder[K, T], why Drop) {
	switch why {
	case Expired:
		a.stats.ExpiredTasks++
	case Overflow:
		a.stats.QueueOverflows++
	case Permanent:
		a.stats.PermanentErrors++
	case Stopped:
		a.stats.StoppedTasks++
	}
	a.finished++
	a.config.Dropped(h.id, h.task, why)
}

func (a *acceptor[K, T]) full() bool { return len(a.pending) >= a.config.MaxBufferSize }

// publish shows the numbers. The acceptor then sleeps until patience new tasks wait, or enough to fill the buffer.
func (a *acceptor[K, T]) publish(patience int) {
	a.stats.QueueSize = len(a.pending)
	a.stats.InFlight = len(a.inFlight)
	a.stats.PendingJobRequests = a.requests
	a.inbox.publish(a.stats, a.finished, max(min(patience, a.config.MaxBufferSize-len(a.pending)), 1))
	a.finished = 0
}
