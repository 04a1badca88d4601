package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
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
	batching, oneByOne := clusters[0], clusters[1]
	err = r.inRounds(ctx, r.measure(
		loadStep{name: put256, at: batching, Bulk: r.puts(r.keys)},
		loadStep{name: putSolo, at: oneByOne, Bulk: r.puts(r.keys)}))
	if err != nil {
		return err
	}
	oneByOne.stop()
	for _, part := range []func(context.Context, *benchCluster) error{r.handOvers, r.oneWatcher, r.sessionCosts} {
		if err := part(ctx, batching); err != nil {
			return err
		}
	}
	return nil
}

// puts returns a load of writes to a number of keys in turn.
func (r *ratiosRun) puts(keys int) load.Bulk {
	return r.renewals(256, putsOf(keys))
}

// createBenchSession creates a session that outlasts any run, trying again while the response is 503.
func createBenchSession(ctx context.Context, cl *client.Client) (id string, err error) {
	for {
		s, err := cl.CreateSession(ctx, client.SessionOptions{Name: "bench", TTL: time.Hour, LockDelay: -1})
		status, refused := errors.AsType[*client.StatusError](err)
		if !refused || status.Status != http.StatusServiceUnavailable || !wire.Pause(ctx, load.InsistPause) {
			return s.ID, err
		}
	}
}

// handOvers makes contenders at all nodes take one lock in turn, and measures how long the lock has no holder: from
// sending the holder's release to the response that the next holder gets.
func (r *ratiosRun) handOvers(ctx context.Context, c *benchCluster) error {
	return r.underOneLeader(ctx, handOverP99, c, func(string) (func(), error) {
		latencies, err := r.contendAll(ctx, c)
		return func() { r.recordLatencies(latencies, "ms", time.Millisecond, handOverP50, handOverP99) }, err
	})
}

// contention is one lock that contenders queue for, with what is known of its hand-overs.
type contention struct {
	remaining atomic.Int64 // hand-overs still to come
	released  atomic.Int64 // when a holder last sent its release, in ns since begun; 0 before the first
	begun     time.Time

	mu        sync.Mutex // guards latencies
	latencies *hdrhistogram.Histogram
}

