package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/seed-20419f34/rollcall/client/sse"
	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
)

const (
	changeEvery  = 100 * time.Millisecond // more than the nodes' pause between two sends to a watcher
	arrivalLimit = 30 * time.Second       // for the last change
	watchFetch   = 4 << 10                // bytes of a stream that are taken at once
)

// arrivals measures how long changes take to everybody who watches, each node having its part of the
// watchers.
func (r *ratiosRun) arrivals(ctx context.Context, c *benchCluster) error {
	return r.steady(ctx, arrivalP99, c, func(string) (func(), error) {
		latencies, err := r.watchChanges(ctx, c)
		return func() { r.recordLatencies(latencies, "ms", time.Millisecond, arrivalP50, arrivalP99) }, err
	})
}

func (r *ratiosRun) watchChanges(ctx context.Context, c *benchCluster) (*hdrhistogram.Histogram, error) {
	crowd := newCrowd(benchFleet{name: "watched", size: r.changes})
	defer crowd.disperse()
	for i := range r.watchers {
		if err := crowd.join(c.nodes[i%len(c.nodes)].HTTP); err != nil {
			return nil, fmt.Errorf("watcher %d: %w", i, err)
		}
	}
	for i := range r.changes {
		if err := crowd.change(ctx, c.nodes[i%len(c.nodes)].HTTP, i); err != nil {
			return nil, fmt.Errorf("change %d: %w", i, err)
		}
		if !pauseBench(ctx, changeEvery) {
			return nil, ctx.Err()
		}
	}
	return crowd.latencies(ctx)
}

// crowd is many watchers and the registrations that they wait for.
type crowd struct {
	fleet   benchFleet
	number  map[string]int // of an instance, by its id
	begun   time.Time
	sent    []atomic.Int64 // when each registration was sent, in ns since begun
	members []*crowdMember
	readers sync.WaitGroup
	arrived atomic.Int64
}

// crowdMember is one watcher; what it took is its reader's until that has ended.
type crowdMember struct {
	conn net.Conn
	took []time.Duration
}

func newCrowd(f benchFleet) *crowd {
	c := &crowd{fleet: f, number: make(map[string]int), begun: time.Now(), sent: make([]atomic.Int64, f.size)}
	for i := range f.size {
		c.number[f.id(i)] = i
	}
	return c
}

// join adds a watcher of everything and waits for the begin of its stream.
func (c *crowd) join(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, benchLoadDial)
	if err != nil {
		return err
	}
	m := &crowdMember{conn: conn}
	c.members = append(c.members, m)
	if _, err := io.WriteString(conn, "GET /v1/rollcall/watch HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("watch: %s", resp.Status)
	}
	events := sse.NewReader(resp.Body, watchFetch)
	if _, err := events.Next(); err != nil { // the mark of the start
		return fmt.Errorf("watch: %w", err)
	}
	c.readers.Go(func() { c.read(m, events) })
	return nil
}

// read notes how long each change took, until the connection is closed.
func (c *crowd) read(m *crowdMember, events *sse.Reader) {
	for {
		e, err := events.Next()
		if err != nil {
			return
		}
		if i, ok := c.changeOf(e.Data); ok {
			m.took = append(m.took, time.Since(c.begun)-time.Duration(c.sent[i].Load()))
			c.arrived.Add(1)
		}
	}
}

// changeOf finds the number of the registration that a line tells of, or the beginning of a line that
// is longer than a buffer.
func (c *crowd) changeOf(data []byte) (i int, ok bool) {
	_, rest, _ := bytes.Cut(data, []byte(`"id":"`))
	id, _, _ := bytes.Cut(rest, []byte(`"`))
	i, ok = c.number[string(id)]
	return i, ok
}

// change registers an instance of the fleet at a node.
func (c *crowd) change(ctx context.Context, addr string, i int) error {
	conn, err := wire.Dial(addr, time.Now().Add(arrivalLimit))
	if err != nil {
		return err
	}
	defer conn.Close()
	c.sent[i].Store(int64(time.Since(c.begun)))
	_, err = insisted(ctx, conn, c.fleet.registration(i), http.StatusNoContent)
	return err
}

// latencies waits until every change has arrived everywhere, sends the watchers home and returns what
// they noted.
func (c *crowd) latencies(ctx context.Context) (*hdrhistogram.Histogram, error) {
	limit := time.Now().Add(arrivalLimit)
	all := int64(len(c.members) * c.fleet.size)
	for c.arrived.Load() < all {
		if time.Now().After(limit) {
			return nil, fmt.Errorf("%d of %d changes have not arrived after %v", all-c.arrived.Load(), all, arrivalLimit)
		}
		if !pauseBench(ctx, crashLook) {
			return nil, ctx.Err()
		}
	}
	c.disperse()
	latencies := newLatencies()
	for _, m := range c.members {
		for _, took := range m.took {
			if err := latencies.RecordValue(min(took.Microseconds(), longestLatency)); err != nil {
				return nil, err
			}
		}
	}
	return latencies, nil
}

// disperse ends all watches.
func (c *crowd) disperse() {
	for _, m := range c.members {
		m.conn.Close()
	}
	c.readers.Wait()
}
