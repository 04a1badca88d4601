package batcher

import "time"

// holder is a task on its way through the dispatcher (upstream: TaskHolder).
type holder[K comparable, T any] struct {
	id     K
	task   T
	expiry time.Time // zero: never
	// first is when the oldest task that was merged into this one was submitted. Upstream keeps the time
	// of the newest, so that an id that is submitted more often than the batching delay passes holds back
	// the whole queue when it is at its head.
	first time.Time

	before, after *holder[K, T] // its neighbours in an order
}

// expired says whether the task is of no use any more.
func (h *holder[K, T]) expired(now time.Time) bool {
	return !h.expiry.IsZero() && !h.expiry.After(now)
}

// later is the later of two expiries, of which zero is the latest.
func later(a, b time.Time) time.Time {
	if a.IsZero() || b.IsZero() {
		return time.Time{}
	}
	if a.After(b) {
		return a
	}
	return b
}
