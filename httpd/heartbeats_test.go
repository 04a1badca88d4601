package httpd_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/httpdtest"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// takenOver returns a connection after enough heartbeats for the handler to take it over.
func takenOver(t testing.TB, n *httpdtest.Node) httpdtest.Line {
	t.Helper()
	return takenOverBy(t, n, httpdtest.PlainHeartbeat)
}

// takenOverBy is like takenOver, with a given heartbeat of ORDERS/i1.
func takenOverBy(t testing.TB, n *httpdtest.Node, heartbeat string) httpdtest.Line {
	t.Helper()
	n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
	l := n.Line(t)
	for range 3 {
		need.Equal(t, l.RoundTrip(t, heartbeat).Status, 200, "heartbeat: got")
	}
	need.That(t, n.Handler.TookOver(l.LocalAddr().String()), "the connection was not taken over after three heartbeats")
	return l
}

// renewalTime matches the difference between two responses about one instance: it is shown live.
var renewalTime = regexp.MustCompile(`<lastRenewalTimestamp>\d+<`)

func TestHeartbeatConnectionRespondsAsAnyOther(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	requests := map[string]string{
		"a heartbeat":                      httpdtest.PlainHeartbeat,
		"without a query":                  httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1", ""),
		"of an unknown instance":           httpdtest.Request("PUT", "/eureka/v2/apps/ORDERS/nobody", ""),
		"of a newer instance":              httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1?lastDirtyTimestamp=2000", ""),
		"of an older instance":             httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1?lastDirtyTimestamp=1", ""),
		"with a timestamp that is none":    httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1?lastDirtyTimestamp=x", ""),
		"in lower case":                    httpdtest.Request("PUT", "/eureka/apps/orders/i1", ""),
		"with an empty body":               httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1", "", "Content-Length: 0"),
		"with the body of Jersey clients":  httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1", "{}", "Content-Type: application/json"),
		"with a chunked body":              "PUT /eureka/apps/ORDERS/i1 HTTP/1.1\r\nHost: node\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		"with an escaped id":               httpdtest.Request("PUT", "/eureka/apps/ORDERS/i%31", ""),
		"with doubled slashes":             httpdtest.Request("PUT", "/eureka//apps/ORDERS/i1", ""),
		"by a replicator, older":           httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1?lastDirtyTimestamp=1", "", "x-netflix-discovery-replication: true"),
		"with an unknown field":            httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1", "", "X-Whatever: 1"),
		"in bare lines":                    "PUT /eureka/apps/ORDERS/i1 HTTP/1.1\nHost: node\n\n",
		"in absolute form":                 httpdtest.Request("PUT", "http://elsewhere/eureka/apps/ORDERS/i1", ""),
		"as HTTP/1.0":                      "PUT /eureka/apps/ORDERS/i1 HTTP/1.0\r\nHost: node\r\n\r\n",
		"that ends the connection":         httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1", "", "Connection: close"),
		"expecting to be told to continue": httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1", "", "Expect: 100-continue", "Content-Length: 0"),
		"a read":                           httpdtest.Request("GET", "/eureka/apps/ORDERS", ""),
		"a status":                         httpdtest.Request("PUT", "/eureka/apps/ORDERS/i1/status?value=NOTHING", ""),
		"metadata":                         httpdtest.Request("PUT", "/eureka/apps/ORDERS/nobody/metadata?a=b", ""),
	}
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		t.Run(name, func(t *testing.T) {
			warm := takenOver(t, n)
			got := warm.RoundTrip(t, requests[name])
			want := n.Send(t, requests[name])
			for _, r := range []*httpdtest.Reply{&got, &want} {
				r.Header.Del("Date")
				r.Header.Del("X-Request-Id")
				r.Body = renewalTime.ReplaceAllString(r.Body, "")
			}
			expect.That(t, got.Status == want.Status && got.Body == want.Body && got.Closed == want.Closed && maps.EqualFunc(got.Header, want.Header, slices.Equal),
				"got  %+v\nwant %+v", got, want)
		})
	}
}

func TestHeartbeatConnectionRefusesMalformedRequests(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	for _, row := range badRequests {
		t.Run(row.name, func(t *testing.T) {
			takenOver(t, n).RoundTrip(t, row.request).Says(t, row.status, "", "it")
		})
	}
}

