package httpd

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
)

// discard is a ResponseWriter that keeps nothing, so that a benchmark measures the handler alone.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

// BenchmarkCachedFullFetch is a full fetch of 10,000 instances that are ready, compressed.
func BenchmarkCachedFullFetch(b *testing.B) {
	h, err := New(Config{Service: filled(b, 10_000)})
	if err != nil {
		b.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/eureka/apps/?consistency=stale", nil)
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Accept-Encoding", "gzip")
	for b.Loop() {
		h.ServeHTTP(&discard{header: http.Header{}}, r)
	}
}

// done is a service that renews everything at once.
type done struct{ *registrytest.Memory }

var doneResults = []registry.Result{{Outcome: registry.Done}}

// Apply implements registry.Service.
func (*done) Apply(context.Context, registry.Origin, ...registry.Op) ([]registry.Result, error) {
	return doneResults, nil
}

// BenchmarkRenew is what this package adds to a heartbeat.
func BenchmarkRenew(b *testing.B) {
	for name, path := range map[string]string{
		"direct": "/eureka/apps/ORDERS/host-1.example.internal:orders:8080?status=UP&lastDirtyTimestamp=1767225599500",
		"routed": "/eureka/apps/ORDERS/host-1.example.internal:orders:8080/?status=UP&lastDirtyTimestamp=1767225599500",
	} {
		b.Run(name, func(b *testing.B) {
			h, err := New(Config{Service: &done{registrytest.New()}})
			if err != nil {
				b.Fatal(err)
			}
			r := httptest.NewRequest(http.MethodPut, path, nil)
			w := &discard{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
		})
	}
}

// BenchmarkHeapPerInstance reports the live heap per instance with JSON and XML served, plain and
// compressed. Goal: 4 KB.
func BenchmarkHeapPerInstance(b *testing.B) {
	const n = 20_000
	for b.Loop() {
		before := liveHeap()
		s := filled(b, n)
		registered := liveHeap()
		d := newTestDocuments(s)
		for _, rep := range []representation{{}, {gzip: true}} {
			d.full(s.Newest(), rep)
			rep.format.XML = true
			d.full(s.Newest(), rep)
		}
		served := liveHeap()
		b.ReportMetric(float64(registered-before)/n, "B/instance-registered")
		b.ReportMetric(float64(served-before)/n, "B/instance-served")
		runtime.KeepAlive(s)
		runtime.KeepAlive(d)
	}
}

func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// heartbeat is what a Java client sends.
const heartbeat = "PUT /eureka/v2/apps/ORDERS/host-1.example.internal:orders:8080?status=UP&lastDirtyTimestamp=1767225599500 HTTP/1.1\r\n" +
	"DiscoveryIdentity-Name: DefaultClient\r\nDiscoveryIdentity-Version: 1.4\r\nDiscoveryIdentity-Id: 10.0.0.1\r\nAccept-Encoding: gzip\r\n" +
	"Content-Length: 0\r\nHost: 127.0.0.1:8761\r\nConnection: Keep-Alive\r\nUser-Agent: Java-EurekaClient/v1.10.17\r\n\r\n"

// BenchmarkHeartbeats is heartbeats over 256 connections, against a handler of net/http that does
// nothing. The registry behind answers at once. Goal: three quarters of the bare handler's, with a
// registry that is one.
func BenchmarkHeartbeats(b *testing.B) {
	b.Run("bare", func(b *testing.B) {
		server := NewServer("", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), nil)
		benchmarkConns(b, server, server.Serve)
	})
	b.Run("routes", func(b *testing.B) {
		h := newBenched(b)
		server := NewServer("", h, nil)
		benchmarkConns(b, server, server.Serve)
	})
	b.Run("taken over", func(b *testing.B) {
		h := newBenched(b)
		server := NewServer("", h, nil)
		benchmarkConns(b, server, func(l net.Listener) error {
			defer h.Close()
			return h.Serve(server, l)
		})
	})
}

func newBenched(b *testing.B) *Handler {
	b.Helper()
	h, err := New(Config{Service: &done{registrytest.New()}})
	if err != nil {
		b.Fatal(err)
	}
	return h
}

// benchmarkConns sends heartbeats over 256 connections at once.
func benchmarkConns(b *testing.B, server *http.Server, serve func(net.Listener) error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- serve(l) }()
	const conns = 256
	work := make(chan int, conns)
	var clients sync.WaitGroup
	for range conns {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		clients.Go(func() { sendHeartbeats(b, conn, work) })
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range conns {
		work <- b.N/conns + (conns-1-i+b.N%conns)/conns
	}
	clients.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "heartbeats/s")
	server.Close()
	<-served
}

// sendHeartbeats sends as many heartbeats as it is told to, one at a time.
func sendHeartbeats(b *testing.B, conn net.Conn, work <-chan int) {
	defer conn.Close()
	in, request := bufio.NewReader(conn), []byte(heartbeat)
	for range <-work {
		if _, err := conn.Write(request); err != nil {
			b.Error(err)
			return
		}
		if err := readEmptyOK(in); err != nil {
			b.Error(err)
			return
		}
	}
}

// readEmptyOK reads an answer of 200 without a body, at little cost of its own.
func readEmptyOK(in *bufio.Reader) error {
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if first && !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")) {
			return io.ErrUnexpectedEOF
		}
		if len(line) == 2 {
			return nil
		}
	}
}
