package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/wait"
)

// part is something that a client started, and that ends with it: a Registration, a Discovery, what is
// held.
type part interface {
	// stop ends its timers and goroutines, and waits for them until ctx ends.
	stop(ctx context.Context) error
	// leave tells the cluster that it is over. It comes after stop.
	leave(ctx context.Context) error
}

// lifecycle is what a client has to end.
type lifecycle struct {
	mu     sync.Mutex
	parts  map[part]struct{}
	closed chan struct{} // closed when Close is done; nil before it began
	result error         // of Close
}

// adopt adds a part that is about to start. ErrClosed: Close has begun, so it must not start.
func (l *lifecycle) adopt(p part) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed != nil {
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

// closeGrace is what a part has left to return when ctx has ended.
const closeGrace = 100 * time.Millisecond

// Close ends what the client started, in this order: it stops all timers (heartbeats, replicators,
// fetches, watches, renewals) and waits for their goroutines; unregisters what is registered, gives back
// what is held and ends the sessions; closes the transport, which cuts off whatever call is under way
// (ErrClosed); and takes the metrics out of their registerer. Source: upstream's
// com.netflix.discovery.DiscoveryClient.shutdown.
//
// ctx bounds the first two steps, all parts together; the last two happen in any case. Close may be
// called more than once: later calls wait for the first, and return what it returned, unless their
// own ctx ends first. The error joins what could not be told the cluster, where it ends by itself.
func (c *Client) Close(ctx context.Context) error {
	parts, first := c.startClose()
	if !first {
		if err := wait.Until(ctx, c.closed, "wait for the client to close"); err != nil {
			return err
		}
		return c.result
	}
	defer close(c.closed)
	stopped, stopping := together(ctx, parts, part.stop)
	_, leaving := together(ctx, stopped, part.leave)
	c.result = errors.Join(stopping, leaving)
	c.cluster.Close()
	c.metrics.close()
	return c.result
}

// startClose returns the parts to the first caller.
func (l *lifecycle) startClose() (parts []part, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed != nil {
		return nil, false
	}
	l.closed = make(chan struct{})
	return slices.Collect(maps.Keys(l.parts)), true
}

// together does something with all parts at the same time. It returns those for which that is done, and
// joins their errors; it does not wait for a part that is caught in a function of its user after ctx has
// ended.
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

// gaugers returns the parts that have gauges at this moment. They are asked without the client's lock,
// for which they may be waiting with a lock of their own.
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

// ending is what is done once: who asks again waits for it, and gets what came of it.
type ending struct {
	mu   sync.Mutex
	done chan struct{} // closed when it is done; nil before it began
	err  error         // what came of it
}

// do does it if nobody did before, and returns what came of it. ctx bounds the wait for somebody else, which
// is named what in the error.
func (e *ending) do(ctx context.Context, what string, end func() error) error {
	done, first := e.begin()
	if first {
		defer close(done)
		e.err = end()
		return e.err
	}
	if err := wait.Until(ctx, done, what); err != nil {
		return err
	}
	return e.err
}

func (e *ending) begin() (done chan struct{}, first bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if first = e.done == nil; first {
		e.done = make(chan struct{})
	}
	return e.done, first
}

// opening is something that is being acquired for the caller: a part until there is one to take its
// place, so that Close ends it as well.
type opening struct {
	client *Client
	cancel context.CancelCauseFunc
	ended  chan struct{}
}

// acquiring returns a context that ends with ctx, and with ErrClosed when the client is closed. The caller
// must end the opening.
func (c *Client) acquiring(ctx context.Context) (context.Context, *opening, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	o := &opening{client: c, cancel: cancel, ended: make(chan struct{})}
	if err := c.adopt(o); err != nil {
		cancel(nil)
		return nil, nil, err
	}
	return ctx, o, nil
}

func (o *opening) end() {
	o.client.drop(o)
	o.cancel(nil)
	close(o.ended)
}

// reason is why it failed: that the client was closed rather than what came of that.
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

// leave waits until the caller has told the cluster that it gives up.
func (o *opening) leave(ctx context.Context) error {
	return wait.Until(ctx, o.ended, "give up what was being acquired")
}

// turn is held by one at a time, who may wait for the network meanwhile.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// take waits until it is free, or returns why ctx ended.
func (t turn) take(ctx context.Context) error {
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

// try takes it if it is free.
func (t turn) try() bool {
	select {
	case t <- struct{}{}:
		return true
	default:
		return false
	}
}

func (t turn) give() { <-t }
