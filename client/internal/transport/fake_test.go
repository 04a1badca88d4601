package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

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
