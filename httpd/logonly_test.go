package httpd_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// TestLogOnlyCountsWhatModeOnRefuses asks for every route as every caller: what is counted is what mode on refuses, as
// TestEveryRouteLetsThroughWhomItsRowSays has it. Changes of permissions are refused in either mode, and acts of the
// dashboard answer with a form first.
func TestLogOnlyCountsWhatModeOnRefuses(t *testing.T) {
	var metrics *prometheus.Registry
	fresh := func() *guarded {
		metrics = prometheus.NewRegistry()
		return newGuarded(t, access.LogOnly, true, func(c *httpd.Config) { c.Metrics = metrics })
	}
	g := fresh()
	for _, row := range accessRows {
		_, path, _ := strings.Cut(row.route, " ")
		permissions := strings.HasPrefix(path, "/v1/rollcall/auth/") || path == "/v1/rollcall/audit" || path == "/v1/acl/bootstrap"
		if permissions || strings.HasPrefix(path, "/ui/acts/") {
			continue
		}
		for i, c := range accessCallers {
			counted, done := sumOf(t, metrics, "rollcall_auth_would_deny_total"), g.done()
			got := g.ask(t.Context(), row, c.token, c.app, c.dc)
			counted = sumOf(t, metrics, "rollcall_auth_would_deny_total") - counted
			expect.That(t, through(got) && (counted > 0) == (row.may[i] != '+'),
				"%s %s of %s, for which mode on has %q: %v counted, %d",
				row.route, row.call, c.name, row.may[i], counted, got.status)
			if g.done() != done {
				g = fresh()
			}
		}
	}
}
