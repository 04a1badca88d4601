package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/internal/wait"
)

// part is something that a client started, and that ends with it: a Registration, a Discovery, something held.
type part interface {
	// stop ends its timers and goroutines, and waits for them until ctx ends.
	stop(ctx context.Context) error
	// withdraw undoes at the cluster what the part did there. It comes after stop.
	withdraw(ctx context.Context) error
}

// lifecycle has what a client must end.
type lifecycle struct {
	mu      sync.Mutex
	parts   map[part]struct{}
	closing bool // no part may start any more
	closed  once // the result of Close
}

// adopt adds a part that is about to start. ErrClosed means that Close has begun, so it must not start.
func (l *lifecycle) adopt(p part) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return ErrClosed
	}
	if l.parts == nil {
		l.parts = make(map[part]struct{})
	}
	l.parts[p] = struct{}{}
	return nil
}

// drop removes a part that ended before the client.
func (l *lifecycle) drop(p part) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.parts, p)
}

// closeGrace is how long a part has left to return when ctx has ended.
const closeGrace = 100 * time.Millisecond

// Close ends what the client started, in this order: it stops all timers (heartbeats, replicators, fetches, watches,
// renewals) and waits for their goroutines; cancels registrations, gives back what is held and ends the sessions;
// closes the transport, which cuts off any call in progress (ErrClosed); and unregisters the metrics. Source:
// upstream's com.netflix.discovery.DiscoveryClient.shutdown.
//
// ctx bounds the first two steps, all parts together; the last two happen in any case. Close may be called more than
// once: later calls wait for the first, and return what it returned, unless their own ctx ends first. The error joins
// what the cluster could not be told, and what therefore has to expire there.
func (c *Client) Close(ctx context.Context) error {
	return c.closed.do(ctx, "wait for the client to close", func() error {
		c.mu.Lock()
		c.closing = true
		parts := slices.Collect(maps.Keys(c.parts))
		c.mu.Unlock()
		stopped, stopping := together(ctx, parts, part.stop)
		_, leaving := together(ctx, stopped, part.withdraw)
		c.cluster.Close()
		c.metrics.close()
		return errors.Join(stopping, leaving)
	})
}

// together does something with all parts at the same time. It returns those where that is done, and joins their
// errors. After ctx has ended it does not wait for a part that is caught in a function of its user.
func together(ctx context.Context, parts []part, do func(part, context.Context) error) (done []part, err error) {
	type result struct {
		part part
		err  error
	}
	results := make(chan result, len(parts))
	for _, p := range parts {
		go func() { results <- result{p, do(p, ctx)} }()
	}
	over, late := ctx.Done(), (<-chan time.Time)(nil)
	var errs []error
	for len(done) < len(parts) {
		select {
		case r := <-results:
			done, errs = append(done, r.part), append(errs, r.err)
		case <-over:
			over, late = nil, time.After(closeGrace)
		case <-late:
			errs = append(errs, fmt.Errorf("%d of %d parts did not end: %w", len(parts)-len(done), len(parts), context.Cause(ctx)))
			return done, errors.Join(errs...)
		}
	}
	return done, errors.Join(errs...)
}

// gaugers returns the parts that currently have gauges. They are asked without the client's lock, because they may be
// waiting for it while they hold a lock of their own.
func (l *lifecycle) gaugers() []gauger {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []gauger
	for p := range l.parts {
		if g, ok := p.(gauger); ok {
			all = append(all, g)
		}
	}
	return all
}

// once is something that is done once: a later caller waits for it, and gets its error.
type once struct {
	mu   sync.Mutex
	done chan struct{} // closed when it is done; nil before it began
	err  error         // its result; valid when done is closed
}

// do calls act in the first call, and returns its error in all. ctx bounds the wait for the first caller; what names
// the act in the error.
func (e *once) do(ctx context.Context, what string, act func() error) error {
	e.mu.Lock()
	first := e.done == nil
	if first {
		e.done = make(chan struct{})
	}
	e.mu.Unlock()
	if first {
		defer close(e.done)
		e.err = act()
	} else if err := wait.Until(ctx, e.done, what); err != nil {
		return err
	}
	return e.err
}

// opening is something that is being acquired for the caller: a part until the acquired part replaces it, so that
// Close ends it as well.
type opening struct {
	client   *Client
	cancel   context.CancelCauseFunc
	finished chan struct{}
}

// acquiring returns a context that ends with ctx, and with ErrClosed when the client is closed. The caller must
// finish the opening.
func (c *Client) acquiring(ctx context.Context) (context.Context, *opening, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	o := &opening{client: c, cancel: cancel, finished: make(chan struct{})}
	if err := c.adopt(o); err != nil {
		cancel(nil)
		return nil, nil, err
	}
	return ctx, o, nil
}

func (o *opening) finish() {
	o.client.drop(o)
	o.cancel(nil)
	close(o.finished)
}

// reason returns why the opening failed: that the client was closed, rather than an error that followed from that.
func (o *opening) reason(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), ErrClosed) {
		return ErrClosed
	}
	return err
}

func (o *opening) stop(context.Context) error {
	o.cancel(ErrClosed)
	return nil
}

// withdraw waits until the caller has given up at the cluster.
func (o *opening) withdraw(ctx context.Context) error {
	return wait.Until(ctx, o.finished, "give up what was being acquired")
}

// turn is held by one goroutine at a time, which may wait for the network meanwhile.
type turn chan struct{}

// acquire waits until the turn is free, or returns why ctx ended.
func (t turn) acquire(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tryAcquire acquires the turn if it is free.
func (t turn) tryAcquire() bool {
	select {
	case t <- struct{}{}:
		return true
	default:
		return false
	}
}

func (t turn) release() { <-t }
