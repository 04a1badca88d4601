package httpd_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestSitesRefuseWritesForPagesOfOtherSites(t *testing.T) {
	n := newNode(t, httpd.Config{}, nil)
	for _, row := range []struct {
		name    string
		headers []string
		status  int
	}{
		{name: "a client that is no browser", status: 204},
		{name: "a page of another site", headers: []string{"Sec-Fetch-Site: cross-site", "Origin: http://evil.example"}, status: 403},
		{name: "a page of another port of this host", headers: []string{"Sec-Fetch-Site: same-site"}, status: 403},
		{name: "a page of another site in an old browser", headers: []string{"Origin: http://evil.example"}, status: 403},
		{name: "a page without an origin", headers: []string{"Origin: null"}, status: 403},
		{name: "the node's own page", headers: []string{"Sec-Fetch-Site: same-origin", "Origin: http://node"}, status: 204},
		{name: "the node's own page in an old browser", headers: []string{"Origin: http://node"}, status: 204},
		{name: "a user who typed it", headers: []string{"Sec-Fetch-Site: none"}, status: 204},
	} {
		t.Run(row.name, func(t *testing.T) {
			// Like this no browser asks first whether it may.
			headers := append([]string{"Content-Type: text/plain"}, row.headers...)
			got := n.send(t, request("POST", "/eureka/apps/ORDERS", instanceJSON, headers...))
			expect.That(t, got.status == row.status && (row.status != 403 || strings.Contains(got.body, "another site")), "registration: got %d %q, want %d", got.status, got.body, row.status)
			expect.Equal(t, n.send(t, request("GET", "/eureka/apps", "", row.headers...)).status, 200, "read: got")
			// What old clients of Consul's write by GET, a picture in a page of another site would, too.
			got = n.send(t, request("GET", "/v1/agent/check/fail/web", "", row.headers...))
			expect.That(t, strings.Contains(got.body, "another site") == (row.status == 403), "GET that writes: got %d %q", got.status, got.body)
		})
	}
}

func TestSitesServeANodeOnLoopbackUnderItsOwnNamesOnly(t *testing.T) {
	n := newNode(t, httpd.Config{Hosts: []string{"registry.example:8761", "Other"}}, nil)
	anywhere := newNode(t, httpd.Config{}, nil)
	for host, want := range map[string]int{
		"localhost": 200, "localhost:8761": 200, "LOCALHOST.": 200, "127.0.0.1:8761": 200, "127.9.9.9": 200, "[::1]:8761": 200,
		"10.0.0.1": 200, "registry.example": 200, "registry.example:80": 200, "other": 200,
		"evil.example": 421, "localhost.evil.example:8761": 421, "127.0.0.1.evil.example": 421, "registry.example.evil": 421,
	} {
		get := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n" }
		got := n.send(t, get("/eureka/apps"))
		expect.That(t, got.status == want && (want != 421 || strings.Contains(got.body, "http.hosts")), "as %s: got %d %q, want %d", host, got.status, got.body, want)
		expect.Equal(t, anywhere.send(t, get("/eureka/apps")).status, 200, "as %s of a node that does not know its names: got", host)
		expect.Equal(t, n.send(t, get("/healthz")).status, 200, "/healthz as %s: got", host)
	}
}

func TestSitesHoldOnHeartbeatConnections(t *testing.T) {
	n := newNode(t, httpd.Config{Hosts: []string{"node"}}, nil)
	for attack, want := range map[string]int{
		strings.Replace(plainHeartbeat, "Host: node", "Host: evil.example", 1):                               421,
		strings.Replace(plainHeartbeat, "Accept: */*", "Origin: http://evil.example", 1):                     403,
		strings.Replace(plainHeartbeat, "Accept: */*", "Accept: */*\r\nSec-Fetch-Site: cross-site", 1):       403,
		strings.Replace(plainHeartbeat, "Accept: */*", "Sec-Fetch-Site: same-origin\r\nAccept: text/xml", 1): 200,
	} {
		expect.Equal(t, n.takenOver(t).roundTrip(t, attack).status, want, "%q: got", attack)
	}
}