func TestHeartbeatConnectionServesAPipelineInOrder(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	l := takenOver(t, n)
	unknown := httpdtest.Request("PUT", "/eureka/apps/ORDERS/nobody", "")
	read := httpdtest.Request("GET", "/eureka/apps/ORDERS/i1", "")
	need.Got(io.WriteString(l, httpdtest.PlainHeartbeat+unknown+httpdtest.PlainHeartbeat+read+httpdtest.PlainHeartbeat))(t)
	for i, want := range []int{200, 404, 200, 200, 200} {
		method := "PUT"
		if i == 3 {
			method = "GET"
		}
		expect.Equal(t, l.Read(t, method+" ").Status, want, "answer %d: got", i)
	}
}

func TestHeartbeatConnectionServesAHeartbeatInPieces(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	for cut := 1; cut < len(httpdtest.PlainHeartbeat); cut += 17 {
		l := takenOver(t, n)
		need.Got(io.WriteString(l, httpdtest.PlainHeartbeat[:cut]))(t)
		// Given back to net/http, which waits for the rest with its own time limit.
		httpdtest.Eventually(t, "the connection is given back", func() bool { return !n.Handler.TookOver(l.LocalAddr().String()) })
		need.Equal(t, l.RoundTrip(t, httpdtest.PlainHeartbeat[cut:]).Status, 200, "cut at %d: got", cut)
		l.Close()
	}
}

func TestHeartbeatConnectionSaysTheOutcomeOfAFailedHeartbeat(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	l := takenOver(t, n)
	for _, row := range []struct {
		err    error
		status int
		header string
	}{
		{registry.ErrNoLeader, 503, "Retry-After"},
		{registry.ErrUnknownOutcome, 504, "X-Rollcall-Outcome"},
	} {
		n.Fail(row.err)
		got := l.RoundTrip(t, httpdtest.PlainHeartbeat)
		expect.That(t, got.Status == row.status && got.Header.Get(row.header) != "" && got.Body == "",
			"%v: got %+v, want %d with %s and no body", row.err, got, row.status, row.header)
	}
	n.Fail(nil)
	l.RoundTrip(t, httpdtest.PlainHeartbeat).Says(t, 200, "", "after the failures").With(t, "X-Rollcall-Outcome", "")
}

func TestHeartbeatConnectionsServeWhatIsUnderWayAtShutdown(t *testing.T) {
	slow := &httpdtest.SlowService{Memory: fsmtest.New(), Begun: make(chan struct{}), Release: make(chan struct{})}
	n := httpdtest.NewNode(t, httpd.Config{Service: slow}, nil)
	n.Memory = slow.Memory
	idle, busy := takenOver(t, n), takenOver(t, n)
	slow.Hold.Store(true)
	need.Got(io.WriteString(busy, httpdtest.PlainHeartbeat))(t)
	<-slow.Begun
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	err := n.Handler.Shutdown(ctx)
	expect.That(t, err != nil, "Shutdown returned while a heartbeat was under way")
	if _, err := idle.In.ReadByte(); err != io.EOF {
		t.Errorf("the idle connection: got %v, want its end", err)
	}
	close(slow.Release)
	expect.Equal(t, busy.Read(t, "PUT ").Status, 200, "the heartbeat under way: got")
	if _, err := busy.In.ReadByte(); err != io.EOF {
		t.Errorf("after its answer: got %v, want the connection's end", err)
	}
	expect.OK(t, n.Handler.Shutdown(context.Background()))
}

