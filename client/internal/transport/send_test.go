package transport

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

func TestCloseCutsOffCallsThatAreUnderWay(t *testing.T) {
	for name, server := range map[string]func(*http.Request) (*http.Response, error){"before the response": fake.Silent, "within the response": fake.Endless} {
		fake.InBubble(t, name, func(t *testing.T) {
			j := fake.NewJournal()
			c := clusterOf(t, fake.Servers{"a": j.Around(server), "b": j.Around(fake.Always(200, ""))}, "a", "b")
			result := make(chan error)
			go func() { result <- c.cancelLease(context.Background()) }()
			synctest.Wait()
			c.Close()
			err := <-result
			expect.That(t, errors.Is(err, ErrClosed) && errors.Is(err, ErrUnknownOutcome),
				"a write that was under way: %v, want that the client is closed and the outcome unknown", err)
			if err := c.renew(t.Context()); !errors.Is(err, ErrClosed) || errors.Is(err, ErrUnknownOutcome) {
				t.Errorf("a write after it: %v, want that the client is closed, and no more", err)
			}
			expect.Equal(t, len(j.Times()), 1, "requests until and after Close:")
			expect.Equal(t, c.Quarantined(), 0, "servers in quarantine because of Close:")
		})
	}
}

func TestStreamEndsWithTheClientAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watch := &Call{method: http.MethodGet, path: []string{"v1", "rollcall", "watch"}, Accept: "text/event-stream"}
		c := clusterOf(t, fake.Servers{"a": func(r *http.Request) (*http.Response, error) {
			expect.Equal(t, r.Header.Get("Accept"), watch.Accept, "Accept:")
			return fake.Endless(r)
		}}, "a")
		body, _, err := c.OpenStream(t.Context(), serverAt("a"), watch)
		need.OK(t, err)
		defer body.Close()
		result := make(chan error)
		go func() {
			_, err := body.Read(make([]byte, 1))
			result <- err
		}()
		time.Sleep(time.Hour) // nothing but its caller and the client bounds it
		c.Close()
		expect.ErrorIs(t, <-result, ErrClosed, "the stream ended with")
		_, _, err = c.OpenStream(t.Context(), serverAt("a"), watch)
		expect.ErrorIs(t, err, ErrClosed, "another one:")
	})
}

func TestAuthThatFailsEndsTheCall(t *testing.T) {
	j := fake.NewJournal()
	s := fake.Servers{"a": j.Around(fake.Always(200, "")), "b": j.Around(fake.Always(200, ""))}
	broken := errors.New("no token")
	c := newCluster(Config{Servers: urlsOf("a", "b"), HTTPClient: &http.Client{Transport: s},
		Auth: func(*http.Request) error { return broken }})
	err := c.renew(t.Context())
	expect.That(t, errors.Is(err, broken) && !errors.Is(err, ErrUnknownOutcome) && strings.Count(err.Error(), "no token") == 1,
		"got %v, want the error once, and that nothing happened", err)
	expect.That(t, len(j.Times()) == 0 && c.Quarantined() == 0,
		"%d requests were sent and %d servers put in quarantine, want none", len(j.Times()), c.Quarantined())
}

func TestErrorsShowNoPassword(t *testing.T) {
	for name, server := range map[string]func(*http.Request) (*http.Response, error){
		"unreachable": fake.Unreachable, "cut off": fake.CutOff, "refused": fake.Always(400, "no"), "no leader": fake.Always(503, ""), "foreign": fake.Always(404, "<html>"),
	} {
		c := newCluster(Config{Servers: []string{"http://user:secret@a"}, HTTPClient: &http.Client{Transport: fake.Servers{"a": server}}})
		_, err := c.status(t.Context())
		expect.That(t, err != nil && !strings.Contains(err.Error(), "secret") && !strings.Contains(err.Error(), "user"),
			"%s: %v, want an error without user and password", name, err)
	}
}