func TestHeartbeatConnectionSkipsFieldsThatMeanNothing(t *testing.T) {
	n := newNode(t, httpd.Config{}, nil)
	l := n.takenOver(t)
	for _, field := range []string{
		"Authorization: Basic dTpw", "X-Forwarded-For: 10.0.0.1, 10.0.0.2", "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"Cookie: a=b; c=d", "Keep-Alive: timeout=5", "X_Odd: " + strings.Repeat("x", 1000), "Via:1.1 proxy", "Empty:",
	} {
		got := l.roundTrip(t, strings.Replace(plainHeartbeat, "Accept: */*", field, 1))
		expect.That(t, got.status == 200 && n.handler.TookOver(l.LocalAddr().String()), "%s: got %d, taken over: %v", field, got.status, n.handler.TookOver(l.LocalAddr().String()))
	}
}

// A connection that went back and forth cost five times as much as one that stayed with net/http.
func TestHeartbeatConnectionThatWasGivenBackIsNotTakenOverAgain(t *testing.T) {
	n := newNode(t, httpd.Config{}, nil)
	l := n.takenOver(t)
	odd := strings.Replace(plainHeartbeat, "Accept: */*", "Te: trailers", 1)
	for i := range 6 {
		got := l.roundTrip(t, odd)
		need.That(t, got.status == 200 && !n.handler.TookOver(l.LocalAddr().String()), "odd heartbeat %d: got %d, taken over: %v", i, got.status, n.handler.TookOver(l.LocalAddr().String()))
	}
	for i := range 6 {
		got := l.roundTrip(t, plainHeartbeat)
		need.That(t, got.status == 200 && !n.handler.TookOver(l.LocalAddr().String()), "heartbeat %d after them: got %d, taken over: %v", i, got.status, n.handler.TookOver(l.LocalAddr().String()))
	}
}

func TestHeartbeatConnectionOfManyHeartbeatsIsTakenOverAgain(t *testing.T) {
	n := newNode(t, httpd.Config{}, nil)
	l := n.takenOver(t)
	for range 3 {
		for range 100 {
			l.roundTrip(t, plainHeartbeat)
		}
		l.roundTrip(t, request("GET", "/eureka/apps/ORDERS/i1", ""))
		for range 3 {
			l.roundTrip(t, plainHeartbeat)
		}
		expect.That(t, n.handler.TookOver(l.LocalAddr().String()), "not taken over again after a hundred heartbeats and one read")
	}
	layers := n.handler.Layers(l.LocalAddr().String())
	expect.That(t, layers == 1, "the connection lies in %d layers, want that of the last time", layers)
}

// readHeader is how this package reads a header field.
var readHeader = regexp.MustCompile(`r\.Header(?:\.Get\(|\.Values\(|\[)"([^"]+)"`)

// A field that a handler begins to read must not be skipped where heartbeats are read by hand.
func TestHeartbeatConnectionLeavesEveryFieldThatHandlersReadToNetHTTP(t *testing.T) {
	elsewhere := map[string]string{
		"Accept": "of answers with a body", "Accept-Encoding": "of answers with a body", "X-Eureka-Accept": "of answers with a body",
		"Content-Type": "of bodies", "Idempotency-Key": "of sessions, keys and locks", "Last-Event-ID": "of watches",
		"DiscoveryIdentity-Id": "of replicators, which say so by another field",
		"Authorization":        "read by hand, too", "X-Consul-Token": "read by hand, too",
	}
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source := need.Got(os.ReadFile(file))(t)
		for _, found := range readHeader.FindAllSubmatch(source, -1) {
			name := string(found[1])
			beat := fmt.Sprintf("PUT /eureka/apps/A/b HTTP/1.1\r\nHost: a\r\n%s: x\r\n\r\n", name)
			_, _, skipped := httpd.ParseBeat([]byte(beat), []string{"/eureka/apps/"})
			expect.That(t, !skipped || elsewhere[http.CanonicalHeaderKey(name)] != "" || elsewhere[name] != "", "%s reads %s, which heartbeats on taken-over connections ignore: add it to meaningful", file, name)
		}
	}
}
