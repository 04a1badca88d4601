package transport

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/client/internal/wait"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
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

// trickling answers with n pieces, one after each pause.
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
		says  string // of the first server's failure; "": it answers
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
			if tc.says != "" && (!errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("got %v, want a timeout that says %q", err, tc.says)
			}
		})
	}
}

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

// net/http sends what has an Idempotency-Key again, by a new connection, when the server ends the old one without a response.
// Whatever a restarted server says to the second one, the first may have been done.
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

// TestNodeThatKnowsNobodySendsTheCallOn has another server asked where Consul's form turns a 503 into a 500.
func TestNodeThatKnowsNobodySendsTheCallOn(t *testing.T) {
	c := clusterOf(t, fake.Servers{
		"a": fake.Always(500, "this node has heard no leader since it started", "Retry-After", "1"), "b": fake.Always(200, "true"),
	}, "a", "b")
	a := need.Got(c.Perform(t.Context(), Consul(http.MethodPut, "kv", "k"), ""))(t)
	expect.That(t, a.Server == "http://b" && !a.Repeated, "%+v, want the answer of the other server", a)
}
