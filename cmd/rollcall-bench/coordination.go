package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
)

// coordination measures keys, locks and sessions.
func (r *ratiosRun) coordination(ctx context.Context) error {
	clusters, err := r.clusters(ctx,
		clusterSpec{name: "coordination"},
		clusterSpec{name: "coordination-one-entry-per-write", settings: []string{"--test-no-batching"}})
	if err != nil {
		return err
	}
	defer stopClusters(clusters)
	batching, singly := clusters[0], clusters[1]
	err = r.inRounds(ctx, r.measure(
		loadStep{name: put256, at: batching, Bulk: r.puts(r.keys)},
		loadStep{name: putSolo, at: singly, Bulk: r.puts(r.keys)}))
	if err != nil {
		return err
	}
	singly.stop()
	for _, part := range []func(context.Context, *benchCluster) error{r.handOvers, r.oneWatcher, r.sessionCosts} {
		if err := part(ctx, batching); err != nil {
			return err
		}
	}
	return nil
}

// puts is a load of writes to keys in turn, each with a value of 128 bytes that no write before had.
func (r *ratiosRun) puts(keys int) load.Bulk {
	return r.renewals(256, putsOf(keys))
}

func putsOf(keys int) load.Workload {
	var written atomic.Int64
	return func(conn, conns int) func() []byte {
		i := conn - conns
		return func() []byte {
			i += conns
			return putRequest(benchKey(i%keys), written.Add(1))
		}
	}
}

func benchKey(i int) string { return fmt.Sprintf("bench/%03d/%06d", i%1000, i) }

func putRequest(key string, value int64) []byte {
	return fmt.Appendf(nil, "PUT /v1/kv/%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 128\r\n\r\n%0128d", key, value)
}

// benchSession creates a session that outlasts what it is made for.
func benchSession(ctx context.Context, cl *client.Client) (id string, err error) {
	for {
		s, err := cl.CreateSession(ctx, client.SessionOptions{Name: "bench", TTL: time.Hour, LockDelay: -1})
		status, answered := errors.AsType[*client.StatusError](err)
		if !answered || status.Status != http.StatusServiceUnavailable || !wire.Pause(ctx, load.InsistPause) {
			return s.ID, err
		}
	}
}

// handOvers has contenders at all nodes take one lock in turn, and measures how long the lock has no holder: from the
// sending of the holder's release to the response that the next holder gets.
func (r *ratiosRun) handOvers(ctx context.Context, c *benchCluster) error {
	return r.steady(ctx, handOverP99, c, func(string) (func(), error) {
		latencies, err := r.contend(ctx, c)
		return func() { r.recordLatencies(latencies, "ms", time.Millisecond, handOverP50, handOverP99) }, err
	})
}

// contention is one lock, and when it was last released.
type contention struct {
	left     atomic.Int64 // hand-overs
	released atomic.Int64 // ns since begun; 0: not yet
	begun    time.Time

	mu        sync.Mutex // guards latencies
	latencies *hdrhistogram.Histogram
}

func (r *ratiosRun) contend(ctx context.Context, c *benchCluster) (*hdrhistogram.Histogram, error) {
	lock := &contention{begun: time.Now(), latencies: load.NewLatency()}
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
	conn, err := wire.Dial(addr, time.Now().Add(load.BulkLongest))
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })() // when another contender has failed
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

// acquired is called by the holder, right before it releases the lock.
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

// oneWatcher counts the responses to a watcher of one key while all other keys are written, and then its own: one is right.
func (r *ratiosRun) oneWatcher(ctx context.Context, c *benchCluster) error {
	return r.steady(ctx, watcherAnswers, c, func(leader string) (func(), error) {
		if err := exchangeOnce(leader, putRequest("watched", 0)); err != nil {
			return nil, err
		}
		l := load.Bulk{Targets: []string{leader}, Conns: 64, Requests: inAll(r.keys, putsOf(r.keys)), Want: http.StatusOK}
		watcher, err := watchKey(ctx, leader, "watched")
		if err != nil {
			return nil, err
		}
		defer watcher.stop()
		result, err := l.Closed(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", watcherAnswers, err)
		}
		r.wronged(watcherAnswers, result.Wrong)
		sent := time.Now()
		if err := exchangeOnce(leader, putRequest("watched", 1)); err != nil {
			return nil, err
		}
		answers, err := watcher.await(ctx)
		if err != nil {
			return nil, err
		}
		return func() {
			r.record(watcherAnswers, "answers", float64(answers))
			r.record(watcherArrival, "ms", milliseconds(watcher.last.Sub(sent)))
		}, nil
	})
}

func exchangeOnce(addr string, request []byte) error {
	return withConn(addr, time.Now().Add(load.BulkGrace), func(conn *wire.Conn) error {
		_, err := timed(conn, request, http.StatusOK)
		return err
	})
}

// keyWatcher reads one key by blocking queries, one after the other, until its value is 1.
type keyWatcher struct {
	stop      func()
	done      chan error
	responses int       // before done
	last      time.Time // of the last one
}

// watchKey begins to watch.
func watchKey(ctx context.Context, addr, key string) (*keyWatcher, error) {
	ctx, stop := context.WithCancel(ctx)
	w := &keyWatcher{stop: stop, done: make(chan error, 1)}
	index, _, err := readKey(ctx, addr, key, "")
	if err != nil {
		stop()
		return nil, err
	}
	go func() { w.done <- w.follow(ctx, addr, key, index) }()
	return w, nil
}

