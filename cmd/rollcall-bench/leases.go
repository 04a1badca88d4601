package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

// leases measures how soon every reader knows that an instance is gone, and that another one has come.
func (r *ratiosRun) leases(ctx context.Context) error {
	clusters, err := r.clusters(ctx, clusterSpec{name: "leases"})
	if err != nil {
		return err
	}
	defer stopClusters(clusters)
	if err := r.crashes(ctx, clusters[0]); err != nil {
		return err
	}
	return r.arrivals(ctx, clusters[0])
}

// Of the instances that crash, and of the others, which do not: enough that neither self-preservation nor the share of
// an eviction round comes into play.
const (
	crashEvery  = 100 * time.Millisecond
	crashLook   = 10 * time.Millisecond // how often a node is asked whether it still lists an instance
	crashLimit  = time.Minute           // from the registration to its absence
	bystanders  = 300
	bystandRate = 150 // total renewals per second
)

var (
	crashLease   = benchLease{interval: 1, duration: 3}
	bystandLease = benchLease{interval: 3, duration: 9}
)

// crashes measures crashes while other instances are renewed.
func (r *ratiosRun) crashes(ctx context.Context, c *benchCluster) error {
	alive := benchFleet{name: "alive", size: bystanders, lease: bystandLease}
	if err := c.register(ctx, alive); err != nil {
		return err
	}
	l := load.Bulk{Targets: c.addrs(), Conns: 3, Requests: alive.renewals(), Want: http.StatusOK}
	return r.measureBeside(ctx, crashP99, l, bystandRate, func(ctx context.Context) error {
		if err := r.awaitCounted(ctx, c, alive.size); err != nil {
			return err
		}
		return r.underOneLeader(ctx, crashP99, c, func(string) (func(), error) {
			latencies, err := r.crashInTurn(ctx, c)
			return func() { r.recordLatencies(latencies, "s", time.Second, crashP50, crashP99) }, err
		})
	})
}

// awaitCounted waits until self-preservation counts a number of leases: it leaves young ones out.
func (r *ratiosRun) awaitCounted(ctx context.Context, c *benchCluster, leases int) error {
	cl, err := benchClient(c.nodes[0].HTTP)
	if err != nil {
		return err
	}
	return await(ctx, fmt.Sprintf("self-preservation counts %d leases", leases), crashLimit, func(ctx context.Context) (bool, error) {
		p, err := cl.SelfPreservation(ctx)
		return int(p.Figures.Counted) >= leases, err
	})
}

// crashInTurn registers instances that are never renewed, one after the other, and returns how long after the end of
// its lease each was gone from every node.
func (r *ratiosRun) crashInTurn(ctx context.Context, c *benchCluster) (*hdrhistogram.Histogram, error) {
	mortal := benchFleet{name: "mortal", size: r.crashed, lease: crashLease}
	latencies := load.NewLatency()
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	for i := range mortal.size {
		g.Go(func() error {
			late, err := crash(ctx, c, mortal, i)
			if err != nil {
				return fmt.Errorf("%s: %w", mortal.id(i), err)
			}
			mu.Lock()
			defer mu.Unlock()
			return latencies.RecordValue(late.Microseconds())
		})
		if !wire.Pause(ctx, crashEvery) {
			break
		}
	}
	return latencies, g.Wait()
}

// crash registers one instance at one of the nodes and abandons it. The lease counts from the sending of the
// registration, so that the result is never too short. The nodes are asked linearizably, one after the other, each
// until the instance is gone: the response of one holds for all.
func crash(ctx context.Context, c *benchCluster, f benchFleet, i int) (late time.Duration, err error) {
	limit := time.Now().Add(crashLimit)
	var sent time.Time
	if err := withConn(c.addrs()[i%len(c.nodes)], limit, func(conn *wire.Conn) (err error) {
		sent, err = exchangeUntilServed(ctx, conn, f.registration(i), http.StatusNoContent)
		return err
	}); err != nil {
		return 0, err
	}
	end := sent.Add(time.Duration(f.lease.duration) * time.Second)
	if !wire.Pause(ctx, time.Until(end)) {
		return 0, ctx.Err()
	}
	look := fmt.Appendf(nil, "GET /eureka/apps/%s/%s?consistency=linearizable HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\r\n", f.app(i), f.id(i))
	for _, addr := range c.addrs() {
		if err := withConn(addr, limit, func(conn *wire.Conn) error { return awaitAbsent(ctx, conn, look) }); err != nil {
			return 0, err
		}
	}
	return time.Since(end), nil
}

// withConn lends a new connection: a node closes one that was silent for seconds.
func withConn(addr string, limit time.Time, use func(*wire.Conn) error) error {
	conn, err := wire.Dial(addr, limit)
	if err != nil {
		return err
	}
	defer conn.Close()
	return use(conn)
}

// awaitAbsent repeats a request until the response is 404.
func awaitAbsent(ctx context.Context, conn *wire.Conn, look []byte) error {
	for {
		status, err := conn.Exchange(look)
		switch {
		case err != nil:
			return err
		case status == http.StatusNotFound:
			return nil
		case status != http.StatusOK && status != http.StatusServiceUnavailable:
			return fmt.Errorf("status %d instead of 200, 404, or 503 for the moment", status)
		}
		if !wire.Pause(ctx, crashLook) {
			return ctx.Err()
		}
	}
}

