package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// benchLoad is a load on the leader, or on its targets if it has any.
type benchLoad struct {
	load.Bulk
	rate float64 // per second, however long responses take; 0 means that a connection's next request follows a response
}

func newBenchLoad(conns int, requests load.Workload, want int) benchLoad {
	return benchLoad{Bulk: load.Bulk{Conns: conns, Requests: requests, Want: want}}
}

// fetching returns a load that fetches a document, compressed.
func fetching(conns int, path string) benchLoad {
	return newBenchLoad(conns, fetchesOf(path), http.StatusOK)
}

// at returns the load with other targets, and another rate.
func (l benchLoad) at(rate float64, addrs ...string) benchLoad {
	l.rate, l.Targets = rate, addrs
	return l
}

// run sends the cluster one request for each turn of the benchmark's loop. It reports latencies and the processor time
// of all nodes for a request, and returns the bytes of a response.
func (l benchLoad) run(b *testing.B, c peerCluster) (body int64) {
	const warmUp = 250 * time.Millisecond
	b.Helper()
	underOneLeader(b, c, func(leader string) {
		if l.Targets == nil {
			l.Targets = []string{leader}
		}
		s := l.start(b)
		for n := 0; time.Since(s.begun) < warmUp; n++ {
			s.hand(n, true)
		}
		s.begun = time.Now()
		before := useOf(c)
		for n := 0; b.Loop(); n++ {
			s.hand(n, false)
		}
		after := useOf(c)
		result := s.finish(b)
		body = result.Body
		b.ReportMetric(float64(after.servers-before.servers)/float64(b.N), "cpu-ns/op")
		if l.rate > 0 {
			b.ReportMetric(0, "ns/op") // the rate decides it
		}
		reportQuantiles(b, result.Latencies)
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
			s.hand(n, false)
		}
	}()
	return func() []time.Duration {
		stop()
		<-handed
		return s.finish(b).Latencies
	}
}

// start begins to send what is handed out.
func (l benchLoad) start(b *testing.B) *sending {
	s := &sending{turns: make(chan load.Turn, int(l.rate)), ended: make(chan struct{}), rate: l.rate, begun: time.Now()}
	l.Turns = s.turns
	go func() {
		defer close(s.ended)
		s.result, s.err = l.Send(b.Context())
	}()
	return s
}

// sending is a load under way.
type sending struct {
	turns  chan load.Turn
	rate   float64
	begun  time.Time
	ended  chan struct{} // closed when what follows is complete
	result *load.BulkResult
	err    error
}

// hand lets the n-th request since begun be sent, once it is due.
func (s *sending) hand(n int, warm bool) {
	turn := load.Turn{Warm: warm}
	if s.rate > 0 {
		turn.Due = s.begun.Add(time.Duration(float64(n) / s.rate * float64(time.Second)))
		load.SleepUntil(turn.Due)
	}
	s.turns <- turn
}

// finish waits for the last responses. A wrong one ends the benchmark.
func (s *sending) finish(b *testing.B) *load.BulkResult {
	b.Helper()
	close(s.turns)
	<-s.ended
	need.OK(b, s.err)
	need.That(b, len(s.result.Wrong) == 0, "wrong answers: %v", s.result.Wrong)
	return s.result
}

// exchange sends a request and returns how long its response took.
func exchange(c *load.Conn, request []byte, want int) (time.Duration, error) {
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
	c := need.Got(load.Dial(addr, time.Now().Add(time.Minute)))(b)
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
	slices.Sort(times)
	b.ReportMetric(float64(quantile(times, 50)), "p50-ns")
	b.ReportMetric(float64(quantile(times, 99)), "p99-ns")
	b.ReportMetric(float64(quantile(times, 100)), "max-ns")
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
