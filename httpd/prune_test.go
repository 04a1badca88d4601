package httpd_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// fillForPruning registers instances in every state, through both APIs.
func fillForPruning(t *testing.T, n *node) {
	t.Helper()
	n.must(t, "PUT", "/v1/agent/service/register", `{"Name":"web","ID":"w1","Check":{"TTL":"10s"}}`)
	n.must(t, "PUT", "/v1/agent/service/register", `{"Name":"web","ID":"w2","Check":{"TTL":"10s","Status":"warning"}}`)
	n.must(t, "PUT", "/v1/catalog/register", `{"Node":"far","Address":"10.9.0.1","Service":{"Service":"web","ID":"w1"},"Check":{"Name":"alive","Output":"no answer"}}`)
	n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "o1")}, registry.Register{Instance: withStatus(newInstance("ORDERS", "o2"), registry.Down, 0)},
		registry.Register{Instance: withStatus(newInstance("ORDERS", "o3"), registry.Down, 0)},
		registry.Quarantine{Key: registry.NewKey("ORDERS", "o3"), For: 60_000})
}

const (
	prunedWeb = `{"app":"WEB","id":"far:w1","node":"far","status":"DOWN","reason":"check alive is critical: no answer"},` +
		`{"app":"WEB","id":"w1","status":"DOWN","reason":"check service:w1 is critical"}`
	prunedOrders = `{"app":"ORDERS","id":"o2","status":"DOWN","reason":"The status is DOWN"}`
)

func TestPruningRemovesWhatIsNotPassing(t *testing.T) {
	for _, row := range []struct {
		query, removed string
		left           int
	}{
		{"?not-passing", "[" + prunedOrders + "," + prunedWeb + "]", 3},
		{"?not-passing=true&service=web", "[" + prunedWeb + "]", 4},
		{"?not-passing&service=Orders&dry-run=false", "[" + prunedOrders + "]", 5},
		{"?not-passing&service=none", "[]", 6},
		{"?not-passing&dry-run", "[" + prunedOrders + "," + prunedWeb + "]", 6},
	} {
		t.Run(row.query, func(t *testing.T) {
			n := newCatalog(t)
			fillForPruning(t, n)
			got := n.must(t, "POST", "/v1/rollcall/prune"+row.query, "")
			expect.That(t, got.body == row.removed+"\n", "got  %s\nwant %s", got.body, row.removed)
			left := n.Newest().Total()
			expect.That(t, left == row.left, "%d instances are left, want %d", left, row.left)
			if strings.Contains(row.query, "dry-run=false") || !strings.Contains(row.query, "dry-run") {
				again := n.must(t, "POST", "/v1/rollcall/prune"+row.query, "")
				expect.That(t, again.body == "[]\n", "again: got %s, want nothing more", again.body)
			}
		})
	}
}

func TestPruningTakesManyTogether(t *testing.T) {
	n := newNode(t, httpd.Config{}, nil)
	for i := range 250 {
		n.Perform(t, registry.Register{Instance: withStatus(newInstance("ORDERS", fmt.Sprint(i)), registry.Status(i%5), 0)})
	}
	before := n.Count()
	n.must(t, "POST", "/v1/rollcall/prune?not-passing", "")
	left, writes := n.Newest().Total(), n.Count()-before
	expect.That(t, left == 50 && writes == 2, "%d instances are left after %d writes, want the 50 that are UP after 2", left, writes)
}

func TestPruningServesEveryMode(t *testing.T) {
	n := newNode(t, aloneConfig(), nil)
	n.Set(func(m *registrytest.Memory) { m.Alone = true })
	n.Perform(t, registry.Register{Instance: withStatus(newInstance("ORDERS", "o1"), registry.Starting, 0)})
	got := n.must(t, "POST", "/v1/rollcall/prune?not-passing", "")
	expect.That(t, strings.Contains(got.body, `"status":"STARTING"`) && n.Newest().Total() == 0, "got %s, want the instance removed", got.body)
}

func TestPruningMustBeSaid(t *testing.T) {
	n := newCatalog(t)
	fillForPruning(t, n)
	for _, query := range []string{"", "?service=web", "?not-passing=false", "?not-passing=x", "?not-passing&dry-run=x", "?not-passing&service=%zz"} {
		got := n.call(t, "POST", "/v1/rollcall/prune"+query, "")
		expect.That(t, got.status == 400 && strings.HasPrefix(got.body, `{"error":`),
			"%s: got %d %s, want 400 and an error in JSON", query, got.status, got.body)
	}
	expect.Equal(t, n.call(t, "GET", "/v1/rollcall/prune?not-passing", "").status, 405, "GET: got")
	n.Set(func(m *registrytest.Memory) { m.ApplyErr = registry.ErrUnknownOutcome })
	if got := n.call(t, "POST", "/v1/rollcall/prune?not-passing", ""); got.status != 504 || got.header.Get("X-Rollcall-Outcome") != "unknown" {
		t.Errorf("an unknown outcome: got %d %v, want 504 that says so", got.status, got.header)
	}
	left := n.Newest().Total()
	expect.That(t, left == 6, "%d instances are left, want all 6", left)
}