func (w *keyWatcher) follow(ctx context.Context, addr, key, index string) error {
	for {
		next, value, err := readKey(ctx, addr, key, index)
		if err != nil {
			return err
		}
		w.responses++
		w.last = time.Now()
		if value == fmt.Sprintf("%0128d", 1) {
			return nil
		}
		index = next
	}
}

// await waits for the value, and returns the number of responses until then.
func (w *keyWatcher) await(ctx context.Context) (answers int, err error) {
	select {
	case err := <-w.done:
		return w.responses, err
	case <-time.After(arrivalLimit):
		return 0, fmt.Errorf("the watcher of a key was not answered within %v of its change", arrivalLimit)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// readKey reads a key as soon as its index differs from the one given; "": at once.
func readKey(ctx context.Context, addr, key, index string) (next, value string, err error) {
	url := "http://" + addr + "/v1/kv/" + key + "?raw"
	if index != "" {
		url += "&wait=9m&index=" + index
	}
	resp, err := getOK(ctx, url)
	if err != nil {
		return "", "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.Header.Get("X-Consul-Index"), string(text), err
}

// sessionEvery is how often each session of the benchmark is renewed.
const sessionEvery = 10 * time.Second

// sessionCosts measures the CPU that sessions take that are renewed, beyond what the cluster takes with the same
// sessions while none is renewed.
func (r *ratiosRun) sessionCosts(ctx context.Context, c *benchCluster) error {
	ids, err := r.createSessions(ctx, c)
	if err != nil {
		return err
	}
	return r.steady(ctx, cpuSessions, c, func(leader string) (func(), error) {
		idle, err := r.cpuOf(ctx, c)
		if err != nil {
			return nil, err
		}
		busy, err := r.cpuOfRenewing(ctx, c, ids)
		if err != nil {
			return nil, err
		}
		return func() {
			all := 0.0
			for addr, cpu := range busy {
				all += cpu - idle[addr]
			}
			r.record(cpuSessions, "%", busy[leader]-idle[leader])
			r.record(cpuSessionsAll, "%", all)
		}, nil
	})
}

// createSessions creates the sessions, at all nodes.
func (r *ratiosRun) createSessions(ctx context.Context, c *benchCluster) ([]string, error) {
	r.reportProgress("creating %d sessions", r.sessions)
	ids := make([]string, r.sessions)
	clients := make([]*client.Client, len(c.nodes))
	for i, addr := range c.addrs() {
		cl, err := benchClient(addr)
		if err != nil {
			return nil, err
		}
		defer cl.Close(ctx)
		clients[i] = cl
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(64)
	for i := range ids {
		g.Go(func() (err error) {
			ids[i], err = benchSession(ctx, clients[i%len(clients)])
			return err
		})
	}
	return ids, g.Wait()
}

// cpuOfRenewing is cpuOf while sessions are renewed, each as often as its client would.
func (r *ratiosRun) cpuOfRenewing(ctx context.Context, c *benchCluster, ids []string) (cpu map[string]float64, err error) {
	l := load.Bulk{Targets: c.addrs(), Conns: 16 * benchNodes, Want: http.StatusOK, Requests: func(conn, conns int) func() []byte {
		i := conn - conns
		return func() []byte {
			i += conns
			return fmt.Appendf(nil, "PUT /v1/session/renew/%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", ids[i%len(ids)])
		}
	}}
	err = r.beside(ctx, cpuSessions, l, float64(len(ids))/sessionEvery.Seconds(), func(ctx context.Context) error {
		cpu, err = r.cpuOf(ctx, c)
		return err
	})
	return cpu, err
}

// cpuOf is how much of a core the process of each node takes in a window, in percent, by address.
func (r *ratiosRun) cpuOf(ctx context.Context, c *benchCluster) (map[string]float64, error) {
	return r.growth(ctx, 2*r.window, func(ctx context.Context) (map[string]float64, error) {
		cpu := map[string]float64{}
		for _, addr := range c.addrs() {
			var err error
			if cpu[addr], err = cpuSoFar(ctx, addr); err != nil {
				return nil, err
			}
		}
		return cpu, nil
	})
}

// cpuSoFar is what a node's process has taken since its start, in hundredths of a second: its growth per second is percent.
func cpuSoFar(ctx context.Context, addr string) (float64, error) {
	seconds, err := nodeMetric(ctx, addr, "process_cpu_seconds_total")
	return 100 * seconds, err
}

// growth is how much counters grow per second, in a window that begins when the load is warm.
func (r *ratiosRun) growth(ctx context.Context, window time.Duration, count func(context.Context) (map[string]float64, error)) (map[string]float64, error) {
	if !wire.Pause(ctx, r.warm) {
		return nil, ctx.Err()
	}
	begin := time.Now()
	before, err := count(ctx)
	if err != nil {
		return nil, err
	}
	if !wire.Pause(ctx, window) {
		return nil, ctx.Err()
	}
	after, err := count(ctx)
	seconds := time.Since(begin).Seconds()
	for name := range after {
		after[name] = (after[name] - before[name]) / seconds
	}
	return after, err
}
