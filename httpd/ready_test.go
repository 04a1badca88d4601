package httpd_test

import (
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestReadyzSaysWhichPartIsNot(t *testing.T) {
	for name, tc := range map[string]struct {
		health    registry.Health
		ap, drain bool
		want      map[string]int // status by query
		says      string         // in the lines of verbose
	}{
		"all well":           {health: registry.Health{Ready: true, Quorum: true}, want: map[string]int{"": 200, "?writes": 200, "?verbose": 200, "?writes&verbose": 200}, says: "running: ok\nstate: ok\nwrites: ok\n"},
		"no leader is known": {health: registry.Health{Ready: true}, want: map[string]int{"": 200, "?writes": 503, "?verbose": 200, "?writes&verbose": 503}, says: "state: ok\nwrites: no leader is known"},
		"without consensus":  {health: registry.Health{Ready: true}, ap: true, want: map[string]int{"": 200, "?writes": 200, "?verbose": 200, "?writes&verbose": 200}, says: "running: ok\nstate: ok\n"},
		"still loading":      {health: registry.Health{Quorum: true}, want: map[string]int{"": 503, "?writes": 503, "?verbose": 503, "?writes&verbose": 503}, says: "state: the node is still loading"},
		"shutting down":      {health: registry.Health{Ready: true, Quorum: true}, drain: true, want: map[string]int{"": 503, "?writes": 503, "?verbose": 503, "?writes&verbose": 503}, says: "running: the node is shutting down\nstate: ok\nwrites: ok\n"},
	} {
		n := newNode(t, httpd.Config{WithoutConsensus: tc.ap}, nil)
		n.Set(func(m *registrytest.Memory) { m.Reported = tc.health })
		if tc.drain {
			n.handler.Drain()
			expect.Equal(t, n.send(t, request("GET", "/eureka/apps", "")).status, 200, "%s: a list:", name)
		}
		for query, want := range tc.want {
			got := n.send(t, request("GET", "/readyz"+query, ""))
			expect.Equal(t, got.status, want, "%s: GET /readyz%s:", name, query)
			expect.That(t, !strings.Contains(query, "verbose") || strings.Contains(got.body, tc.says), "%s: GET /readyz%s says %q, want %q in it", name, query, got.body, tc.says)
		}
	}
}