// recordLatencies records the median and the 99th percentile of latencies in µs, in a unit of the length each.
func (r *ratiosRun) recordLatencies(latencies *hdrhistogram.Histogram, unit string, each time.Duration, p50, p99 figureName) {
	record := func(name figureName, percent float64) {
		µs := time.Duration(latencies.ValueAtQuantile(percent)) * time.Microsecond
		r.record(name, unit, µs.Seconds()/each.Seconds())
	}
	record(p50, 50)
	record(p99, 99)
}

const (
	changeEvery  = 100 * time.Millisecond // longer than the nodes' pause between two sends to a watcher
	arrivalLimit = 30 * time.Second       // for the last change
	watchFetch   = 4 << 10                // bytes of a stream that are read at once
)

// arrivals measures how long changes take to reach all watchers, which are spread over the nodes.
func (r *ratiosRun) arrivals(ctx context.Context, c *benchCluster) error {
	return r.underOneLeader(ctx, arrivalP99, c, func(string) (func(), error) {
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
		if !wire.Pause(ctx, changeEvery) {
			return nil, ctx.Err()
		}
	}
	return crowd.latencies(ctx, 0)
}

// crowd is many watchers and the registrations that they wait for.
type crowd struct {
	fleet   benchFleet
	number  map[string]int // of an instance, by its id
	begun   time.Time
	since   []atomic.Int64 // when each registration starts on its way, in ns since begun
	members []*crowdMember
	readers sync.WaitGroup
	arrived atomic.Int64
}

// crowdMember is one watcher; seen belongs to its reader until the reader has ended.
type crowdMember struct {
	conn net.Conn
	seen []time.Duration // when it first read each registration, since begun; 0 before that
}

func newCrowd(f benchFleet) *crowd {
	c := &crowd{fleet: f, number: make(map[string]int), begun: time.Now(), since: make([]atomic.Int64, f.size)}
	for i := range f.size {
		c.number[f.id(i)] = i
	}
	return c
}

// setStart records when a registration started on its way.
func (c *crowd) setStart(i int, at time.Time) { c.since[i].Store(int64(at.Sub(c.begun))) }

// join adds a watcher of everything and waits for its stream to start.
func (c *crowd) join(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, load.BulkGrace)
	if err != nil {
		return err
	}
	m := c.add(conn)
	body, err := load.AskForEvents(conn, "/v1/rollcall/watch")
	if err != nil {
		return err
	}
	events := api.NewEventReader(body, watchFetch)
	if _, err := events.Next(); err != nil { // the start event
		return fmt.Errorf("watch: %w", err)
	}
	c.readers.Go(func() { c.read(m, events) })
	return nil
}

// add adds a watcher that has read nothing yet.
func (c *crowd) add(conn net.Conn) *crowdMember {
	m := &crowdMember{conn: conn, seen: make([]time.Duration, c.fleet.size)}
	c.members = append(c.members, m)
	return m
}

// read records when each change came, until the connection is closed.
func (c *crowd) read(m *crowdMember, events *api.EventReader) {
	for {
		e, err := events.Next()
		if err != nil {
			return
		}
		c.recordArrival(m, e.Data)
	}
}

// recordArrival records when a watcher read a registration for the first time.
func (c *crowd) recordArrival(m *crowdMember, data []byte) {
	if i, ok := c.changeOf(data); ok && m.seen[i] == 0 {
		m.seen[i] = time.Since(c.begun)
		c.arrived.Add(1)
	}
}

// changeOf finds the number of the registration in a line, or the beginning of a line that
// is longer than a buffer.
func (c *crowd) changeOf(data []byte) (i int, ok bool) {
	_, rest, _ := bytes.Cut(data, []byte(`"id":"`))
	id, _, _ := bytes.Cut(rest, []byte(`"`))
	i, ok = c.number[string(id)]
	return i, ok
}

// change registers an instance of the fleet at a node.
func (c *crowd) change(ctx context.Context, addr string, i int) error {
	return withConn(addr, time.Now().Add(arrivalLimit), func(conn *wire.Conn) error {
		c.setStart(i, time.Now())
		_, err := exchangeUntilServed(ctx, conn, c.fleet.registration(i), http.StatusNoContent)
		return err
	})
}

// latencies waits until every change has arrived everywhere, ends the watches and returns how long the changes from
// first on took to reach each watcher.
func (c *crowd) latencies(ctx context.Context, first int) (*hdrhistogram.Histogram, error) {
	err := await(ctx, "every change has arrived", arrivalLimit, func(context.Context) (bool, error) {
		missing := int64(len(c.members)*c.fleet.size) - c.arrived.Load()
		if missing > 0 {
			return false, fmt.Errorf("%d have not", missing)
		}
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	c.disperse()
	latencies := load.NewLatency()
	for _, m := range c.members {
		for i := first; i < c.fleet.size; i++ {
			// A watcher may be faster than the response to the registration: that counts as zero.
			took := max(0, m.seen[i]-time.Duration(c.since[i].Load()))
			if err := latencies.RecordValue(min(took.Microseconds(), load.LongestLatency)); err != nil {
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
