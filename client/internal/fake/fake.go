// Package fake has a cluster in memory, instead of the network, for tests of the client, and helpers for waiting in
// these tests.
package fake

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

// Servers is a cluster in memory, instead of the network: one function per host.
type Servers map[string]func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (s Servers) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
	}
	return s[r.URL.Host](r)
}

// Respond returns a response with this status, body and header, given as alternating names and values.
func Respond(status int, body string, header ...string) (*http.Response, error) {
	h := make(http.Header)
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// Always responds to every request alike.
func Always(status int, body string, header ...string) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) { return Respond(status, body, header...) }
}

// Unreachable is a server at whose address no process listens.
func Unreachable(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
}

// CutOff is a server that accepts a request and dies.
func CutOff(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }

// Silent is a server that accepts a request and never responds.
func Silent(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// Journal records requests as "METHOD path", with the time since it was created.
type Journal struct {
	start time.Time
	mu    sync.Mutex
	lines []string
	times []time.Duration
}

// NewJournal returns an empty journal.
func NewJournal() *Journal { return &Journal{start: time.Now()} }

// Around records what it passes on.
func (j *Journal) Around(next func(*http.Request) (*http.Response, error)) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		j.mu.Lock()
		j.lines = append(j.lines, r.Method+" "+cmp.Or(r.URL.RawPath, r.URL.Path))
		j.times = append(j.times, time.Since(j.start))
		j.mu.Unlock()
		return next(r)
	}
}

// String returns the requests so far, one per line.
func (j *Journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, "\n")
}

// Times returns when the requests so far arrived, counted from the journal's start.
func (j *Journal) Times() []time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.times)
}

// NoneLeft fails the test unless all goroutines that did not exist before end. It gives a busy machine time for that.
func NoneLeft(t *testing.T, before goleak.Option) {
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

// InBubble runs a test in virtual time; as a subtest if name is not empty.
func InBubble(t *testing.T, name string, test func(*testing.T)) {
	if name == "" {
		synctest.Test(t, test)
		return
	}
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// Within returns a context that ends after d.
func Within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// URLs returns the addresses of these hosts.
func URLs(hosts ...string) []string {
	var urls []string
	for _, h := range hosts {
		urls = append(urls, "http://"+h)
	}
	return urls
}

// Open is a body that ends with its request and says nothing.
type Open struct{ Ctx context.Context }

// Read implements io.Reader.
func (o Open) Read([]byte) (int, error) {
	<-o.Ctx.Done()
	return 0, o.Ctx.Err()
}

// Endless is a server whose response begins, and then says nothing until its request ends.
func Endless(r *http.Request) (*http.Response, error) {
	resp, err := Respond(200, "")
	resp.Body = io.NopCloser(Open{Ctx: r.Context()})
	return resp, err
}

// ContextWithin returns a context that ends after d; with 0 it is canceled after a second.
func ContextWithin(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
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
