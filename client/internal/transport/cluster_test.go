package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestCallFindsRollcallOnceAmongServersOfBothKinds(t *testing.T) {
	j := fake.NewJournal()
	c := clusterOf(t, fake.Servers{"a": j.Around(fake.Always(404, springAnswer)), "b": fake.Always(200, `{}`)}, "a", "b")
	for range 3 {
		need.Got(c.status(t.Context()))(t)
	}
	expect.Equal(t, len(j.Times()), 1, "requests at the server that is not Rollcall:")
}

// TestCallToOneServerThatIsNotRollcallProvesNothing: the others may answer the next time.
func TestCallToOneServerThatIsNotRollcallProvesNothing(t *testing.T) {
	_, err := clusterOf(t, fake.Servers{"a": fake.Always(404, "<html>"), "b": fake.Unreachable}, "a", "b").status(t.Context())
	expect.That(t, err != nil && !errors.Is(err, ErrNeedsRollcall) && strings.Contains(err.Error(), "http://a"),
		"Status: %v, want an error that names both servers and is not ErrNeedsRollcall", err)
}

func TestWriteHasThreeOutcomes(t *testing.T) {
	unknown := fake.Always(504, "", "X-Rollcall-Outcome", "unknown")
	for _, tc := range []struct {
		name          string
		first, second func(*http.Request) (*http.Response, error)
		want          error // nil: done
		status        int   // of the StatusError; 0: none; negative: any other error
	}{
		{name: "done", first: fake.Always(200, ""), second: fake.CutOff},
		{name: "unknown instance", first: fake.Always(404, ""), second: fake.CutOff, want: errMissing},
		{name: "refused", first: fake.Always(400, "no"), second: fake.Always(200, ""), status: 400},
		{name: "no leader there, done elsewhere", first: fake.Always(503, ""), second: fake.Always(200, "")},
		{name: "no leader anywhere", first: fake.Always(503, ""), second: fake.Always(503, ""), status: 503},
		{name: "unreachable, done elsewhere", first: fake.Unreachable, second: fake.Always(200, "")},
		{name: "unreachable, unknown instance elsewhere", first: fake.Unreachable, second: fake.Always(404, ""), want: errMissing},
		{name: "the server does not know", first: unknown, second: fake.Always(200, ""), want: ErrUnknownOutcome},
		{name: "cut off, done elsewhere", first: fake.CutOff, second: fake.Always(200, "")},
		{name: "cut off, no server elsewhere", first: fake.CutOff, second: fake.Unreachable, want: ErrUnknownOutcome},
		{name: "cut off, no leader elsewhere", first: fake.CutOff, second: fake.Always(503, ""), want: ErrUnknownOutcome},
		{name: "cut off, refused elsewhere", first: fake.CutOff, second: fake.Always(409, "full"), want: ErrUnknownOutcome},
		{name: "cut off, gone elsewhere", first: fake.CutOff, second: fake.Always(404, "")},
		{name: "a proxy's timeout, no server elsewhere", first: fake.Always(504, ""), second: fake.Unreachable, want: ErrUnknownOutcome},
		{name: "a redirect, done elsewhere", first: fake.Always(302, ""), second: fake.Always(200, "")},
		{name: "a stock server that is not up and may have done it all the same", first: fake.Always(307, ""), second: fake.Always(503, ""), want: ErrUnknownOutcome},
		{name: "this mode has no such thing", first: fake.Always(501, ""), second: fake.Always(200, ""), status: 501},
		{name: "any other failure of the server, done elsewhere", first: fake.Always(508, ""), second: fake.Always(200, "")},
		{name: "it is not trusted, no server elsewhere", first: untrusted, second: fake.Unreachable, status: -1},
		{name: "no response, done elsewhere", first: fake.Silent, second: fake.Always(200, "")},
		{name: "no response anywhere", first: fake.Silent, second: fake.Silent, want: ErrUnknownOutcome},
	} {
		fake.InBubble(t, tc.name, func(t *testing.T) {
			err := clusterOf(t, fake.Servers{"a": tc.first, "b": tc.second}, "a", "b").cancelLease(t.Context())
			expect.That(t, tc.want == nil || errors.Is(err, tc.want), "Cancel: %v, want %v", err, tc.want)
			var status *Refusal
			if tc.status > 0 && (!errors.As(err, &status) || status.Status != tc.status || errors.Is(err, ErrUnknownOutcome)) {
				t.Errorf("Cancel: %v, want a plain status %d", err, tc.status)
			}
			if tc.status < 0 && (err == nil || errors.Is(err, ErrUnknownOutcome)) {
				t.Errorf("Cancel: %v, want an error that says that nothing was done", err)
			}
			expect.That(t, tc.want != nil || tc.status != 0 || err == nil, "Cancel: %v, want success", err)
		})
	}
}

