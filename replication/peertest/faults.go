// Package peertest has peers for tests of links: a fake Eureka server, written from the description of the protocol,
// and the faults that a server may have. It shares no code with the links.
package peertest

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// RespondWith responds instead of a server.
func RespondWith(status int, body string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		w.Write([]byte(body))
		return true
	}
}

// OnlyBatches limits a fault to batches.
func OnlyBatches(fail func(http.ResponseWriter, *http.Request) bool) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		return strings.Contains(r.URL.Path, "/batch") && fail(w, r)
	}
}

// Hang never responds.
func Hang(_ http.ResponseWriter, r *http.Request) bool {
	<-r.Context().Done()
	return true
}

// CutOff responds with half of what it announces.
func CutOff(w http.ResponseWriter, _ *http.Request) bool {
	w.Header().Set("Content-Length", "1000")
	w.Write([]byte(`{"responseList":[{"statusCode":200`))
	http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// Drop closes the connection.
func Drop(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }

// Eventually waits until something holds.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()

	deadline := time.Now().Add(20 * time.Second)
	for !holds() {
		need.That(t, !time.Now().After(deadline), "not within 20 s: %s", what)
		time.Sleep(5 * time.Millisecond)
	}
}

// Instance returns an instance with what every client must say.
func Instance(app, id string, dirty int64) *registry.Instance {
	return &registry.Instance{
		InstanceID: id, HostName: "host-" + id, App: app, IPAddr: "10.0.0.1", Status: registry.Up,
		Port: registry.Port{Number: 8080, Enabled: true}, DataCenter: registry.DataCenter{Name: registry.MyOwn},
		CountryID: 1, VIP: "orders", LastDirty: dirty,
	}
}

// Run runs what a link does beside tasks, until the returned function is called.
func Run(t testing.TB, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		err := <-ended
		expect.That(t, err == nil, "run ended with %v, want nil", err)
	}
}

// Web returns a service registered through Consul's API, with a check.
func Web(id string) registry.RegisterCatalog {
	return registry.RegisterCatalog{
		Service:  &catalog.Service{Name: "web", ID: id},
		Instance: Instance("WEB", id, 0),
		Checks:   []*catalog.Check{{ID: "check-" + id, Service: id}},
	}
}