func TestResponsesAreAskedForInGzip(t *testing.T) {
	const text = `{"applications":{}}`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		expect.Equal(t, r.Header.Get("Accept-Encoding"), "gzip", "Accept-Encoding:")
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		fmt.Fprint(z, text)
		z.Close()
	}))
	defer s.Close()
	a, err := connected(t, Config{Servers: []string{s.URL}}).fetch(t.Context(), "apps")
	expect.That(t, err == nil && string(a.Body) == text, "got %s, %v, want %s and no error", a.Body, err, text)
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// trickling responds with n pieces, one after each pause.
func trickling(n int, pause time.Duration) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		left := n
		return &http.Response{StatusCode: 200, Header: make(http.Header), Body: io.NopCloser(readerFunc(func(p []byte) (int, error) {
			if left == 0 {
				return 0, io.EOF
			}
			left--
			if !wait.For(r.Context(), pause) {
				return 0, r.Context().Err()
			}
			return copy(p, " "), nil
		}))}, nil
	}
}

func TestTryIsBoundedByItsPausesAndAsAWhole(t *testing.T) {
	second := fake.Always(200, "")
	late := func(r *http.Request) (*http.Response, error) {
		if !wait.For(r.Context(), 5*time.Second-1) {
			return nil, r.Context().Err()
		}
		return trickling(1, 5*time.Second-1)(r)
	}
	for _, tc := range []struct {
		name  string
		first func(*http.Request) (*http.Response, error)
		took  time.Duration
		says  string // text of the first server's failure; "" if it responds
	}{
		{name: "at once", first: second, took: 0},
		{name: "it begins late and pauses long", first: late, took: 10*time.Second - 2},
		{name: "it never begins", first: fake.Silent, took: 5 * time.Second, says: "no response within 5s"},
		{name: "it begins and stops", first: fake.Endless, took: 5 * time.Second, says: "nothing more of the response within 5s"},
		{name: "slow, but it goes on", first: trickling(10, 4*time.Second), took: 40 * time.Second},
		{name: "it goes on for ever", first: trickling(1000, 4*time.Second), took: 55 * time.Second, says: "no whole response within 55s"},
	} {
		fake.InBubble(t, tc.name, func(t *testing.T) {
			c := clusterOf(t, fake.Servers{"a": tc.first, "b": fake.Unreachable}, "a", "b")
			start := time.Now()
			_, err := c.do(t.Context(), &Call{method: http.MethodGet, path: []string{"v1"}})
			expect.Equal(t, time.Since(start), tc.took, "took")
			expect.That(t, (err != nil) == (tc.says != ""), "got %v, want an error: %v", err, tc.says != "")
			expect.That(t, tc.says == "" || errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), tc.says),
				"got %v, want a timeout that says %q", err, tc.says)
		})
	}
}

// Responses of stock servers to paths that they do not know, and to methods.
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
	_, err := clusterOf(t, fake.Servers{"a": fake.Always(403, "")}, "a").fetch(t.Context(), "apps")
	expect.That(t, errors.As(err, &status) && status.Status == 403, "from no server: %v, want the refusal", err)
}

func TestResponseThatIsTooLongIsNotRead(t *testing.T) {
	for length, want := range map[int]bool{9: true, 10: true, 11: false} {
		got, err := readBounded(strings.NewReader(strings.Repeat("x", length)), 10)
		expect.That(t, (err == nil) == want && (!want || len(got) == length),
			"of %d bytes where 10 are allowed: %d bytes, %v", length, len(got), err)
		expect.That(t, err == nil || errors.As(err, new(conclusive)), "%v does not end the call, although other servers would send as much", err)
	}
}

// When the server ends a connection without a response, net/http repeats a request with an Idempotency-Key over a new
// one. Whatever a restarted server says to the second request, the first may have been done.
func TestWriteWhoseServerDiesIsUnknownWhateverBecomesOfTheNextConnection(t *testing.T) {
	for name, status := range map[string]int{"refused": 0, "no leader": 500, "not ready": 503, "a conflict": 409} {
		t.Run(name, func(t *testing.T) {
			server, writes := httptest.NewUnstartedServer(nil), 0
			server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					return
				}
				if writes++; writes > 1 {
					http.Error(w, noLeader, status)
					return
				}
				if status == 0 {
					server.Listener.Close()
				}
				conn, _, err := w.(http.Hijacker).Hijack()
				need.OK(t, err)
				conn.Close()
			})
			server.Start()
			defer server.Close()
			c := newCluster(Config{Servers: []string{server.URL}})
			defer c.Close()
			need.Got(c.Perform(t.Context(), Consul(http.MethodGet, "kv", "k"), ""))(t) // which leaves a connection
			_, err := c.Perform(t.Context(), Consul(http.MethodPut, "kv", "k"), "")
			expect.ErrorIs(t, err, ErrUnknownOutcome, "a write that the server has seen")
			_, err = c.Perform(t.Context(), Consul(http.MethodPut, "kv", "k"), "")
			expect.That(t, err != nil && !errors.Is(err, ErrUnknownOutcome), "a write that was certainly not done: %v", err)
		})
	}
}

