package client

import (
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// clientOf returns a client for hosts of s, which it asks in this order.
func clientOf(t *testing.T, s fake.Servers, hosts ...string) *Client {
	t.Helper()
	return need.Got(New(Config{Servers: fake.URLs(hosts...), InOrder: true, HTTPClient: &http.Client{Transport: s}}))(t)
}

// A server that closes a connection on what it has not read waits for half a second before, by itself.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

func wantSays(t *testing.T, err error, words string) {
	t.Helper()
	expect.That(t, (err == nil) == (words == "") && (err == nil || strings.Contains(err.Error(), words)), "got %v, want %q", err, words)
}
