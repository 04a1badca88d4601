package client

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// benchmarked is a client of a server that answers what it is told to, over a real connection.
func benchmarked(b *testing.B, handle http.HandlerFunc) *Client {
	b.Helper()
	server := httptest.NewServer(handle)
	b.Cleanup(server.Close)
	c, err := New(Config{Servers: []string{server.URL}})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// BenchmarkBareRequest is the baseline of BenchmarkRenew: net/http alone.
func BenchmarkBareRequest(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	b.ReportAllocs()
	for b.Loop() {
		req, err := http.NewRequest(http.MethodPut, server.URL+"/eureka/apps/ORDERS/orders-1?lastDirtyTimestamp=1", nil)
		if err != nil {
			b.Fatal(err)
		}
		resp, err := server.Client().Do(req)
		if err != nil {
			b.Fatal(err)
		}
		resp.Body.Close()
	}
}

func BenchmarkRenew(b *testing.B) {
	c := benchmarked(b, func(http.ResponseWriter, *http.Request) {})
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Renew(b.Context(), registry.NewKey("orders", "orders-1"), 1); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkApps(b *testing.B) {
	i := &registry.Instance{InstanceID: "orders-1", HostName: "h", App: "ORDERS", IPAddr: "10.0.0.1", Status: registry.Up, DataCenter: registry.DataCenter{Name: registry.MyOwn}}
	document := eureka.AppendApplications(nil, eureka.Format{}, eureka.FullVersion, "UP_1000_", func(yield func(*registry.Lease) bool) {
		for range 1000 {
			if !yield(&registry.Lease{Instance: i}) {
				return
			}
		}
	})
	c := benchmarked(b, func(w http.ResponseWriter, _ *http.Request) { w.Write(document) })
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Apps(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
