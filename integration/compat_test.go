package integration

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// TestLeaseOutlivesItsDurationOnlyWhenItIsDoubled renews two instances on a cluster with upstream's lease
// and on one without.
func TestLeaseOutlivesItsDurationOnlyWhenItIsDoubled(t *testing.T) {
	t.Parallel()
	const lease = 10
	for _, tc := range []struct {
		name     string
		settings map[string]string
		renewed  int // seconds that a renewed lease lasts
	}{
		{"default", nil, lease},
		{"doubled", map[string]string{"eureka-compat.doubled-lease": "true"}, 2 * lease},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			eachMode(t, func(t *testing.T, ap bool) {
				cfg := smallConfig(ap, 1)
				cfg.Settings = tc.settings
				c := StartCluster(t, cfg)
				for _, id := range []string{"renewed", "registered"} {
					mustRegister(t, c.Nodes[0], Instance{App: "MORTAL", ID: id, Duration: lease})
				}
				mustEndWithin(t, c, "registered", 0, lease)
				renewed := time.Now()
				through := c.Nodes[1%len(c.Nodes)]
				mustTake(t, through, "renew", func() Response { return through.Renew("MORTAL", "renewed") })
				mustEndWithin(t, c, "renewed", tc.renewed-lease, tc.renewed)
				awaitEviction(t, c, "renewed", tc.renewed, renewed)
			})
		})
	}
}

// mustEndWithin expects every node to say that a lease ends in more than least and at most most
// seconds.
func mustEndWithin(t *testing.T, c *Cluster, id string, least, most int) {
	t.Helper()
	for _, n := range c.Nodes {
		e, err := readUntilTaken(func() (*api.Explanation, error) { return n.Explain("MORTAL", id) })
		expect.That(t, err == nil && e != nil && e.ExpiresInMS > int64(least)*1000 && e.ExpiresInMS <= int64(most)*1000,
			"node %s explains %s by %+v, %v, want that it ends in more than %d and at most %d s", n.Name, id, e, err, least, most)
	}
}

// TestReadOnlyCacheShowsChangesLate reads a change that the cache does not have yet. The cache is refreshed every 30 s,
// which may happen between a change and the read, but not twice running.
func TestReadOnlyCacheShowsChangesLate(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		c := StartCluster(t, Config{AP: ap, Nodes: 1, Settings: map[string]string{"eureka-compat.read-only-cache": "true"}})
		n := c.Nodes[0]
		mustList(t, n)
		var id string
		late := false
		for i := 0; i < 2 && !late; i++ {
			id = fmt.Sprintf("orders-%d", i)
			mustRegister(t, n, Instance{App: "ORDERS", ID: id})
			_, listed := mustList(t, n)[id]
			late = !listed
		}
		need.That(t, late, "every change was listed at once")
		instance, err := n.Lookup("ORDERS", id)
		expect.That(t, err == nil && instance != nil, "the instance itself: %v, %v, want it at once", instance, err)
		Eventually(t, 5*time.Minute, "the change is listed", func() error {
			if _, listed := mustList(t, n)[id]; !listed {
				return errors.New("not yet")
			}
			return nil
		})
	})
}

// TestSelfPreservationByUpstreamsFormulaKeepsALoneInstanceForEver brings back how upstream treats a server with few
// clients: its threshold of 3 renewals a minute is never exceeded.
func TestSelfPreservationByUpstreamsFormulaKeepsALoneInstanceForEver(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		cfg := smallConfig(ap, 2)
		cfg.Settings = map[string]string{"eureka-compat.expectation": "true", "eureka-compat.doubled-lease": "true"}
		c := StartCluster(t, cfg)
		mustAgreeOnSettings(t, c)
		mustRegister(t, c.Nodes[0], Instance{App: "MORTAL", ID: "dead", Duration: 3})
		for _, n := range c.Nodes {
			Eventually(t, herdLimit, "upstream's formula keeps the instance on node "+n.Name, func() error {
				p, err := n.Preservation()
				if err != nil {
					return err
				}
				u := p.Upstream
				return unless(p.State == "on" && p.Withheld == 1 && u.Decides && !u.AllowsEviction && u.ExpectedClients == 2 && u.Threshold == 3, "%+v", p)
			})
		}
	})
}

// mustAgreeOnSettings expects the settings of the leader, or of each, on all nodes.
func mustAgreeOnSettings(t *testing.T, c *Cluster) {
	t.Helper()
	for _, n := range c.Nodes {
		settings, err := readUntilTaken(func() (map[string]any, error) { return ask[map[string]any](n, "/v1/rollcall/settings") })
		expect.OKf(t, err, "node %s", n.Name)
		for key, want := range map[string]any{
			"eureka-compat.expectation":                      true,
			"eureka-compat.expected-client-renewal-interval": "30s",
			"self-preservation.renewal-percent-threshold":    0.85,
		} {
			expect.Equal(t, settings[key], want, "node %s has %s", n.Name, key)
		}
	}
}
