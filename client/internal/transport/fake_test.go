package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Values of the client's configuration.
const (
	usualTimeout   = 5 * time.Second
	sourceInterval = 5 * time.Minute
)

// newCluster is New with the client's defaults.
func newCluster(c Config) *Cluster {
	c.Timeout, c.SourceInterval = cmp.Or(c.Timeout, usualTimeout), sourceInterval
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Refused = func(r Refusal) error { return fmt.Errorf("%s answered %d: %s", r.Server, r.Status, r.Message) }
	return New(c)
}

// errMissing is what a 404 means to renew and cancel.
var errMissing = errors.New("not there")

var key = registry.NewKey("orders", "orders-1")

// renew is a write that has no body.
func (c *Cluster) renew(ctx context.Context) error {
	_, err := c.Perform(ctx, EurekaInstance(http.MethodPut, key).Or(errMissing), "renew")
	return err
}

// cancelLease is a write that removes something.
func (c *Cluster) cancelLease(ctx context.Context) error {
	q := EurekaInstance(http.MethodDelete, key).Or(errMissing)
	q.Removes = true
	_, err := c.Perform(ctx, q, "cancel")
	return err
}

// fetch reads a resource of Eureka.
func (c *Cluster) fetch(ctx context.Context, path ...string) (Response, error) {
	return c.Perform(ctx, Eureka(http.MethodGet, path...), "read")
}

// status reads a resource of Rollcall.
func (c *Cluster) status(ctx context.Context) (map[string]any, error) {
	return Ask[map[string]any](ctx, c, Own(http.MethodGet, "status"), "")
}

// cluster returns a Cluster at hosts of s, which it asks in this order.
func (s servers) cluster(t *testing.T, hosts ...string) *Cluster {
	t.Helper()
	return newCluster(Config{Servers: urlsOf(hosts...), InOrder: true, HTTPClient: &http.Client{Transport: s}})
}

// servers is a cluster in memory, in the place of the network: one function per host.
type servers map[string]func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (s servers) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
	}
	return s[r.URL.Host](r)
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

// untrusted is a server whose certificate no known authority has signed.
func untrusted(*http.Request) (*http.Response, error) {
	return nil, &tls.CertificateVerificationError{Err: errors.New("unknown authority")}
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