// Another server is asked if Consul's form turns a 503 into a 500.
func TestNodeThatKnowsNobodySendsTheCallOn(t *testing.T) {
	c := clusterOf(t, fake.Servers{
		"a": fake.Always(500, "this node has heard no leader since it started", "Retry-After", "1"), "b": fake.Always(200, "true"),
	}, "a", "b")
	a := need.Got(c.Perform(t.Context(), Consul(http.MethodPut, "kv", "k"), ""))(t)
	expect.That(t, a.Server == "http://b" && !a.Repeated, "%+v, want the answer of the other server", a)
}

// secured returns a server that speaks TLS and requires client certificates.
func secured(t *testing.T, handler http.HandlerFunc) (s *httptest.Server, trust *tls.Config) {
	t.Helper()
	s = httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return s, &tls.Config{RootCAs: pool, Certificates: s.TLS.Certificates}
}

func connected(t *testing.T, c Config) *Cluster {
	t.Helper()
	cluster := newCluster(c)
	t.Cleanup(cluster.Close)
	return cluster
}

func TestTLSIsSpokenAsConfigured(t *testing.T) {
	var seen atomic.Pointer[http.Request]
	s, trust := secured(t, func(w http.ResponseWriter, r *http.Request) { seen.Store(r) })
	stranger := trust.Clone()
	stranger.Certificates = nil
	for name, tc := range map[string]struct {
		trust *tls.Config
		says  string // in the error; "" if it works
	}{
		"both know each other":                {trust, ""},
		"the client does not know the server": {&tls.Config{Certificates: trust.Certificates}, "certificate"},
		"the server does not know the client": {stranger, s.URL},
		"nothing is configured":               {nil, "certificate"},
	} {
		c := connected(t, Config{Servers: []string{s.URL}, TLS: tc.trust})
		_, err := c.do(t.Context(), &Call{method: http.MethodGet, eureka: true, path: []string{"apps"}})
		expect.That(t, (err == nil) == (tc.says == "") && (err == nil || strings.Contains(err.Error(), tc.says)),
			"%s: %v, want %q", name, err, tc.says)
	}
	if r := seen.Load(); r == nil || r.ProtoMajor != 2 || len(r.TLS.PeerCertificates) != 1 {
		t.Errorf("the server saw %v, want HTTP/2 and the client's certificate", r)
	}
	// A server that is not trusted is sent nothing.
	c := connected(t, Config{Servers: []string{s.URL}, TLS: &tls.Config{Certificates: trust.Certificates}})
	err := c.cancelLease(t.Context())
	expect.That(t, err != nil && !errors.Is(err, ErrUnknownOutcome), "Cancel: %v, want an error that is no unknown outcome", err)
}

func TestTLSConfigurationIsNotChanged(t *testing.T) {
	s, trust := secured(t, func(http.ResponseWriter, *http.Request) {})
	before := trust.Clone()
	need.OK(t, connected(t, Config{Servers: []string{s.URL}, TLS: trust}).renew(t.Context()))
	expect.That(t, slices.Equal(trust.NextProtos, before.NextProtos), "its protocols are %v now, want %v", trust.NextProtos, before.NextProtos)
}

