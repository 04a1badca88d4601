package order

// Waiters are callers that wait for topics, each until the next change of its topic: only the waiters of that topic
// are woken. The zero value is ready. The owner's mutex guards it.
//
// The state does not depend on it: it serves readers, beside the state machine.
type Waiters[T comparable] struct {
	topics  map[T]*Wait[T] // those with waiters
	waiting int            // callers, for all topics together
}

// Wait is the wait of one or more callers for the next change of a topic.
type Wait[T comparable] struct {
	key     T
	waiting int // callers
	woken   chan struct{}
	before  Index
}

// Woken returns a channel that is closed at the change.
func (wait *Wait[T]) Woken() <-chan struct{} { return wait.woken }

// Before returns the index that Wake was called with. It is known once Woken is closed.
func (wait *Wait[T]) Before() Index { return wait.before }

// Len returns how many callers wait.
func (w *Waiters[T]) Len() int { return w.waiting }

// Join adds a caller that waits for a topic; first reports that nobody waited for it before.
func (w *Waiters[T]) Join(key T) (wait *Wait[T], first bool) {
	wait, ok := w.topics[key]
	if !ok {
		if w.topics == nil {
			w.topics = make(map[T]*Wait[T])
		}
		wait = &Wait[T]{key: key, woken: make(chan struct{})}
		w.topics[key] = wait
	}
	wait.waiting++
	w.waiting++
	return wait, !ok
}

// Leave removes a caller from a wait; last reports that nobody waits for the topic any longer. A woken wait is over,
// and its topic may have a new one.
func (w *Waiters[T]) Leave(wait *Wait[T]) (last bool) {
	if w.topics[wait.key] != wait {
		return false
	}
	w.waiting--
	if wait.waiting--; wait.waiting > 0 {
		return false
	}
	delete(w.topics, wait.key)
	return true
}

// Wake wakes the callers that wait for a topic, if any do. Nothing that they wait for has changed up to before.
func (w *Waiters[T]) Wake(key T, before Index) (woken bool) {
	wait, ok := w.topics[key]
	if !ok {
		return false
	}
	delete(w.topics, key)
	w.waiting -= wait.waiting
	wait.before = before
	close(wait.woken)
	return true
}

// Topics yields the topics that have waiters, in no order. Each may be woken meanwhile.
func (w *Waiters[T]) Topics(yield func(T) bool) {
	// The caller wakes each alone, in whatever order.
	for key := range w.topics {
		if !yield(key) {
			return
		}
	}
}
