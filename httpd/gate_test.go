package httpd_test

import (
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
)

// gatedRoutes are the fetches that a server refuses which has nothing to show.
var gatedRoutes = []string{"/eureka/apps", "/eureka/apps/delta", "/eureka/apps/ORDERS", "/eureka/vips/orders", "/eureka/svips/orders"}

func TestFetchesWaitForATimeWhenThereWasNothingToLoad(t *testing.T) {
	for _, row := range []struct {
		name   string
		wait   time.Duration
		full   bool // something was loaded
		cached bool
		closed time.Duration // after the node was ready
	}{
		{"by default not at all", 0, false, false, 0},
		{"nothing was loaded", time.Minute, false, false, time.Minute},
		{"nothing was loaded, with the read-only cache", time.Minute, false, true, time.Minute},
		{"something was loaded", time.Minute, true, false, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newBubbled(t, httpd.Config{WaitWhenEmpty: row.wait, ReadOnlyCache: row.cached})
				n.set(func(m *memory) { m.health.Ready = false })
				if got := n.get(t, "/eureka/apps"); got.status != 403 {
					t.Errorf("while it loads: got %d, want 403", got.status)
				}
				time.Sleep(time.Hour) // virtual; the time of loading does not count
				if row.full {
					n.apply(t, registry.Register{Instance: newInstance("ORDERS", "i1")})
				}
				n.set(func(m *memory) { m.health.Ready = true })
				if got := n.send(t, "POST", "/eureka/apps/ORDERS", instanceJSON, "Content-Type: application/json"); got.status != 204 {
					t.Fatalf("a registration: got %d, want 204", got.status)
				}
				n.wantFetches(t, row.closed == 0)
				if row.closed > 0 {
					time.Sleep(row.closed - time.Millisecond) // virtual
					n.wantFetches(t, false)
					time.Sleep(time.Millisecond) // virtual
					n.wantFetches(t, true)
				}
				n.apply(t, registry.Cancel{Key: keyOf("i1")}, registry.Register{Instance: newInstance("ORDERS", "i2")})
				n.wantFetches(t, true) // once open it stays so
			})
		})
	}
}

// wantFetches fails unless fetches are answered, or all of them refused with an empty 403, and
// everything else is answered.
func (n *bubbled) wantFetches(t *testing.T, open bool) {
	t.Helper()
	for _, path := range gatedRoutes {
		got := n.get(t, path)
		if answered := got.status == 200; answered != open || !open && (got.status != 403 || got.body != "") {
			t.Errorf("GET %s: got %d %q, want it answered: %t", path, got.status, got.body, open)
		}
	}
	for _, path := range []string{"/eureka/status", "/v1/rollcall/apps", "/readyz", "/"} {
		if got := n.get(t, path); got.status != 200 {
			t.Errorf("GET %s: got %d, want 200", path, got.status)
		}
	}
}
