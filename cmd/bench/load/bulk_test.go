package load

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// benchServer serves a handler and counts what it was sent.
type benchServer struct {
	addr     string
	requests atomic.Int64
}

func newBenchServer(t *testing.T, handler func(n int64, w http.ResponseWriter, r *http.Request)) *benchServer {
	t.Helper()
	s := new(benchServer)
	s.addr = addrOf(standIn(t, func(w http.ResponseWriter, r *http.Request) { handler(s.requests.Add(1), w, r) }))
	return s
}

func ok(int64, http.ResponseWriter, *http.Request) {}

func get1(int, int) func() []byte {
	return func() []byte { return readRequest }
}

// times is a workload that ends after n requests of each connection.
func times(n int, w Workload) Workload {
	return func(conn, conns int) func() []byte {
		next, left := w(conn, conns), n
		return func() []byte {
			if left--; left < 0 {
				return nil
			}
			return next()
		}
	}
}

func TestBulkGoesOnWhereTheServerClosesAConnection(t *testing.T) {
	server := newBenchServer(t, func(n int64, w http.ResponseWriter, _ *http.Request) {
		if n%3 == 0 {
			w.Header().Set("Connection", "close")
		}
	})
	r := need.Got(Bulk{Targets: []string{server.addr}, Conns: 1, Requests: times(10, get1), Want: 200}.Send(t.Context()))(t)
	expect.That(t, len(r.Latencies) == 10 && len(r.Wrong) == 0, "%d right, wrong: %v, want 10 right", len(r.Latencies), r.Wrong)
}

func TestBulkSendsAndCountsEveryRequestOnce(t *testing.T) {
	a, b := newBenchServer(t, ok), newBenchServer(t, ok)
	l := Bulk{Targets: []string{a.addr, b.addr}, Conns: 4, Requests: times(50, get1), Want: 200}
	r := need.Got(l.Send(t.Context()))(t)
	expect.That(t, len(r.Latencies) == 200 && len(r.Wrong) == 0, "%d right, wrong: %v, want 200 right", len(r.Latencies), r.Wrong)
	expect.That(t, a.requests.Load() == 100 && b.requests.Load() == 100,
		"the targets got %d and %d requests, want 100 each", a.requests.Load(), b.requests.Load())
}

// What a server that stalls keeps from being sent is slow, too: it counts from when it was due.
func TestBulkSendsOneRequestForEachTurnAndCountsFromWhenItWasDue(t *testing.T) {
	s := newBenchServer(t, ok)
	turns := make(chan Turn, 5)
	for i := range 5 {
		turns <- Turn{Due: time.Now().Add(-time.Hour), Warm: i < 2}
	}
	close(turns)
	r := need.Got(Bulk{Targets: []string{s.addr}, Conns: 2, Requests: get1, Want: 200, Turns: turns}.Send(t.Context()))(t)
	expect.That(t, s.requests.Load() == 5 && len(r.Latencies) == 3 && r.Latencies[0] >= time.Hour,
		"%d requests, and %v count; want 5, and three of an hour", s.requests.Load(), r.Latencies)
}

func TestBulkThatFailsLeavesNobodyWaitingForATurn(t *testing.T) {
	s := newBenchServer(t, func(int64, http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	for _, addr := range []string{s.addr, "127.0.0.1:1"} {
		turns, ended := make(chan Turn), make(chan struct{})
		go func() {
			defer close(ended)
			Bulk{Targets: []string{addr}, Conns: 1, Requests: get1, Want: 200, Turns: turns}.Send(t.Context())
		}()
		for range 10 {
			turns <- Turn{}
		}
		close(turns)
		<-ended
	}
}

func TestBulkCountsWrongResponsesByWhatIsWrong(t *testing.T) {
	s := newBenchServer(t, func(n int64, w http.ResponseWriter, _ *http.Request) {
		switch n % 4 {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			panic(http.ErrAbortHandler) // closes the connection without a response
		}
	})
	l := Bulk{Targets: []string{s.addr}, Conns: 1, Requests: times(40, get1), Want: 200}
	r := need.Got(l.Send(t.Context()))(t)
	want := "10 × status 503 instead of 200, 10 × unexpected EOF"
	expect.That(t, len(r.Latencies) == 20 && r.Wrong.String() == want, "%d right, wrong: %v, want 20 and %s", len(r.Latencies), r.Wrong, want)
}

func TestBulkThatInsistsRepeatsWhatWasRefused(t *testing.T) {
	s := newBenchServer(t, func(n int64, w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader([]int{200, 503, 200, 504}[n%4])
	})
	l := Bulk{Targets: []string{s.addr}, Conns: 1, Requests: times(5, get1), Want: 200, Insist: true}
	if r, err := l.Send(t.Context()); err != nil || len(r.Latencies) != 5 || len(r.Wrong) > 0 || s.requests.Load() != 10 {
		t.Errorf("%+v, %v, after %d requests; want 5 right answers to 10", r, err, s.requests.Load())
	}
}

func TestBulkCountsItsWindowOnly(t *testing.T) {
	const window = 500 * time.Millisecond
	s := newBenchServer(t, func(n int64, _ http.ResponseWriter, _ *http.Request) {
		if n == 3 {
			<-time.After(2 * window)
		}
	})
	r := need.Got(Bulk{Targets: []string{s.addr}, Conns: 1, Requests: get1, Want: 200, Window: window}.Send(t.Context()))(t)
	sent := s.requests.Load()
	expect.That(t, len(r.Latencies) < 3 && sent <= 3 && len(r.Wrong) == 0, "counted %d of %d requests, wrong: %v, want none that came after the window", len(r.Latencies), sent, r.Wrong)
}

func TestBulkEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := newBenchServer(t, func(n int64, _ http.ResponseWriter, _ *http.Request) {
		if n == 10 {
			cancel()
		}
	})
	l := Bulk{Targets: []string{s.addr}, Conns: 1, Requests: get1, Want: 200, Window: time.Hour}
	expect.Equal(t, expect.Err(l.Send(ctx)), context.Canceled, "got")
}

func TestBulkWithoutAServerIsAnError(t *testing.T) {
	l := Bulk{Targets: []string{"127.0.0.1:1"}, Conns: 2, Requests: get1, Want: 200}
	expect.ErrorSays(t, expect.Err(l.Send(t.Context())), "127.0.0.1:1", "got")
}
