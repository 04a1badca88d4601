package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
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
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler(s.requests.Add(1), w, r)
	}))
	t.Cleanup(server.Close)
	s.addr = server.Listener.Addr().String()
	return s
}

func ok(int64, http.ResponseWriter, *http.Request) {}

// get1 asks for anything.
func get1(int, int) func() []byte {
	return func() []byte { return []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n") }
}

// times is a workload that ends after n requests of each connection.
func times(n int, w workload) workload {
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

func TestEveryRequestOfALoadIsSentAndCountedOnce(t *testing.T) {
	a, b := newBenchServer(t, ok), newBenchServer(t, ok)
	l := httpLoad{targets: []string{a.addr, b.addr}, conns: 4, requests: times(50, get1), want: 200}
	r := need.Got(l.closed(t.Context()))(t)
	if r.right != 200 || len(r.wrong) != 0 || r.rate <= 0 || r.latency.TotalCount() != 200 {
		t.Errorf("%d right at %f/s, %d latencies, wrong: %v, want 200 right", r.right, r.rate, r.latency.TotalCount(), r.wrong)
	}
	if a.requests.Load() != 100 || b.requests.Load() != 100 {
		t.Errorf("the targets got %d and %d requests, want 100 each", a.requests.Load(), b.requests.Load())
	}
}

func TestWrongAnswersAreCountedByWhatIsWrong(t *testing.T) {
	s := newBenchServer(t, func(n int64, w http.ResponseWriter, _ *http.Request) {
		switch n % 4 {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			panic(http.ErrAbortHandler) // closes the connection without an answer
		}
	})
	l := httpLoad{targets: []string{s.addr}, conns: 1, requests: times(40, get1), want: 200}
	r := need.Got(l.closed(t.Context()))(t)
	want := "10 × status 503 instead of 200, 10 × unexpected EOF"
	if r.right != 20 || r.wrong.String() != want {
		t.Errorf("%d right, wrong: %v, want 20 and %s", r.right, r.wrong, want)
	}
}

// refusesEverySecond answers 503 to every other request.
func refusesEverySecond(n int64, w http.ResponseWriter, _ *http.Request) {
	if n%2 == 1 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func TestWhatOnlyPreparesIsRepeatedAfterARefusal(t *testing.T) {
	s := newBenchServer(t, refusesEverySecond)
	l := httpLoad{targets: []string{s.addr}, conns: 1, requests: times(5, get1), want: 200, insist: true}
	if r, err := l.closed(t.Context()); err != nil || r.right != 5 || len(r.wrong) > 0 || s.requests.Load() != 10 {
		t.Errorf("%+v, %v, after %d requests; want 5 right answers to 10", r, err, s.requests.Load())
	}
	err := withConn(s.addr, time.Now().Add(time.Minute), func(c *wire.Conn) error {
		_, err := insisted(t.Context(), c, get1(0, 1)(), 200)
		return err
	})
	if err != nil || s.requests.Load() != 12 {
		t.Errorf("%v, after %d requests, want a right answer to the 12th", err, s.requests.Load())
	}
}

func TestWhoInsistsEndsWithItsContext(t *testing.T) {
	s := newBenchServer(t, func(_ int64, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	err := withConn(s.addr, time.Now().Add(time.Minute), func(c *wire.Conn) error {
		_, err := insisted(ctx, c, get1(0, 1)(), 200)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "status 503 instead of 200") {
		t.Errorf("got %v, want the refusal", err)
	}
	l := httpLoad{targets: []string{s.addr}, conns: 1, requests: get1, want: 200, insist: true}
	if _, err := l.closed(ctx); err == nil {
		t.Error("a load whose context has ended: no error")
	}
}

func TestALoadOnlyCountsItsWindow(t *testing.T) {
	s := newBenchServer(t, ok)
	l := httpLoad{targets: []string{s.addr}, conns: 2, requests: get1, want: 200, warm: time.Second, window: time.Second}
	r := need.Got(l.closed(t.Context()))(t)
	if sent := int(s.requests.Load()); r.right == 0 || r.right >= sent {
		t.Errorf("counted %d of %d requests, want some but not those of the warm-up", r.right, sent)
	}
	if rate := float64(r.right) / l.window.Seconds(); rate != r.rate {
		t.Errorf("%f/s, want %f/s", r.rate, rate)
	}
}

func TestTheSizeOfBodiesIsReported(t *testing.T) {
	s := newBenchServer(t, func(_ int64, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "200000") // more than one read
		io.WriteString(w, strings.Repeat("x", 200_000))
	})
	l := httpLoad{targets: []string{s.addr}, conns: 1, requests: times(3, get1), want: 200}
	r, err := l.closed(t.Context())
	if err != nil || r.body != 200_000 || r.right != 3 {
		t.Errorf("%d answers of %d bytes, wrong: %v, %v, want 3 of 200000", r.right, r.body, r.wrong, err)
	}
}

func TestALoadEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := newBenchServer(t, func(n int64, _ http.ResponseWriter, _ *http.Request) {
		if n == 10 {
			cancel()
		}
	})
	l := httpLoad{targets: []string{s.addr}, conns: 1, requests: get1, want: 200, window: time.Hour}
	if _, err := l.closed(ctx); err != context.Canceled {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if _, err := l.open(ctx, 100); err != context.Canceled {
		t.Errorf("open loop: got %v, want %v", err, context.Canceled)
	}
}

func TestALoadWithoutAServerIsAnError(t *testing.T) {
	l := httpLoad{targets: []string{"127.0.0.1:1"}, conns: 2, requests: get1, want: 200}
	if _, err := l.closed(t.Context()); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("got %v, want an error that names the address", err)
	}
}

// A server that stalls for half a second answers one slow request to a client that waits, but is slow
// to all those who would have come meanwhile.
func TestTheOpenLoopDoesNotOmitWhatAStallKeptFromBeingSent(t *testing.T) {
	const (
		stall = 500 * time.Millisecond
		rate  = 200.0
		slow  = stall / 2
	)
	stalling := func(n int64, _ http.ResponseWriter, _ *http.Request) {
		if n == 20 {
			<-time.After(stall)
		}
	}
	slowOnes := func(r *loadResult) (n int64) {
		for _, bar := range r.latency.Distribution() {
			if bar.From >= slow.Microseconds() {
				n += bar.Count
			}
		}
		return n
	}
	l := httpLoad{conns: 1, requests: get1, want: 200, window: time.Second}

	l.targets = []string{newBenchServer(t, stalling).addr}
	open := need.Got(l.open(t.Context(), rate))(t)
	// Due in the first half of the stall, and so later than half of it.
	atLeast := int64(rate * slow.Seconds() * 0.8)
	if got := slowOnes(open); got < atLeast || open.right != int(rate) {
		t.Errorf("the open loop counted %d of %d requests as slower than %v, want at least %d of %v", got, open.right, slow, atLeast, rate)
	}

	l.targets = []string{newBenchServer(t, stalling).addr}
	closed := need.Got(l.closed(t.Context()))(t)
	if got := slowOnes(closed); got < 1 || got >= atLeast {
		t.Errorf("the closed loop counted %d requests as slower than %v: the stall should be one of them, and there was no other", got, slow)
	}
}

// parse reads a preformatted request as a server does.
func parse(t *testing.T, request []byte) (r *http.Request, body []byte) {
	t.Helper()
	rest := bufio.NewReader(bytes.NewReader(request))
	r, err := http.ReadRequest(rest)
	if err != nil {
		t.Fatalf("%v in %q", err, request)
	}
	if body, err = io.ReadAll(r.Body); err != nil {
		t.Fatal(err)
	}
	if n := rest.Buffered(); n != 0 {
		t.Fatalf("%d bytes too many in %q", n, request)
	}
	return r, body
}

func registration(t *testing.T, request []byte, app string) *registry.Instance {
	t.Helper()
	r, body := parse(t, request)
	if r.Method != http.MethodPost || r.URL.Path != "/eureka/apps/"+app {
		t.Errorf("%s %s, want POST to /eureka/apps/%s", r.Method, r.URL, app)
	}
	i := need.Got(eureka.DecodeRegistration(body, eureka.Format{}, app))(t)
	return i
}

func TestAFleetsRequestsAreWhatClientsSend(t *testing.T) {
	f := benchFleet{name: "svc", size: 300}
	i := registration(t, f.registration(250), f.app(250))
	if i.ID() != f.id(250) || i.LastDirty != benchDirty || i.RenewalInterval != 30 || i.Duration < 3600 || i.Status != registry.Up {
		t.Errorf("the server reads %+v", i)
	}
	r, body := parse(t, f.renewal(250))
	if r.Method != http.MethodPut || r.URL.Path != "/eureka/apps/"+f.app(250)+"/"+f.id(250) || len(body) != 0 ||
		r.URL.Query().Get("status") != "UP" || r.URL.Query().Get("lastDirtyTimestamp") != "1767225599000" {
		t.Errorf("renewal %s %s with %q", r.Method, r.URL, body)
	}
}

func TestAFleetIsSharedAmongConnections(t *testing.T) {
	f := benchFleet{name: "svc", size: 10}
	registered, renewed := map[string]int{}, map[string]int{}
	renewals := f.renewals()
	for conn := range 4 {
		for next := f.registrations(conn, 4); ; {
			request := next()
			if request == nil {
				break
			}
			registered[string(request)]++
		}
		next := renewals(conn, 4)
		for range 5 { // 20 of the 4 connections: each instance twice
			renewed[string(next())]++
		}
	}
	for i := range f.size {
		if n := registered[string(f.registration(i))]; n != 1 {
			t.Errorf("instance %d is registered %d times, want once", i, n)
		}
		if n := renewed[string(f.renewal(i))]; n != 2 {
			t.Errorf("instance %d is renewed %d times, want twice", i, n)
		}
	}
}

func TestEveryChangeIsNewer(t *testing.T) {
	f := benchFleet{name: "svc", size: 3}
	next := f.changes()(1, 2) // only instance 1
	last := int64(benchDirty)
	for range 5 {
		i := registration(t, next(), f.app(1))
		if i.ID() != f.id(1) || i.LastDirty <= last {
			t.Errorf("%s with lastDirtyTimestamp %d after %d", i.ID(), i.LastDirty, last)
		}
		last = i.LastDirty
	}
}

func TestFetchesAskForCompressedJSON(t *testing.T) {
	r, _ := parse(t, fetch(fullStale)(0, 1)())
	if r.URL.String() != fullStale || r.Header.Get("Accept") != "application/json" || r.Header.Get("Accept-Encoding") != "gzip" {
		t.Errorf("%s with %v", r.URL, r.Header)
	}
}

// The size is what the floors of documents and heap are about.
func TestAnInstanceOfAFleetHasAbout1100BytesInDocuments(t *testing.T) {
	f := benchFleet{name: "renewed", size: 100_000}
	for _, i := range []int{0, 99_999} {
		instance := registration(t, f.registration(i), f.app(i))
		lease := &registry.Lease{Instance: instance, Interval: instance.RenewalInterval, Duration: instance.Duration, RegisteredAt: benchDirty, ServiceUpAt: benchDirty, UpdatedAt: benchDirty}
		text := eureka.AppendInstance(nil, eureka.Format{}, lease, registry.Stamp{Wall: benchDirty})
		if len(text) < 1050 || len(text) > 1200 {
			t.Errorf("instance %d has %d bytes: %s", i, len(text), text)
		}
	}
}