func TestRedirectIsNotFollowedAndAnotherServerAsked(t *testing.T) {
	for _, status := range []int{301, 302, 307, 308} {
		var there, target atomic.Int32
		mux := http.NewServeMux()
		mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
			there.Add(1)
			http.Redirect(w, r, "/login", status)
		})
		mux.HandleFunc("/login", func(http.ResponseWriter, *http.Request) { target.Add(1) })
		a := httptest.NewServer(mux)
		b := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		c := connected(t, Config{Servers: []string{a.URL, b.URL}, InOrder: true})
		expect.OKf(t, c.renew(t.Context()), "%d, and the other server's response", status)
		if there.Load() != 1 || target.Load() != 0 || c.Quarantined() != 1 {
			t.Errorf("%d: asked %d times and followed %d times, %d servers in quarantine, want 1, 0 and 1",
				status, there.Load(), target.Load(), c.Quarantined())
		}
		a.Close()
		b.Close()
	}
}

// connections counts the connections of a server.
type connections struct {
	mu   sync.Mutex
	made int
	open map[net.Conn]bool
	last chan struct{} // receives when none is open any more
}

func (c *connections) record(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.made++
		c.open[conn] = true
	case http.StateClosed:
		delete(c.open, conn)
		if len(c.open) == 0 {
			c.last <- struct{}{}
		}
	}
}

func (c *connections) count() (made, open int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made, len(c.open)
}

func counted(t *testing.T, handler http.HandlerFunc) (*httptest.Server, *connections) {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	c := &connections{open: make(map[net.Conn]bool), last: make(chan struct{}, 1000)}
	s.Config.ConnState = c.record
	s.Start()
	t.Cleanup(s.Close)
	return s, c
}

func TestConnectionsOfManyCallsAtOnceAreKept(t *testing.T) {
	const many = 40
	var here sync.WaitGroup
	s, connections := counted(t, func(http.ResponseWriter, *http.Request) {
		here.Done()
		here.Wait() // all at once
	})
	c := connected(t, Config{Servers: []string{s.URL}, Timeout: time.Minute})
	for range 3 {
		here.Add(many)
		var g sync.WaitGroup
		for range many {
			g.Go(func() {
				expect.OK(t, c.renew(t.Context()))
			})
		}
		g.Wait()
	}
	made, _ := connections.count()
	expect.That(t, made < 2*many, "three times %d calls made %d connections, want that they are kept", many, made)
}

func TestCloseEndsTheConnectionsOfTheClientsOwnTransportOnly(t *testing.T) {
	before := goleak.IgnoreCurrent()
	s, connections := counted(t, func(http.ResponseWriter, *http.Request) {})
	transport := &http.Transport{}
	given, own := connected(t, Config{Servers: []string{s.URL}, HTTPClient: &http.Client{Transport: transport}}), connected(t, Config{Servers: []string{s.URL}})
	for _, c := range []*Cluster{given, own} {
		need.OK(t, c.renew(t.Context()))
	}
	given.Close()
	if r, err := (&http.Client{Transport: transport}).Get(s.URL); err != nil {
		t.Error(err)
	} else {
		r.Body.Close()
	}
	made, _ := connections.count()
	expect.That(t, made == 2, "%d connections were made, want 2: the given client's is to stay", made)
	transport.CloseIdleConnections()
	own.Close()
	select {
	case <-connections.last:
	case <-time.After(idleTimeout / 3):
		t.Error("the client's own connection is still open")
	}
	s.Close()
	fake.NoneLeft(t, before)
}

func TestSocketIsNotCalledByWayOfAProxy(t *testing.T) {
	standard := http.DefaultTransport
	defer func() { http.DefaultTransport = standard }()
	proxy := &url.URL{Scheme: "http", Host: "proxy:3128"}
	http.DefaultTransport = &http.Transport{Proxy: http.ProxyURL(proxy)}
	for address, want := range map[string]*url.URL{"http://a": proxy, "unix:/x/admin.sock": nil} {
		s := need.Got(parseServer(address))(t)
		r := need.Got(Own(http.MethodGet, "status").request(t.Context(), s))(t)
		got, err := Config{}.transport().Proxy(r)
		expect.That(t, err == nil && got == want, "%s: by way of %v, %v, want %v", address, got, err, want)
	}
}

func TestTransportMayReplaceTheStandardOne(t *testing.T) {
	standard := http.DefaultTransport
	defer func() { http.DefaultTransport = standard }()
	http.DefaultTransport = fake.Servers{}
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	expect.OK(t, connected(t, Config{Servers: []string{s.URL}}).renew(t.Context()))
}

