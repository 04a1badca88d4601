package sim_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// endsIn returns how long a node says that the lease of an instance lasts.
func endsIn(w *sim.World, node, name string) time.Duration {
	w.Helper()
	e := sim.Document[api.Explanation](w, node, "/v1/rollcall/apps/"+name+"/explain")
	return time.Duration(e.ExpiresInMS) * time.Millisecond
}

func TestRenewedLeaseOutlivesItsDurationOnlyIfItIsDoubled(t *testing.T) {
	const lease = 10 * time.Second
	for name, tt := range map[string]struct {
		doubled bool
		renewed time.Duration // that a renewed lease lasts
	}{"default": {false, lease}, "doubled": {true, 2 * lease}} {
		t.Run(name, func(t *testing.T) {
			compat := func(c *config.Config) { c.Store.Settings.DoubledLease = tt.doubled }
			inBothModes(t, sim.Cluster{Nodes: 3, Configure: compat}, func(w *sim.World) {
				i := w.RegisterAt("n1", "MORTAL/registered", lease)
				w.Wait(told)
				w.GoneBy(i, lease+evicted+reach)

				i = w.RegisterAt("n1", "MORTAL/renewed", lease)
				w.AllListOnly(w.Names(), told, "renewed")
				w.RenewAt("n2", i)
				at := time.Now()
				w.Wait(renewed + expiry.TickAge) // after which followers know the leader's clock, too
				for _, n := range w.Names() {
					ends, want := endsIn(w, n, "MORTAL/renewed"), tt.renewed-time.Since(at)
					least, most := want-reach, want+reach
					if w.Mode() == config.CP {
						most += expiry.TickAge + expiry.ClockInterval
					}
					expect.That(w, ends > least && ends < most, "%s says that the lease ends in %v, want %v to %v", n, ends, least, most)
				}
				i.Lease = tt.renewed
				w.GoneBy(i, tt.renewed+evicted+reach)
			})
		})
	}
}

func TestReadOnlyCacheShowsAChangeAtTheNextMultipleOf30s(t *testing.T) {
	const every = 30 * time.Second
	cache := func(c *config.Config) { c.HTTPD.ReadOnlyCache = true }
	inBothModes(t, sim.Cluster{Nodes: 1, Configure: cache}, func(w *sim.World) {
		for _, id := range []string{"first", "second", "third"} {
			need.That(w, w.Lists("n1") != nil, "no list") // a response that was never asked for is built at once
			w.RegisterAt("n1", "ORDERS/"+id, long)
			w.Do(http.StatusOK, "n1", "GET", "/eureka/apps/ORDERS/"+id)
			next := time.Now().Truncate(every).Add(every)
			for ; time.Until(next) > reach; w.Wait(reach) {
				_, listed := w.Lists("n1")[id]
				need.That(w, !listed, "the change is listed %v before the next multiple of %v", time.Until(next), every)
			}
			w.Wait(time.Until(next) + reach)
			_, listed := w.Lists("n1")[id]
			expect.That(w, listed, "%s is not listed after the next multiple of %v", id, every)
		}
	})
}

// Upstream's threshold of a server with few clients is never exceeded, so it keeps a lone instance for ever.
func TestSelfPreservationByUpstreamsFormulaKeepsALoneInstanceForEver(t *testing.T) {
	const lease = 3 * time.Second
	compat := func(c *config.Config) {
		s := &c.Store.Settings
		s.Expectation, s.DoubledLease, s.ExpectationUpdate = true, true, time.Hour.Milliseconds()
	}
	inBothModes(t, sim.Cluster{Nodes: 3, Configure: compat}, func(w *sim.World) {
		for _, n := range w.Names() {
			settings := sim.Document[map[string]any](w, n, "/v1/rollcall/settings")
			for key, want := range map[string]any{
				"eureka-compat.expectation":                      true,
				"eureka-compat.expected-client-renewal-interval": "30s",
				"self-preservation.renewal-percent-threshold":    0.85,
			} {
				expect.Equal(w, settings[key], want, "%s has %s", n, key)
			}
		}
		w.RegisterAt("n1", "MORTAL/dead", lease)
		ended := time.Now().Add(lease)
		w.Wait(lease + evicted + reach + expiry.TickAge) // after which followers know the leader's clock, too
		for ; time.Since(ended) < 3*time.Minute; w.Wait(10 * time.Second) {
			for _, n := range w.Names() {
				p := sim.Document[api.SelfPreservation](w, n, "/v1/rollcall/self-preservation")
				u := p.Upstream
				need.That(w, p.State == "on" && p.Withheld == 1 && u.Decides && !u.AllowsEviction && u.ExpectedClients == 2 && u.Threshold == 3,
					"%s says %v after the end of the lease %+v", n, time.Since(ended), p)
				need.That(w, w.ListsOnly(n, "dead"), "%s has evicted it", n)
			}
		}
	})
}
