package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// benchLimit bounds a benchmark's load, so that a server that does not answer ends it.
const benchLimit = 10 * time.Minute

// benchLoad is a load on a node, or over several.
type benchLoad struct {
	at       []string // addresses; nil means the leader
	conns    int
	requests load.Workload
	want     int     // the only right status
	rate     float64 // per second, however long responses take; 0 means each connection's next request follows a response
}

// fetching returns a load that fetches a document, compressed.
func fetching(conns int, path string) benchLoad {
	return benchLoad{conns: conns, requests: fetchesOf(path), want: http.StatusOK}
}

// run sends the cluster one request for each turn of the benchmark's loop. It reports latencies and the processor time
// of all nodes for a request, and returns the bytes of a response.
func (l benchLoad) run(b *testing.B, c peerCluster) (body int64) {
	b.Helper()
	underOneLeader(b, c, func(leader string) {
		if l.at == nil {
			l.at = []string{leader}
		}
		warm := l.start(b)
		for n, begin := 0, time.Now(); time.Since(begin) < 250*time.Millisecond; n++ {
			warm.hand(n)
		}
		warm.end(b)
		s := l.start(b)
		before := useOf(c)
		for n := 0; b.Loop(); n++ {
			s.hand(n)
		}
		latencies := s.end(b)
		after := useOf(c)
		b.ReportMetric(float64(after.servers-before.servers)/float64(b.N), "cpu-ns/op")
		took := after.at.Sub(before.at) // until the last response, for which the end of the loop does not wait
		if l.rate > 0 {
			took = 0 // the rate decides it: it is not shown
		}
		b.ReportMetric(float64(took)/float64(b.N), "ns/op")
		reportQuantiles(b, latencies)
		body = s.body
	})
	return body
}

// beside keeps a load up until the function that it returns is called, which returns its latencies.
func (l benchLoad) beside(b *testing.B) (end func() []time.Duration) {
	ctx, stop := context.WithCancel(b.Context())
	s, handed := l.start(b), make(chan struct{})
	go func() {
		defer close(handed)
		for n := 0; ctx.Err() == nil; n++ {
			s.hand(n)
		}
	}()
	return func() []time.Duration {
		stop()
		<-handed
		return s.end(b)
	}
}

// start opens the connections of the load.
func (l benchLoad) start(b *testing.B) *sending {
	b.Helper()
	s := &sending{benchLoad: l, due: make(chan time.Time, int(l.rate))}
	for i := range l.conns {
		c := need.Got(wire.Dial(l.at[i%len(l.at)], time.Now().Add(benchLimit)))(b)
		next := l.requests(i, l.conns)
		s.senders.Go(func() error {
			defer c.Close()
			return s.send(c, next)
		})
	}
	s.begun = time.Now()
	return s
}

// sending is a load under way. For each time on due, the next idle connection sends its next request.
type sending struct {
	benchLoad
	due     chan time.Time // zero means when a connection takes it
	begun   time.Time
	senders errgroup.Group

	mu        sync.Mutex // guards what follows
	latencies []time.Duration
	body      int64
}

// hand lets the n-th request be sent, once it is due.
func (s *sending) hand(n int) {
	var due time.Time
	if s.rate > 0 {
		due = s.begun.Add(time.Duration(float64(n) / s.rate * float64(time.Second)))
		wire.SleepUntil(due)
	}
	s.due <- due
}

// send sends what is handed out, over one connection. After an error it sends nothing more, but keeps hand going.
func (s *sending) send(c *wire.Conn, next func() []byte) (err error) {
	var latencies []time.Duration
	for due := range s.due {
		if err != nil {
			continue
		}
		if due.IsZero() {
			due = time.Now()
		}
		if _, err = exchange(c, next(), s.want); err == nil {
			latencies = append(latencies, time.Since(due))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latencies, s.body = append(s.latencies, latencies...), max(s.body, c.Size())
	return err
}

// end waits for the last responses, and returns all latencies. A wrong response ends the benchmark.
func (s *sending) end(b *testing.B) []time.Duration {
	b.Helper()
	close(s.due)
	need.OK(b, s.senders.Wait())
	return s.latencies
}

// exchange sends a request and returns how long its response took.
func exchange(c *wire.Conn, request []byte, want int) (time.Duration, error) {
	begin := time.Now()
	status, err := c.Exchange(request)
	if err == nil && status != want {
		err = fmt.Errorf("status %d instead of %d", status, want)
	}
	return time.Since(begin), err
}

// once sends one request over a connection of its own, and returns how long its response took.
func once(b *testing.B, addr string, request []byte, want int) time.Duration {
	b.Helper()
	c := need.Got(wire.Dial(addr, time.Now().Add(time.Minute)))(b)
	defer c.Close()
	return need.Got(exchange(c, request, want))(b)
}

// get fetches a document once, and returns how long that took.
func get(b *testing.B, addr, path string) time.Duration {
	b.Helper()
	return once(b, addr, fetchesOf(path)(0, 1)(), http.StatusOK)
}

// reportQuantiles reports the median, the 99th percentile and the longest of some times.
func reportQuantiles(b *testing.B, times []time.Duration) {
	b.Helper()
	need.That(b, len(times) > 0, "nothing was measured")
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2]), "p50-ns")
	b.ReportMetric(float64(times[len(times)*99/100]), "p99-ns")
	b.ReportMetric(float64(times[len(times)-1]), "max-ns")
}

// underOneLeader measures while one node leads, and ends the benchmark if another one leads at the end: it would have
// measured the election.
func underOneLeader(b *testing.B, c peerCluster, measure func(leader string)) {
	b.Helper()
	before := need.Got(awaitLeader(b.Context(), c))(b)
	syncDisk()
	measure(before)
	need.Equal(b, need.Got(awaitLeader(b.Context(), c))(b), before, "leadership moved; measure again: the leader")
}

// startCluster starts three nodes with default settings, and registers fleets. They end with the benchmark.
func startCluster(b *testing.B, mode string, fleets []benchFleet, settings ...string) *benchCluster {
	b.Helper()
	need.OK(b, clearSettings())
	c := need.Got(startBenchCluster(b.Context(), testServer.path, b.TempDir(), mode, settings...))(b)
	b.Cleanup(c.stop)
	for _, f := range fleets {
		need.OK(b, f.registerAt(b.Context(), need.Got(awaitLeader(b.Context(), c))(b)))
	}
	return c
}

// startBareBeside starts the bare handler, which ends with the benchmark.
func startBareBeside(b *testing.B) *bareServer {
	b.Helper()
	percent := need.Got(testServer.gcPercent(b.Context()))(b)
	s := need.Got(startBare(b.Context(), b.TempDir(), percent))(b)
	b.Cleanup(s.stop)
	return s
}
