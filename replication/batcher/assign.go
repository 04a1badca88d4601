package batcher

import "time"

// nap is how long the acceptor may sleep when no worker wakes it.
type nap struct {
	timer time.Duration // 0 means forever
	tasks int           // how many new tasks wake it
}

// assign hands out what is due to workers that asked for it, and returns when more may be due.
func (a *acceptor[K, T]) assign(now time.Time) nap {
	for a.requests > 0 {
		wait, ok := a.untilDue(now)
		if !ok {
			return nap{tasks: 1}
		}
		held := max(a.shaper.wait(now), a.pacer.wait(now))
		switch {
		case wait > held:
			return nap{wait, a.config.batch() - a.free()}
		case held > 0:
			return nap{held, a.config.batch()}
		}
		if tasks := a.next(now); len(tasks) > 0 {
			for _, h := range tasks {
				a.inFlight[h.id] = struct{}{}
				if _, ok := a.pending[h.id]; ok {
					a.blocked++
				}
			}
			a.requests--
			a.stats.LastBatchSize = len(tasks)
			a.pacer.charge(len(tasks), now)
			a.work <- work[K, T]{tasks, now}
		}
	}
	return nap{tasks: a.config.batch()}
}

// untilDue returns how long it is until the next hand-out is due, judging by the tasks alone. A batch is due when it
// is full, when the buffer is, or when its oldest task has waited for the delay.
func (a *acceptor[K, T]) untilDue(now time.Time) (wait time.Duration, ok bool) {
	switch {
	case len(a.split) > 0:
		return 0, true
	case a.free() == 0:
		return 0, false
	case a.hurry, a.free() >= a.config.batch(), a.full():
		return 0, true
	}
	return max(a.oldest().first.Add(a.config.MaxBatchingDelay).Sub(now), 0), true
}

// free returns the number of pending tasks whose id is not in flight.
func (a *acceptor[K, T]) free() int { return len(a.pending) - a.blocked }

// oldest returns the first task whose id is not in flight. There must be one.
func (a *acceptor[K, T]) oldest() *holder[K, T] {
	h := a.order.head
	for a.isInFlight(h) {
		h = h.after
	}
	return h
}

// next removes and returns the tasks of one hand-out: a part of a split batch, or a batch from the front without the
// ids in flight. It drops expired ones; the result may be empty.
func (a *acceptor[K, T]) next(now time.Time) []*holder[K, T] {
	if n := len(a.split); n > 0 {
		part := a.split[n-1]
		a.split = a.split[:n-1]
		a.release(part)
		useful := part[:0]
		for _, h := range part {
			if h.expired(now) {
				a.drop(h, Expired)
				continue
			}
			useful = append(useful, h)
		}
		return useful
	}
	tasks := make([]*holder[K, T], 0, min(a.free(), a.config.batch()))
	for h := a.order.head; h != nil && len(tasks) < a.config.batch(); {
		following := h.after
		switch {
		case a.isInFlight(h):
		case h.expired(now):
			a.drop(a.unqueue(h), Expired)
		default:
			tasks = append(tasks, a.unqueue(h))
		}
		h = following
	}
	return tasks
}

func (a *acceptor[K, T]) isInFlight(h *holder[K, T]) bool {
	_, ok := a.inFlight[h.id]
	return ok
}
