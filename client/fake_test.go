package client

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// servers is a cluster in memory, in the place of the network: one function per host.
type servers map[string]func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (s servers) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
	}
	return s[r.URL.Host](r)
}

// client returns a client for hosts of s, which it asks in this order.
func (s servers) client(t *testing.T, hosts ...string) *Client {
	t.Helper()
	return need.Got(New(Config{Servers: urlsOf(hosts...), InOrder: true, HTTPClient: &http.Client{Transport: s}}))(t)
}

func responded(status int, body string, header ...string) (*http.Response, error) {
	h := make(http.Header)
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// always answers every request alike.
func always(status int, body string, header ...string) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) { return responded(status, body, header...) }
}

// unreachable is a server at whose address no process listens.
func unreachable(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
}

// cutOff is a server that takes a request and dies.
func cutOff(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }

// silent is a server that takes a request and never answers.
func silent(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// journal records requests as "METHOD path?query", with the time since it was made.
type journal struct {
	start time.Time
	mu    sync.Mutex
	lines []string
	times []time.Duration
}

func newJournal() *journal { return &journal{start: time.Now()} }

// around records what it passes on.
func (j *journal) around(next func(*http.Request) (*http.Response, error)) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		j.mu.Lock()
		j.lines = append(j.lines, r.Method+" "+cmp.Or(r.URL.RawPath, r.URL.Path))
		j.times = append(j.times, time.Since(j.start))
		j.mu.Unlock()
		return next(r)
	}
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, "\n")
}

// A server that closes a connection on what it has not read waits for half a second before, by itself.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// noneLeft fails the test unless the goroutines that there were not before end, for which a busy machine has time.
func noneLeft(t *testing.T, before goleak.Option) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		err := goleak.Find(before)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// inBubble runs a test in virtual time; as a subtest if it is given a name.
func inBubble(t *testing.T, name string, test func(*testing.T)) {
	if name == "" {
		synctest.Test(t, test)
		return
	}
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// within ends after d.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// wantSays expects an error with these words, or none without any.
func wantSays(t *testing.T, err error, words string) {
	t.Helper()
	expect.That(t, (err == nil) == (words == "") && (err == nil || strings.Contains(err.Error(), words)), "got %v, want %q", err, words)
}

func urlsOf(hosts ...string) []string {
	var urls []string
	for _, h := range hosts {
		urls = append(urls, "http://"+h)
	}
	return urls
}

// endless is a server whose response begins, and then says nothing until its request ends.
func endless(r *http.Request) (*http.Response, error) {
	resp, err := responded(200, "")
	resp.Body = io.NopCloser(open{r.Context()})
	return resp, err
}

// contextWithin ends after d; with 0 it is canceled after a second.
func contextWithin(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	if d > 0 {
		return context.WithTimeout(t.Context(), d)
	}
	ctx, cancel := context.WithCancel(t.Context())
	timer := time.AfterFunc(time.Second, cancel)
	return ctx, func() {
		timer.Stop()
		cancel()
	}
}
