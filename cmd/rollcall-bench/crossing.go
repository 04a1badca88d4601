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

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
)

// changeConns is over how many connections changes are spread.
const changeConns = 30

// crossings measures how long changes here take to those who watch there.
func (r *ratiosRun) crossings(ctx context.Context, p *benchPair) error {
	if err := p.awaitEqual(ctx); err != nil {
		return err
	}
	return r.steady(ctx, crossingP99, p.here, func(string) (func(), error) {
		latencies, err := r.crossInTime(ctx, p)
		return func() { r.recordLatencies(latencies, "s", time.Second, crossingP50, crossingP99) }, err
	})
}

// crossInTime registers new instances here, and returns how long after the acknowledgement each watcher
// there had read of them.
func (r *ratiosRun) crossInTime(ctx context.Context, p *benchPair) (*hdrhistogram.Histogram, error) {
	pacer := wire.NewPacer(changeRate, changeConns, r.warm+r.window)
	c := newCrossing(p.fleet("crossing", pacer.Count()), len(p.there.nodes))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var watchers errgroup.Group
	for i, addr := range p.there.addrs() {
		watchers.Go(func() error { return c.watch(ctx, addr, i) })
	}
	err := c.register(ctx, p.here.addrs(), pacer)
	if err == nil {
		err = c.awaitArrivals(ctx)
	}
	stop()
	if watchErr := watchers.Wait(); err == nil {
		err = watchErr
	}
	if err != nil {
		return nil, err
	}
	return c.latencies(int(changeRate * r.warm.Seconds()))
}

// crossing is instances that are registered in one datacenter, and those who watch in another one.
type crossing struct {
	fleet    benchFleet
	number   map[string]int // of an instance, by its id
	begun    time.Time
	watching sync.WaitGroup   // until every watcher has begun
	acked    []atomic.Int64   // when each registration was acknowledged, in ns since begun
	seen     [][]atomic.Int64 // when each watcher read of it
	arrivals atomic.Int64
}

func newCrossing(f benchFleet, watchers int) *crossing {
	c := &crossing{fleet: f, number: make(map[string]int), begun: time.Now(), acked: make([]atomic.Int64, f.size)}
	for i := range f.size {
		c.number[f.id(i)] = i
	}
	for range watchers {
		c.seen = append(c.seen, make([]atomic.Int64, f.size))
	}
	c.watching.Add(watchers)
	return c
}

// watch notes what arrives at a node until ctx ends.
func (c *crossing) watch(ctx context.Context, addr string, watcher int) error {
	began := sync.OnceFunc(c.watching.Done)
	defer began()
	cl, err := benchClient(addr)
	if err != nil {
		return err
	}
	return cl.Watch(ctx, client.WatchConfig{}, func(e client.WatchEvent) error {
		switch e := e.(type) {
		case client.WatchStart:
			began()
		case client.WatchChange:
			c.arrived(watcher, e.ID)
		}
		return nil
	})
}

// arrived notes that a watcher has read of an instance, the first time.
func (c *crossing) arrived(watcher int, id string) {
	i, ok := c.number[id]
	if ok && c.seen[watcher][i].CompareAndSwap(0, int64(time.Since(c.begun))) {
		c.arrivals.Add(1)
	}
}

// register registers each instance when it is due.
func (c *crossing) register(ctx context.Context, addrs []string, p *wire.Pacer) error {
	c.watching.Wait()
	g, ctx := errgroup.WithContext(ctx)
	for i := range changeConns {
		g.Go(func() error { return c.registerDue(ctx, addrs[i%len(addrs)], i, p) })
	}
	g.Go(func() error {
		p.Run(ctx)
		return ctx.Err()
	})
	return g.Wait()
}

// registerDue registers what falls to one connection.
func (c *crossing) registerDue(ctx context.Context, addr string, i int, p *wire.Pacer) error {
	conn, err := wire.Dial(addr, time.Now().Add(pairLimit))
	if err != nil {
		return err
	}
	defer conn.Close()
	for at := i; ; at += changeConns {
		if _, due := <-p.Due(i); !due || ctx.Err() != nil {
			return ctx.Err()
		}
		if _, err := insisted(ctx, conn, c.fleet.registration(at), http.StatusNoContent); err != nil {
			return fmt.Errorf("register %s: %w", c.fleet.id(at), err)
		}
		c.acked[at].Store(int64(time.Since(c.begun)))
	}
}

// awaitArrivals waits until every change has arrived everywhere.
func (c *crossing) awaitArrivals(ctx context.Context) error {
	all := int64(len(c.seen) * c.fleet.size)
	return await(ctx, "every change has arrived", func(context.Context) (bool, error) {
		missing := all - c.arrivals.Load()
		if missing > 0 {
			return false, fmt.Errorf("%d of %d have not", missing, all)
		}
		return true, nil
	})
}

// latencies leaves out the first changes, during which the load warms up.
func (c *crossing) latencies(first int) (*hdrhistogram.Histogram, error) {
	latencies := newLatencies()
	for i := first; i < c.fleet.size; i++ {
		for _, seen := range c.seen {
			// A watcher may be faster than the answer: no time at all.
			took := max(0, time.Duration(seen[i].Load()-c.acked[i].Load()))
			if err := latencies.RecordValue(min(took.Microseconds(), longestLatency)); err != nil {
				return nil, err
			}
		}
	}
	return latencies, nil
}
