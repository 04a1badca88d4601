package httpd

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
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

// sample is an instance of about 1.1 KB in JSON.
func sample(app, id string, dirty int64) *registry.Instance {
	return &registry.Instance{
		InstanceID: id, HostName: id + ".example.internal", App: app, IPAddr: "10.1.2.3", Status: registry.Up, CountryID: 1,
		Port: registry.Port{Number: 8080, Enabled: true}, SecurePort: registry.Port{Number: 443},
		DataCenter: registry.DataCenter{Name: registry.MyOwn}, RenewalInterval: 30, Duration: 90, LastDirty: dirty,
		Metadata: []registry.Pair{
			{Key: "zone", Value: "zone-a"}, {Key: "management.port", Value: "8081"},
			{Key: "version", Value: "1.10"}, {Key: "commit", Value: strings.Repeat("0123456789", 4)},
		},
		HomePageURL:   "http://" + id + ".example.internal:8080/",
		StatusPageURL: "http://" + id + ".example.internal:8080/actuator/info", HealthCheckURL: "http://" + id + ".example.internal:8080/actuator/health",
		VIP: strings.ToLower(app), SecureVIP: strings.ToLower(app),
	}
}

// filled has n instances in applications of 100.
func filled(t testing.TB, n int) *registrytest.Memory {
	b := registrytest.New()
	for i := range n {
		b.Perform(t, registry.Register{Instance: sample(fmt.Sprintf("APP%04d", i/100), fmt.Sprintf("instance-%06d", i), 1)})
	}
	return b
}

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

// readEmptyOK reads a response of 200 without a body, at little cost of its own.
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
