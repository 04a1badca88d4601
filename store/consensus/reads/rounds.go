package reads

import (
	"context"
	"sync"
)

// shared lets all callers that wait for the same value share one attempt to get it. A caller is served by an attempt
// that begins after it joined, never by the one in progress: that is what makes a shared read round linearizable.
type shared[T any] struct {
	attempt func(context.Context) (T, error)

	mu      sync.Mutex
	next    *round[T]
	arrived chan struct{} // holds one token while next is not nil
}

type round[T any] struct {
	done  chan struct{}
	value T
	err   error
}

func newShared[T any](attempt func(context.Context) (T, error)) *shared[T] {
	return &shared[T]{attempt: attempt, arrived: make(chan struct{}, 1)}
}

// join waits for the next attempt.
func (r *shared[T]) join(ctx context.Context) (T, error) {
	r.mu.Lock()
	if r.next == nil {
		r.next = &round[T]{done: make(chan struct{})}
		r.arrived <- struct{}{}
	}
	mine := r.next
	r.mu.Unlock()
	select {
	case <-mine.done:
		return mine.value, mine.err
	case <-ctx.Done():
		var zero T
		return zero, ctx.Err()
	}
}

// run makes attempts, one at a time, until ctx ends. Callers that wait then, or come later, get the context's error.
func (r *shared[T]) run(ctx context.Context) {
	for {
		select {
		case <-r.arrived:
		case <-ctx.Done():
			r.close(ctx.Err())
			return
		}
		r.mu.Lock()
		now := r.next
		r.next = nil
		r.mu.Unlock()
		now.value, now.err = r.attempt(ctx)
		close(now.done)
	}
}

// close makes the next round fail at once.
func (r *shared[T]) close(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = &round[T]{done: make(chan struct{})}
	}
	r.next.err = err
	close(r.next.done)
}
