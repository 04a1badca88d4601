package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
)

// handOvers has contenders at all nodes take one lock in turn, and measures how long it is nobody's: from
// the holder's release, when it was sent, to the answer that the next one gets.
func (r *ratiosRun) handOvers(ctx context.Context, c *benchCluster) error {
	return r.steady(ctx, handOverP99, c, func(string) (func(), error) {
		latencies, err := r.contend(ctx, c)
		return func() { r.recordLatencies(latencies, "ms", time.Millisecond, handOverP50, handOverP99) }, err
	})
}

// contention is one lock, and who released it last, when.
type contention struct {
	left     atomic.Int64 // hand-overs
	released atomic.Int64 // ns since begun; 0: nobody yet
	begun    time.Time

	mu        sync.Mutex // guards latencies
	latencies *hdrhistogram.Histogram
}

func (r *ratiosRun) contend(ctx context.Context, c *benchCluster) (*hdrhistogram.Histogram, error) {
	lock := &contention{begun: time.Now(), latencies: newLatencies()}
	lock.left.Store(int64(r.handovers))
	g, ctx := errgroup.WithContext(ctx)
	for i := range r.contenders {
		addr := c.nodes[i%len(c.nodes)].HTTP
		g.Go(func() error {
			if err := lock.contend(ctx, addr); err != nil {
				return fmt.Errorf("contender %d: %w", i, err)
			}
			return nil
		})
	}
	return lock.latencies, g.Wait()
}

// contend takes the lock and gives it back until there were as many hand-overs as wanted.
func (l *contention) contend(ctx context.Context, addr string) error {
	cl, err := benchClient(addr)
	if err != nil {
		return err
	}
	defer cl.Close(ctx)
	session, err := benchSession(ctx, cl)
	if err != nil {
		return err
	}
	conn, err := wire.Dial(addr, time.Now().Add(benchLongest))
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })() // when another one has failed
	acquire := fmt.Appendf(nil, "PUT /v1/rollcall/locks/bench?session=%s&wait=10m HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", session)
	release := fmt.Appendf(nil, "DELETE /v1/rollcall/locks/bench?session=%s HTTP/1.1\r\nHost: localhost\r\n\r\n", session)
	for l.left.Load() > 0 && ctx.Err() == nil {
		if _, err := insisted(ctx, conn, acquire, http.StatusOK); err != nil {
			return err
		}
		if err := l.acquired(); err != nil {
			return err
		}
		if _, err := insisted(ctx, conn, release, http.StatusOK); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// acquired is called by whoever has the lock now, right before it releases it.
func (l *contention) acquired() error {
	now := int64(time.Since(l.begun))
	before := l.released.Swap(now)
	if before == 0 || l.left.Add(-1) < 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.latencies.RecordValue((now - before) / int64(time.Microsecond))
}
