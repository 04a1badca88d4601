package client

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/hudl/fargo"
	"github.com/op/go-logging"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// benchmarked is a client of a server whose handler is given, over a real connection.
func benchmarked(b *testing.B, handle http.HandlerFunc) *Client {
	b.Helper()
	server := httptest.NewServer(handle)
	b.Cleanup(server.Close)
	return need.Got(New(Config{Servers: []string{server.URL}}))(b)
}

// BenchmarkBareRequest is the baseline of BenchmarkRenew: net/http alone.
func BenchmarkBareRequest(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	b.ReportAllocs()
	for b.Loop() {
		req := need.Got(http.NewRequest(http.MethodPut, server.URL+"/eureka/apps/ORDERS/orders-1?lastDirtyTimestamp=1", nil))(b)
		need.Got(server.Client().Do(req))(b).Body.Close()
	}
}

func BenchmarkRenew(b *testing.B) {
	c := benchmarked(b, func(http.ResponseWriter, *http.Request) {})
	b.ReportAllocs()
	for b.Loop() {
		need.OK(b, c.Renew(b.Context(), registry.NewKey("orders", "orders-1"), 1))
	}
}

// BenchmarkRenewByFargo is BenchmarkRenew by the client that Go programs use for Eureka.
func BenchmarkRenewByFargo(b *testing.B) {
	conn := benchmarkedFargo(b, func(http.ResponseWriter, *http.Request) {})
	own := fargo.Instance{App: "ORDERS", InstanceId: "orders-1", HostName: "h", DataCenterInfo: fargo.DataCenterInfo{Name: fargo.MyOwn}}
	b.ReportAllocs()
	for b.Loop() {
		need.OK(b, conn.HeartBeatInstance(&own))
	}
}

// benchmarkedFargo is fargo, with JSON, as a client of such a server as benchmarked has.
func benchmarkedFargo(b *testing.B, handle http.HandlerFunc) *fargo.EurekaConnection {
	b.Helper()
	logging.SetLevel(logging.CRITICAL, "fargo")
	server := httptest.NewServer(handle)
	b.Cleanup(func() {
		fargo.HttpClient.CloseIdleConnections()
		server.Close()
	})
	conn := fargo.NewConn(server.URL + "/eureka")
	conn.UseJson = true
	return &conn
}

// benchmarkedDocument is the applications document of 1,000 instances.
func benchmarkedDocument() []byte {
	i := &registry.Instance{InstanceID: "orders-1", HostName: "h", App: "ORDERS", IPAddr: "10.0.0.1", Status: registry.Up, DataCenter: registry.DataCenter{Name: registry.MyOwn}}
	return eureka.AppendApplications(nil, eureka.Format{}, eureka.FullVersion, "UP_1000_", func(yield func(*registry.Lease) bool) {
		for range 1000 {
			if !yield(&registry.Lease{Instance: i}) {
				return
			}
		}
	})
}

func BenchmarkApps(b *testing.B) {
	document := benchmarkedDocument()
	c := benchmarked(b, func(w http.ResponseWriter, _ *http.Request) { w.Write(document) })
	b.ReportAllocs()
	for b.Loop() {
		need.Got(c.Apps(b.Context()))(b)
	}
}

// BenchmarkAppsByFargo is BenchmarkApps by fargo.
func BenchmarkAppsByFargo(b *testing.B) {
	document := benchmarkedDocument()
	conn := benchmarkedFargo(b, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write(document)
	})
	b.ReportAllocs()
	for b.Loop() {
		if apps, err := conn.GetApps(); err != nil || len(apps["ORDERS"].Instances) != 1000 {
			b.Fatal(err, apps)
		}
	}
}
