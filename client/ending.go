package client

import (
	"context"
	"sync"
)

// ending is what is done once: who asks again waits for it, and gets what came of it.
type ending struct {
	mu   sync.Mutex
	done chan struct{} // closed when it is done; nil before it began
	err  error         // what came of it
}

// do does it if nobody did before, and returns what came of it. ctx bounds the wait for somebody else.
func (e *ending) do(ctx context.Context, end func() error) error {
	done, first := e.begin()
	if first {
		defer close(done)
		e.err = end()
		return e.err
	}
	select {
	case <-done:
		return e.err
	default:
	}
	select {
	case <-done:
		return e.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (e *ending) begin() (done chan struct{}, first bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if first = e.done == nil; first {
		e.done = make(chan struct{})
	}
	return e.done, first
}
