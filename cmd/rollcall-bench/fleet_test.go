package main

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

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

func TestFleetFetchesAskForCompressedJSON(t *testing.T) {
	r, _ := parse(t, fetchesOf(fullStale)(0, 1)())
	expect.That(t, r.URL.String() == fullStale && r.Header.Get("Accept") == "application/json" && r.Header.Get("Accept-Encoding") == "gzip",
		"%s with %v", r.URL, r.Header)
}
