package order

// Waiters are those who wait for topics, each until the next change of its topic: only who waits for it is
// woken. The zero value is ready. A mutex of the owner guards it.
//
// Nothing of the state depends on it: it serves readers, beside the state machine.
type Waiters[T comparable] struct {
	topics  map[T]*Wait[T] // what somebody waits for
	waiting int
}

// Wait is that of one or more for a topic, until the next change of it.
type Wait[T comparable] struct {
	key     T
	waiting int
	woken   chan struct{}
	before  Index
}

// Woken is closed at the change.
func (wait *Wait[T]) Woken() <-chan struct{} { return wait.woken }

// Before is what Wake was told. It is known when Woken is closed.
func (wait *Wait[T]) Before() Index { return wait.before }

// Len is how many wait.
func (w *Waiters[T]) Len() int { return w.waiting }

// Join counts one more who waits for a topic; first says that nobody did before.
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

// Leave ends a wait; last says that nobody waits for the topic any more. One that was woken is over, and its
// topic may have a successor.
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

// Wake wakes those who wait for a topic, if anybody does. Nothing that they wait for has changed up to before.
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

// Topics yields what somebody waits for, in no order. What it yields may be woken meanwhile.
func (w *Waiters[T]) Topics(yield func(T) bool) {
	// Who asks wakes each alone, in whatever order.
	for key := range w.topics {
		if !yield(key) {
			return
		}
	}
}