func dialing(t *testing.T, dial func(ctx context.Context) (net.Conn, error)) *Cluster {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}
	return connected(t, Config{Servers: []string{"http://a"}, HTTPClient: &http.Client{Transport: transport}})
}

func TestWriteWithoutAConnectionDidNotHappen(t *testing.T) {
	for name, tc := range map[string]struct {
		dial    func(ctx context.Context) (net.Conn, error)
		unknown bool
		took    time.Duration
	}{
		"no process answers the dial": {dial: func(ctx context.Context) (net.Conn, error) {
			wait.For(ctx, dialTimeout)
			return nil, errors.New("timeout")
		}, took: usualTimeout},
		"the dial fails": {dial: func(context.Context) (net.Conn, error) { return nil, errors.New("no route") }},
		"the connection is cut": {dial: func(context.Context) (net.Conn, error) {
			here, there := net.Pipe()
			there.Close()
			return here, nil
		}, unknown: true},
		"no process answers the request": {dial: func(context.Context) (net.Conn, error) {
			here, there := net.Pipe()
			go func() { // reads until the client gives up
				buffer := make([]byte, 1<<10)
				for {
					if _, err := there.Read(buffer); err != nil {
						return
					}
				}
			}()
			return here, nil
		}, unknown: true, took: usualTimeout},
	} {
		fake.InBubble(t, name, func(t *testing.T) {
			c := dialing(t, tc.dial)
			start := time.Now()
			err := c.cancelLease(t.Context())
			expect.That(t, err != nil && errors.Is(err, ErrUnknownOutcome) == tc.unknown, "Cancel: %v, want an unknown outcome: %v", err, tc.unknown)
			expect.Equal(t, time.Since(start), tc.took, "took")
			time.Sleep(dialTimeout) // the transport lets an attempt go on
		})
	}
}

func TestCloseEndsConnectionsThatAreStillBeingMade(t *testing.T) {
	before := goleak.IgnoreCurrent()
	listener := need.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
	c := connected(t, Config{Servers: []string{"https://" + listener.Addr().String()}, Timeout: time.Minute})
	result := make(chan error)
	go func() { result <- c.cancelLease(t.Context()) }()
	conn := need.Got(listener.Accept())(t) // and never speaks TLS
	c.Close()
	if err := <-result; !errors.Is(err, ErrClosed) || errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("got %v, want that the client is closed, and no unknown outcome", err)
	}
	need.OK(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	expect.That(t, !errors.Is(expect.Err(io.Copy(io.Discard, conn)), os.ErrDeadlineExceeded), "the connection is still open")
	conn.Close()
	listener.Close()
	fake.NoneLeft(t, before)
}

func TestConnectionsDoNotOutliveTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made []net.Conn
		slow := newDials(func(ctx context.Context, _, _ string) (net.Conn, error) {
			if !wait.For(ctx, time.Second) {
				return nil, context.Cause(ctx)
			}
			here, there := net.Pipe()
			made = append(made, there)
			return here, nil
		})
		first := need.Got(slow.connect(t.Context(), "tcp", "a:1"))(t)
		second := need.Got(slow.connect(t.Context(), "tcp", "a:1"))(t)
		first.Close()
		expect.Equal(t, len(slow.open), 1, "connections remembered:")
		result := make(chan error)
		go func() {
			_, err := slow.connect(t.Context(), "tcp", "a:1")
			result <- err
		}()
		synctest.Wait()
		start := time.Now()
		slow.close()
		expect.ErrorIs(t, <-result, ErrClosed, "one that was being made:")
		expect.Equal(t, time.Since(start), 0, "that took")
		expect.Equal(t, expect.Err(made[1].Read(make([]byte, 1))), io.EOF, "one that was open:")
		second.Close()
		late := newDials(func(context.Context, string, string) (net.Conn, error) {
			here, _ := net.Pipe()
			return here, nil
		})
		late.close()
		expect.ErrorIs(t, expect.Err(late.connect(t.Context(), "tcp", "a:1")), ErrClosed, "one that was made all the same:")
	})
}
