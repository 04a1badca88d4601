package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/internal/wait"
)

// Source returns the servers' URLs. After an error the known ones stay.
type Source func(ctx context.Context) ([]string, error)

// lookup asks a Source when a call needs it. It has no goroutine of its own.
type lookup struct {
	source   Source
	interval time.Duration // how long a result is used
	servers  *serverList   // replaced by results
	timeout  time.Duration
	log      *slog.Logger

	mu     sync.Mutex
	asked  time.Time // when the last result came; the servers that New was given count as one
	query  *query    // the one in progress; may be nil
	outage wait.Outage
}

// query is one call of the source, for all calls that wait for its result.
type query struct {
	done      chan struct{} // closed when err is set
	err       error
	abandoned bool // the call that made it was given up, which says nothing about the source
}

// askIfDue asks if the last result is old, unless another call is already asking. A failure is logged, and leaves the
// known servers.
func (l *lookup) askIfDue(ctx context.Context) {
	l.mu.Lock()
	if l.query != nil || time.Since(l.asked) < l.interval {
		l.mu.Unlock()
		return
	}
	q := l.newQuery()
	l.mu.Unlock()
	l.run(ctx, q)
}

// ask asks, or waits for the query in progress.
func (l *lookup) ask(ctx context.Context) error {
	for {
		l.mu.Lock()
		q := l.query
		if q == nil {
			q = l.newQuery()
			l.mu.Unlock()
			l.run(ctx, q)
			return q.err
		}
		l.mu.Unlock()
		select {
		case <-q.done:
			if !q.abandoned {
				return q.err
			}
		case <-ctx.Done():
			return fmt.Errorf("wait for the servers to be looked up: %w", context.Cause(ctx))
		}
	}
}

// newQuery starts a query. The caller holds mu.
func (l *lookup) newQuery() *query {
	l.query = &query{done: make(chan struct{}), err: errSourcePanicked}
	return l.query
}

var errSourcePanicked = errors.New("the source of the servers panicked")

// run calls the source and ends the query, even if the source panics.
func (l *lookup) run(ctx context.Context, q *query) {
	defer l.finish(ctx, q)
	bounded, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	urls, err := l.source(bounded)
	changed := false
	if err == nil {
		changed, err = l.servers.replace(urls)
	}
	if changed {
		l.log.Info("the servers have changed", "servers", l.servers.names())
	}
	if err != nil {
		err = fmt.Errorf("look up the servers: %w", withCause(err, ctx))
	}
	q.err = err
}

// finish wakes the calls that wait for a query.
func (l *lookup) finish(ctx context.Context, q *query) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q.abandoned = q.err != nil && ctx.Err() != nil
	if !q.abandoned {
		l.asked = time.Now()
		l.outage.Report(q.err, "the servers could not be looked up, those that are known stay", "the servers could be looked up again")
	}
	l.query = nil
	close(q.done)
}