func TestReadThatFailsIsNeverAnUnknownOutcome(t *testing.T) {
	_, err := clusterOf(t, fake.Servers{"a": fake.CutOff, "b": fake.Unreachable}, "a", "b").fetch(t.Context(), "apps")
	expect.That(t, err != nil && !errors.Is(err, ErrUnknownOutcome), "fetch: %v, want an error that is not an unknown outcome", err)
}

func TestServerThatIsSilentCostsOneTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clusterOf(t, fake.Servers{"a": fake.Silent, "b": fake.Always(200, "")}, "a", "b")
		start := time.Now()
		need.OK(t, c.renew(t.Context()))
		expect.Equal(t, time.Since(start), usualTimeout, "took")
	})
}

func TestCallEscapesAnIDAsOneSegment(t *testing.T) {
	j := fake.NewJournal()
	c := clusterOf(t, fake.Servers{"a": j.Around(fake.Always(200, ""))}, "a")
	need.Got(c.Perform(t.Context(), EurekaInstance(http.MethodPut, registry.NewKey("orders", "a/b c?#:1"), "status"), ""))(t)
	expect.Equal(t, j.String(), "PUT /eureka/apps/ORDERS/a%2Fb%20c%3F%23:1/status", "got")
}

// Values of the client's configuration.
const (
	usualTimeout   = 5 * time.Second
	sourceInterval = 5 * time.Minute
)

func newCluster(c Config) *Cluster {
	c.Timeout, c.SourceInterval = cmp.Or(c.Timeout, usualTimeout), sourceInterval
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Refused = func(r Refusal) error { return fmt.Errorf("%s answered %d: %s", r.Server, r.Status, r.Message) }
	return New(c)
}

// errMissing is what a 404 means to renew and cancel.
var errMissing = errors.New("not there")

var key = registry.NewKey("orders", "orders-1")

func (c *Cluster) renew(ctx context.Context) error {
	_, err := c.Perform(ctx, EurekaInstance(http.MethodPut, key).Or(errMissing), "renew")
	return err
}

func (c *Cluster) cancelLease(ctx context.Context) error {
	q := EurekaInstance(http.MethodDelete, key).Or(errMissing)
	q.Removes = true
	_, err := c.Perform(ctx, q, "cancel")
	return err
}

func (c *Cluster) fetch(ctx context.Context, path ...string) (Response, error) {
	return c.Perform(ctx, Eureka(http.MethodGet, path...), "read")
}

func (c *Cluster) status(ctx context.Context) (map[string]any, error) {
	return Ask[map[string]any](ctx, c, Own(http.MethodGet, "status"), "")
}

// clusterOf returns a Cluster at hosts of s, which it asks in this order.
func clusterOf(t *testing.T, s fake.Servers, hosts ...string) *Cluster {
	t.Helper()
	return newCluster(Config{Servers: fake.URLs(hosts...), InOrder: true, HTTPClient: &http.Client{Transport: s}})
}

// untrusted is a server whose certificate no known authority has signed.
func untrusted(*http.Request) (*http.Response, error) {
	return nil, &tls.CertificateVerificationError{Err: errors.New("unknown authority")}
}

// A server that closes a connection on what it has not read waits for half a second before, by itself.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}
