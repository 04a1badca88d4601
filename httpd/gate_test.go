package httpd_test

import (
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
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
				n.Set(func(m *registrytest.Memory) { m.Said.Ready = false })
				expect.Equal(t, n.get(t, "/eureka/apps").status, 403, "while it loads: got")
				time.Sleep(time.Hour) // virtual; the time of loading does not count
				if row.full {
					n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "i1")})
				}
				n.Set(func(m *registrytest.Memory) { m.Said.Ready = true })
				need.Equal(t, n.send(t, "POST", "/eureka/apps/ORDERS", instanceJSON, "Content-Type: application/json").status, 204, "a registration: got")
				n.wantFetches(t, row.closed == 0)
				if row.closed > 0 {
					time.Sleep(row.closed - time.Millisecond) // virtual
					n.wantFetches(t, false)
					time.Sleep(time.Millisecond) // virtual
					n.wantFetches(t, true)
				}
				n.Perform(t, registry.Cancel{Key: keyOf("i1")}, registry.Register{Instance: newInstance("ORDERS", "i2")})
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
		expect.Equal(t, n.get(t, path).status, 200, "GET %s: got", path)
	}
}