// FuzzHeartbeatIsReadAsByNetHTTP holds the reader of taken-over connections to net/http's:
// whatever it accepts, net/http must accept too, and understand alike.
func FuzzHeartbeatIsReadAsByNetHTTP(f *testing.F) {
	f.Add(httpdtest.PlainHeartbeat)
	f.Add(httpdtest.PlainHeartbeat + "GET / HTTP/1.1\r\n\r\n")
	f.Add(httpdtest.Request("PUT", "/v2/apps/A/b?x=%zz;&", "", "Connection: keep-alive", "Content-Length: 0"))
	f.Add("PUT /eureka/apps/A/b HTTP/1.1\r\nHost:a\r\nHost: b\r\n\r\n")
	f.Add("PUT /eureka/apps/A/b HTTP/1.1\r\nHost: a\r\n accept: b\r\n\r\n")
	f.Add("PUT /eureka/apps/A/b HTTP/1.1\r\nHost: a\r\nAuthorization: Basic dTpw\r\nX_Y-1:\r\nCookie : a\r\n\r\n")
	f.Add("PUT /eureka/apps/A/b HTTP/1.1\r\nHost: a\r\nauthorization:  Bearer x \r\nX-CONSUL-Token:y\r\n\r\n")
	f.Add("PUT /eureka/apps/A/b HTTP/1.1\r\nHost: a\r\nAccept: application/json\r\nACCEPT: x\r\n\r\n")
	f.Add("PUT /eureka/apps/A/b HTTP/1.1\r\nHost: a\r\nAuthorization: a\r\nAuthorization:\r\nX-Consul-Token:\r\n\r\n")
	f.Fuzz(func(t *testing.T, s string) {
		beat, size, ok := httpd.ParseBeat([]byte(s), []string{"/eureka/apps/", "/v2/apps/"})
		if !ok {
			return
		}
		target, app, id := beat.Name()
		in := bufio.NewReader(strings.NewReader(s))
		r, err := http.ReadRequest(in)
		need.That(t, err == nil, "%q was accepted, net/http says %v", s, err)
		rest, _ := io.ReadAll(in)
		path := fmt.Sprintf("%s/%s", app, id)
		expect.That(t, r.Method == "PUT" && r.RequestURI == target && strings.HasSuffix(r.URL.Path, "/apps/"+path) && r.ContentLength == 0 && !r.Close && len(r.TransferEncoding) == 0 && len(s)-len(rest) == size,
			"%q was read as %q of %d bytes, net/http reads %+v and leaves %d bytes", s, target, size, r, len(rest))
		authorization, token, accept := beat.Fields()
		for name, got := range map[string]string{"Authorization": authorization, "X-Consul-Token": token, "Accept": accept} {
			values := r.Header[name]
			expect.That(t, len(values) == 0 && got == "" || len(values) == 1 && got == values[0] && got != "", "%q: %s was read as %q, net/http reads %q", s, name, got, values)
		}
	})
}

func TestHeartbeatConnectionTakenOverAtShutdownRespondsFirst(t *testing.T) {
	slow := &httpdtest.SlowService{Memory: fsmtest.New(), Begun: make(chan struct{}), Release: make(chan struct{})}
	n := httpdtest.NewNode(t, httpd.Config{Service: slow}, nil)
	n.Memory = slow.Memory
	n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "i1")})
	l := n.Line(t)
	need.Equal(t, l.RoundTrip(t, httpdtest.PlainHeartbeat).Status, 200, "the first heartbeat: got")
	slow.Hold.Store(true)
	need.Got(io.WriteString(l, httpdtest.PlainHeartbeat))(t)
	<-slow.Begun
	need.OK(t, n.Handler.Shutdown(context.Background()))
	close(slow.Release)
	got := l.Read(t, "PUT ")
	expect.That(t, got.Status == 200 && got.Closed, "got %d, closed %v, want 200 and the connection's end", got.Status, got.Closed)
}

func TestSitesRefuseWritesForPagesOfOtherSites(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
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
			// A browser sends such a request without a preflight.
			headers := append([]string{"Content-Type: text/plain"}, row.headers...)
			got := n.Send(t, httpdtest.Request("POST", "/eureka/apps/ORDERS", httpdtest.InstanceJSON, headers...))
			expect.That(t, got.Status == row.status && (row.status != 403 || strings.Contains(got.Body, "another site")), "registration: got %d %q, want %d", got.Status, got.Body, row.status)
			expect.Equal(t, n.Send(t, httpdtest.Request("GET", "/eureka/apps", "", row.headers...)).Status, 200, "read: got")
			// Old clients of Consul write by GET; a picture in another site's page could do the same.
			got = n.Send(t, httpdtest.Request("GET", "/v1/agent/check/fail/web", "", row.headers...))
			expect.That(t, strings.Contains(got.Body, "another site") == (row.status == 403), "GET that writes: got %d %q", got.Status, got.Body)
		})
	}
}

func TestSitesServeANodeOnLoopbackUnderItsOwnNamesOnly(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{Hosts: []string{"registry.example:8761", "Other"}}, nil)
	anywhere := httpdtest.NewNode(t, httpd.Config{}, nil)
	for host, want := range map[string]int{
		"localhost": 200, "localhost:8761": 200, "LOCALHOST.": 200, "127.0.0.1:8761": 200, "127.9.9.9": 200, "[::1]:8761": 200,
		"10.0.0.1": 200, "registry.example": 200, "registry.example:80": 200, "other": 200,
		"evil.example": 421, "localhost.evil.example:8761": 421, "127.0.0.1.evil.example": 421, "registry.example.evil": 421,
	} {
		get := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n" }
		got := n.Send(t, get("/eureka/apps"))
		expect.That(t, got.Status == want && (want != 421 || strings.Contains(got.Body, "http.hosts")), "as %s: got %d %q, want %d", host, got.Status, got.Body, want)
		expect.Equal(t, anywhere.Send(t, get("/eureka/apps")).Status, 200, "as %s of a node that does not know its names: got", host)
		expect.Equal(t, n.Send(t, get("/healthz")).Status, 200, "/healthz as %s: got", host)
	}
}

