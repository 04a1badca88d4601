package httpd

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
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
