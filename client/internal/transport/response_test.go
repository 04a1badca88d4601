package transport

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// Answers of stock servers to paths that they do not know, and to methods.
const (
	springAnswer   = `{"timestamp":"2026-01-02T03:04:05.678+00:00","status":404,"error":"Not Found","path":"/v1/rollcall/status"}`
	springRefusal  = `{"timestamp":"2026-01-02T03:04:05.678+00:00","status":405,"error":"Method Not Allowed","path":"/v1/rollcall/sessions"}`
	springProblem  = `{"type":"about:blank","title":"Not Found","status":404,"detail":"No static resource v1/rollcall/status.","instance":"/v1/rollcall/status"}`
	netflixAnswer  = `<!doctype html><html lang="en"><head><title>HTTP Status 404 – Not Found</title></head><body></body></html>`
	rollcallAnswer = `{"error":"no such session"}`
)

func TestResponseOfAServerThatIsNotRollcallIsRecognized(t *testing.T) {
	status, keys := Own(http.MethodGet, "status"), Consul(http.MethodGet, "kv", "a")
	eureka := &Call{method: http.MethodGet, eureka: true, path: []string{"apps", "A"}}
	for _, tc := range []struct {
		name   string
		call   *Call
		status int
		body   string
		header []string
		want   bool // it is not
	}{
		{name: "Spring", call: status, status: 404, body: springAnswer, want: true},
		{name: "Spring with problem details", call: status, status: 404, body: springProblem, want: true},
		{name: "Spring, by method", call: status, status: 405, body: springRefusal, want: true},
		{name: "Netflix", call: status, status: 404, body: netflixAnswer, want: true},
		{name: "Netflix asked for a key", call: keys, status: 404, body: netflixAnswer, want: true},
		{name: "nothing at all", call: status, status: 404, want: true},
		{name: "nothing at all for a key", call: keys, status: 404, want: true},
		{name: "JSON of others", call: status, status: 404, body: `{"error":{"code":404}}`, want: true},
		{name: "no object", call: status, status: 404, body: `"error"`, want: true},
		{name: "Rollcall lacks it", call: status, status: 404, body: rollcallAnswer},
		{name: "Rollcall, by method", call: status, status: 405, body: `{"error":"Method Not Allowed"}`},
		{name: "Rollcall has no such key", call: keys, status: 404, header: []string{"X-Consul-Index", "7"}},
		{name: "Eureka's own resources", call: eureka, status: 404, body: springAnswer},
		{name: "a server that refuses every client", call: status, status: 403, body: springAnswer},
		{name: "a server that works", call: status, status: 200, body: `{}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, err := clusterOf(t, fake.Servers{"a": fake.Always(tc.status, tc.body, tc.header...)}, "a").do(t.Context(), tc.call)
			if got := errors.Is(err, ErrNeedsRollcall); got != tc.want || !tc.want && (err != nil || a.Status != tc.status) {
				t.Errorf("got status %d and %v, want that it is not Rollcall: %v", a.Status, err, tc.want)
			}
		})
	}
}

func TestCallPassesOverAStockServerThatKeepsItsListsBack(t *testing.T) {
	for _, tc := range []struct {
		name  string
		path  []string
		wants int
	}{
		{name: "all", path: []string{"apps"}, wants: 200},
		{name: "the changes, where 403 says to fetch all", path: []string{"apps", "delta"}, wants: 403},
	} {
		c := clusterOf(t, fake.Servers{"a": fake.Always(403, ""), "b": fake.Always(200, "{}")}, "a", "b")
		a, err := c.do(t.Context(), Eureka(http.MethodGet, tc.path...))
		expect.That(t, err == nil && a.Status == tc.wants, "%s: %d, %v, want %d", tc.name, a.Status, err, tc.wants)
	}
	for wants, header := range map[int][]string{403: {"WWW-Authenticate", `Bearer realm="rollcall", error="insufficient_scope"`}, 200: nil} {
		c := clusterOf(t, fake.Servers{"a": fake.Always(403, "", header...), "b": fake.Always(200, "{}")}, "a", "b")
		a, err := c.do(t.Context(), Eureka(http.MethodGet, "apps"))
		expect.That(t, err == nil && a.Status == wants, "denied with %q: %d, %v, want %d", header, a.Status, err, wants)
	}
	var status *Refusal
	if _, err := clusterOf(t, fake.Servers{"a": fake.Always(403, "")}, "a").fetch(t.Context(), "apps"); !errors.As(err, &status) || status.Status != 403 {
		t.Errorf("from no server: %v, want the refusal", err)
	}
}

func TestResponseThatIsTooLongIsNotRead(t *testing.T) {
	for length, want := range map[int]bool{9: true, 10: true, 11: false} {
		got, err := readBounded(strings.NewReader(strings.Repeat("x", length)), 10)
		expect.That(t, (err == nil) == want && (!want || len(got) == length),
			"of %d bytes where 10 are allowed: %d bytes, %v", length, len(got), err)
		if err != nil && !errors.As(err, new(conclusive)) {
			t.Errorf("%v does not end the call, although other servers would send as much", err)
		}
	}
}