func TestSitesHoldOnHeartbeatConnections(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{Hosts: []string{"node"}}, nil)
	for attack, want := range map[string]int{
		strings.Replace(httpdtest.PlainHeartbeat, "Host: node", "Host: evil.example", 1):                               421,
		strings.Replace(httpdtest.PlainHeartbeat, "Accept: */*", "Origin: http://evil.example", 1):                     403,
		strings.Replace(httpdtest.PlainHeartbeat, "Accept: */*", "Accept: */*\r\nSec-Fetch-Site: cross-site", 1):       403,
		strings.Replace(httpdtest.PlainHeartbeat, "Accept: */*", "Sec-Fetch-Site: same-origin\r\nAccept: text/xml", 1): 200,
	} {
		expect.Equal(t, takenOver(t, n).RoundTrip(t, attack).Status, want, "%q: got", attack)
	}
}

func TestHeartbeatConnectionSkipsFieldsThatMeanNothing(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	l := takenOver(t, n)
	for _, field := range []string{
		"Authorization: Basic dTpw", "X-Forwarded-For: 10.0.0.1, 10.0.0.2", "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"Cookie: a=b; c=d", "Keep-Alive: timeout=5", "X_Odd: " + strings.Repeat("x", 1000), "Via:1.1 proxy", "Empty:",
	} {
		got := l.RoundTrip(t, strings.Replace(httpdtest.PlainHeartbeat, "Accept: */*", field, 1))
		expect.That(t, got.Status == 200 && n.Handler.TookOver(l.LocalAddr().String()), "%s: got %d, taken over: %v", field, got.Status, n.Handler.TookOver(l.LocalAddr().String()))
	}
}

// A connection that went back and forth cost five times as much as one that stayed with net/http.
func TestHeartbeatConnectionThatWasGivenBackIsNotTakenOverAgain(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	l := takenOver(t, n)
	odd := strings.Replace(httpdtest.PlainHeartbeat, "Accept: */*", "Te: trailers", 1)
	for i := range 6 {
		got := l.RoundTrip(t, odd)
		need.That(t, got.Status == 200 && !n.Handler.TookOver(l.LocalAddr().String()), "odd heartbeat %d: got %d, taken over: %v", i, got.Status, n.Handler.TookOver(l.LocalAddr().String()))
	}
	for i := range 6 {
		got := l.RoundTrip(t, httpdtest.PlainHeartbeat)
		need.That(t, got.Status == 200 && !n.Handler.TookOver(l.LocalAddr().String()), "heartbeat %d after them: got %d, taken over: %v", i, got.Status, n.Handler.TookOver(l.LocalAddr().String()))
	}
}

func TestHeartbeatConnectionOfManyHeartbeatsIsTakenOverAgain(t *testing.T) {
	n := httpdtest.NewNode(t, httpd.Config{}, nil)
	l := takenOver(t, n)
	for range 3 {
		for range 100 {
			l.RoundTrip(t, httpdtest.PlainHeartbeat)
		}
		l.RoundTrip(t, httpdtest.Request("GET", "/eureka/apps/ORDERS/i1", ""))
		for range 3 {
			l.RoundTrip(t, httpdtest.PlainHeartbeat)
		}
		expect.That(t, n.Handler.TookOver(l.LocalAddr().String()), "not taken over again after a hundred heartbeats and one read")
	}
	expect.Equal(t, n.Handler.Layers(l.LocalAddr().String()), 1, "the connection lies in layers:")
}

// readHeader matches how this package reads a header field.
var readHeader = regexp.MustCompile(`r\.Header(?:\.Get\(|\.Values\(|\[)"([^"]+)"`)

// Heartbeats read by hand must not skip a field that a handler begins to read.
func TestHeartbeatConnectionLeavesEveryFieldThatHandlersReadToNetHTTP(t *testing.T) {
	elsewhere := map[string]string{
		"Accept": "read by hand, too", "Accept-Encoding": "of answers with a body", "X-Eureka-Accept": "of answers with a body",
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
