package batcher

import "sync"

// maxReused is the largest capacity of an inbox slice that is reused.
const maxReused = 4096

// inbox is what the acceptor shares with callers and workers: what they leave for the acceptor, and the numbers that
// the acceptor publishes. No other state of the acceptor is shared.
type inbox[K comparable, T any] struct {
	wake  chan struct{} // holds a token while something waits for the acceptor
	freed chan struct{} // holds a token when a task is finished

	mu       sync.Mutex
	closed   bool
	left     mail[K, T]
	patience int    // this many tasks in left wake the acceptor
	load     int    // tasks accepted and not finished: neither transmitted, nor dropped, nor merged
	accepted uint64 // tasks ever given to Process
	refused  uint64 // those of them that came after the end
	stats    Stats  // as the acceptor last published them
}

// mail is what was left for the acceptor.
type mail[K comparable, T any] struct {
	accepted []*holder[K, T] // the acceptor queue, oldest first
	reports  []report[K, T]  // the reprocess queue, oldest first, and successes
	requests int             // workers that ask for work
	reached  bool            // the receiver was reached by something other than a task
}

// report is a worker's report on its work.
type report[K comparable, T any] struct {
	work   work[K, T]
	result Result
}

func newInbox[K comparable, T any]() *inbox[K, T] {
	return &inbox[K, T]{wake: make(chan struct{}, 1), freed: make(chan struct{}, 1)}
}

// accept leaves a task for the acceptor. It returns false after the end.
func (b *inbox[K, T]) accept(h *holder[K, T]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.accepted++
	if b.closed {
		b.refused++
		return false
	}
	b.load++
	b.left.accepted = append(b.left.accepted, h)
	b.wakeIfEnough()
	return true
}

// ask leaves a worker's request for work.
func (b *inbox[K, T]) ask() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left.requests++
	signal(b.wake)
}

// report leaves the outcome of a worker's work, and its request for more.
func (b *inbox[K, T]) report(w work[K, T], r Result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left.reports = append(b.left.reports, report[K, T]{w, r})
	b.left.requests++
	signal(b.wake)
}

// swap returns what was left. It reuses the slices of used, which the caller got before.
func (b *inbox[K, T]) swap(used mail[K, T]) mail[K, T] {
	empty := mail[K, T]{accepted: emptied(used.accepted), reports: emptied(used.reports)}
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.left
	b.left = empty
	return m
}

// wakeIfEnough wakes the acceptor if enough tasks wait for it. The caller holds mu.
func (b *inbox[K, T]) wakeIfEnough() {
	if len(b.left.accepted) >= b.patience {
		signal(b.wake)
	}
}

// publish shows the numbers, and records how many tasks were finished since the last time. The acceptor need not be
// woken before patience tasks wait for it.
func (b *inbox[K, T]) publish(s Stats, finished, patience int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.patience = patience
	b.wakeIfEnough()
	b.stats = s
	b.load -= finished
	if finished > 0 {
		signal(b.freed)
	}
}

// close refuses everything from now on.
func (b *inbox[K, T]) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

// idle reports whether every task is finished.
func (b *inbox[K, T]) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.load == 0
}

// emptied returns a slice for reuse, unless a burst has made it so large that it is better released.
func emptied[E any](used []E) []E {
	if cap(used) > maxReused {
		return nil
	}
	clear(used)
	return used[:0]
}

// signal leaves a token unless one is there.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