// contendAll runs the contenders, spread over the nodes, and returns the latencies of the hand-overs.
func (r *ratiosRun) contendAll(ctx context.Context, c *benchCluster) (*hdrhistogram.Histogram, error) {
	lock := &contention{begun: time.Now(), latencies: load.NewLatency()}
	lock.remaining.Store(int64(r.handovers))
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

// contend is one contender, at one node: it acquires the lock and releases it until no hand-overs remain.
func (l *contention) contend(ctx context.Context, addr string) error {
	cl, err := benchClient(addr)
	if err != nil {
		return err
	}
	defer cl.Close(ctx)
	session, err := createBenchSession(ctx, cl)
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
	for l.remaining.Load() > 0 && ctx.Err() == nil {
		if _, err := exchangeUntilServed(ctx, conn, acquire, http.StatusOK); err != nil {
			return err
		}
		if err := l.recordHandOver(); err != nil {
			return err
		}
		if _, err := exchangeUntilServed(ctx, conn, release, http.StatusOK); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// recordHandOver records the time since the last release, as the hand-over to the current holder. The holder calls it
// right before it releases the lock, so that now is also the time of the next release.
func (l *contention) recordHandOver() error {
	now := int64(time.Since(l.begun))
	before := l.released.Swap(now)
	if before == 0 || l.remaining.Add(-1) < 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.latencies.RecordValue((now - before) / int64(time.Microsecond))
}

// oneWatcher counts the responses to a watcher of one key while all other keys are written, and then that key. Only
// one response is right: the last.
func (r *ratiosRun) oneWatcher(ctx context.Context, c *benchCluster) error {
	return r.underOneLeader(ctx, watcherAnswers, c, func(leader string) (func(), error) {
		if err := exchangeOnce(leader, putRequest("watched", 0)); err != nil {
			return nil, err
		}
		l := load.Bulk{Targets: []string{leader}, Conns: 64, Requests: firstRequests(r.keys, putsOf(r.keys)), Want: http.StatusOK}
		watcher, err := watchKey(ctx, leader, "watched")
		if err != nil {
			return nil, err
		}
		defer watcher.stop()
		result, err := l.Closed(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", watcherAnswers, err)
		}
		r.countWrong(watcherAnswers, result.Wrong)
		sent := time.Now()
		if err := exchangeOnce(leader, putRequest("watched", 1)); err != nil {
			return nil, err
		}
		responses, err := watcher.awaitValue(ctx)
		if err != nil {
			return nil, err
		}
		return func() {
			r.record(watcherAnswers, "answers", float64(responses))
			r.record(watcherArrival, "ms", milliseconds(watcher.last.Sub(sent)))
		}, nil
	})
}

// exchangeOnce sends one request over its own connection, and expects 200.
func exchangeOnce(addr string, request []byte) error {
	return withConn(addr, time.Now().Add(load.BulkGrace), func(conn *wire.Conn) error {
		_, err := timedExchange(conn, request, http.StatusOK)
		return err
	})
}

// keyWatcher reads one key by blocking queries, one after the other, until its value is 1.
type keyWatcher struct {
	stop      func()
	done      chan error
	responses int       // complete once done has a value, as is last
	last      time.Time // when the newest response came
}

// watchKey starts a watcher of a key, which has read the key once when watchKey returns. The caller stops it.
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

// awaitValue waits until the watcher has read the value 1, and returns the number of responses until then.
func (w *keyWatcher) awaitValue(ctx context.Context) (responses int, err error) {
	select {
	case err := <-w.done:
		return w.responses, err
	case <-time.After(arrivalLimit):
		return 0, fmt.Errorf("the watcher of a key was not answered within %v of its change", arrivalLimit)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// readKey reads a key when its index is above the one given, or at once if index is empty. next is the index to wait
// with. parameters are added to the query, such as "stale".
func readKey(ctx context.Context, addr, key, index string, parameters ...string) (next, value string, err error) {
	url := "http://" + addr + "/v1/kv/" + key + "?" + strings.Join(append(parameters, "raw"), "&")
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

// sessionRenewEvery is how often each session of the benchmark is renewed.
const sessionRenewEvery = 10 * time.Second

// sessionCosts measures the CPU that renewals of sessions take: what the cluster uses while sessions are renewed,
// minus what it uses with the same sessions unrenewed.
func (r *ratiosRun) sessionCosts(ctx context.Context, c *benchCluster) error {
	ids, err := r.createSessions(ctx, c)
	if err != nil {
		return err
	}
	return r.underOneLeader(ctx, cpuSessions, c, func(leader string) (func(), error) {
		idle, err := r.cpuOf(ctx, c, 2*r.window)
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

// createSessions creates the plan's sessions, spread over the nodes, and returns their ids.
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
			ids[i], err = createBenchSession(ctx, clients[i%len(clients)])
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
	err = r.measureBeside(ctx, cpuSessions, l, float64(len(ids))/sessionRenewEvery.Seconds(), func(ctx context.Context) error {
		cpu, err = r.cpuOf(ctx, c, 2*r.window)
		return err
	})
	return cpu, err
}

// cpuOf returns how much of a core the process of each node takes in a window, in percent, by address.
func (r *ratiosRun) cpuOf(ctx context.Context, c *benchCluster, window time.Duration) (map[string]float64, error) {
	return r.growthPerSecond(ctx, window, func(ctx context.Context) (map[string]float64, error) {
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

// cpuSoFar returns the CPU time of a node's process since its start, in hundredths of a second: its growth per second
// is in percent of a core.
func cpuSoFar(ctx context.Context, addr string) (float64, error) {
	seconds, err := nodeMetric(ctx, addr, "process_cpu_seconds_total")
	return 100 * seconds, err
}

// growthPerSecond returns how much each of some counters grows per second, in a window that begins when the load is
// warm.
func (r *ratiosRun) growthPerSecond(ctx context.Context, window time.Duration, count func(context.Context) (map[string]float64, error)) (map[string]float64, error) {
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
