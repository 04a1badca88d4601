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

	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// parse reads a preformatted request as a server does.
func parse(t *testing.T, request []byte) (r *http.Request, body []byte) {
	t.Helper()
	rest := bufio.NewReader(bytes.NewReader(request))
	r, err := http.ReadRequest(rest)
	need.That(t, err == nil, "%v in %q", err, request)
	body, err = io.ReadAll(r.Body)
	need.OK(t, err)
	n := rest.Buffered()
	need.That(t, n == 0, "%d bytes too many in %q", n, request)
	return r, body
}

func registration(t *testing.T, request []byte, app string) *registry.Instance {
	t.Helper()
	r, body := parse(t, request)
	expect.That(t, r.Method == http.MethodPost && r.URL.Path == "/eureka/apps/"+app, "%s %s, want POST to /eureka/v2/apps/%s", r.Method, r.URL, app)
	i := need.Got(eureka.DecodeRegistration(body, eureka.Format{}, app))(t)
	return i
}

func TestFleetRequestsAreWhatClientsSend(t *testing.T) {
	f := benchFleet{name: "svc", size: 300}
	i := registration(t, f.registration(250), f.app(250))
	expect.That(t, i.ID() == f.id(250) && i.LastDirty == load.DirtyBase && i.RenewalInterval == 30 && i.Duration >= 3600 && i.Status == registry.Up,
		"the server reads %+v", i)
	r, body := parse(t, f.renewal(250))
	if r.Method != http.MethodPut || r.URL.Path != "/eureka/apps/"+f.app(250)+"/"+f.id(250) || len(body) != 0 ||
		r.URL.Query().Get("status") != "UP" || r.URL.Query().Get("lastDirtyTimestamp") != "1767225599000" {
		t.Errorf("renewal %s %s with %q", r.Method, r.URL, body)
	}
}

func TestFleetIsSharedAmongConnections(t *testing.T) {
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
		n := registered[string(f.registration(i))]
		expect.That(t, n == 1, "instance %d is registered %d times, want once", i, n)
		expect.Equal(t, renewed[string(f.renewal(i))], 2, "renewals of instance %d:", i)
	}
}

func TestFleetChangesAreEachNewer(t *testing.T) {
	f := benchFleet{name: "svc", size: 3}
	next := f.changes()(1, 2) // only instance 1
	last := int64(load.DirtyBase)
	for range 5 {
		i := registration(t, next(), f.app(1))
		expect.That(t, i.ID() == f.id(1) && i.LastDirty > last, "%s with lastDirtyTimestamp %d after %d", i.ID(), i.LastDirty, last)
		last = i.LastDirty
	}
}

func TestFleetFetchesAskForCompressedJSON(t *testing.T) {
	r, _ := parse(t, fetchesOf(fullStale)(0, 1)())
	expect.That(t, r.URL.String() == fullStale && r.Header.Get("Accept") == "application/json" && r.Header.Get("Accept-Encoding") == "gzip",
		"%s with %v", r.URL, r.Header)
}

// The size is what the floors of documents and heap are about.
func TestFleetInstanceHasAbout1100BytesInDocuments(t *testing.T) {
	f := benchFleet{name: "renewed", size: 100_000}
	for _, i := range []int{0, 99_999} {
		instance := registration(t, f.registration(i), f.app(i))
		lease := &registry.Lease{Instance: instance, Interval: instance.RenewalInterval, Duration: instance.Duration, RegisteredAt: load.DirtyBase, ServiceUpAt: load.DirtyBase, UpdatedAt: load.DirtyBase}
		text := eureka.AppendInstance(nil, eureka.Format{}, lease, registry.Stamp{Wall: load.DirtyBase})
		expect.That(t, len(text) >= 1050 && len(text) <= 1200, "instance %d has %d bytes: %s", i, len(text), text)
	}
}

func TestExchangeUntilServedIsRepeatedAfterARefusalUntilItsContextEnds(t *testing.T) {
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) != 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	exchange := func(ctx context.Context) error {
		return withConn(s.Listener.Addr().String(), time.Now().Add(time.Minute), func(c *wire.Conn) error {
			_, err := exchangeUntilServed(ctx, c, fetchesOf("/")(0, 1)(), http.StatusOK)
			return err
		})
	}
	if err := exchange(t.Context()); err != nil || asked.Load() != 2 {
		t.Errorf("%v, after %d requests, want a right answer to the second", err, asked.Load())
	}
	if err := exchange(ctx); err == nil || !strings.Contains(err.Error(), "status 503 instead of 200") {
		t.Errorf("got %v, want the refusal", err)
	}
}
