package httpd_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

// one is an enabled limiter with a single token a second in each bucket.
func one() httpd.RateLimit {
	return httpd.RateLimit{Enabled: true, BurstSize: 1, FetchRate: 1, FullFetchRate: 1}
}

// limited is the number of fetches of a target that were refused, or would have been.
func limited(t testing.TB, metrics *prometheus.Registry, name, target string) float64 {
	t.Helper()
	return gathered(t, metrics, "rollcall_http_rate_"+name+"_total", map[string]string{"target": target})
}

func TestRateLimitRefusesFetchesByTheirTarget(t *testing.T) {
	for _, row := range []struct {
		path, target string // "": not limited
		status       int
	}{
		{"/eureka/apps", "full", 200}, {"/eureka/apps/", "full", 200}, {"/eureka/apps//", "full", 200}, {"/eureka/apps///delta", "delta", 200}, {"//eureka/v2//apps?regions=a", "full", 200}, {"/v2/apps", "full", 200}, {"/eureka/v1/apps?consistency=stale", "full", 200},
		{"/eureka/apps/delta", "delta", 200}, {"/v2/apps/delta", "delta", 200},
		{"/eureka/apps/ORDERS", "application", 200}, {"/eureka/apps/orders?x=/apps", "application", 200}, {"/eureka/apps/NONE", "application", 404},
		{"/eureka/apps/delta/", "", 200}, {"/eureka/apps/ORDERS/i1", "", 200}, {"/eureka/instances/i1", "", 200},
		{"/eureka/vips/orders", "", 200}, {"/eureka/svips/orders", "", 200}, {"/eureka/status", "", 200},
		{"/v1/rollcall/apps", "", 200}, {"/no/such/apps", "", 404}, {"/metrics", "", 200},
	} {
		t.Run(row.path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				metrics := prometheus.NewRegistry()
				n := newBubbled(t, httpd.Config{RateLimit: one(), Metrics: metrics})
				n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "i1")})
				refused := row.status
				if row.target != "" {
					refused = http.StatusServiceUnavailable
				}
				for i, want := range []int{row.status, refused, refused} {
					expect.Equal(t, n.send(t, "GET", row.path, "").status, want, "fetch %d: got", i+1)
				}
				for _, target := range []string{"full", "delta", "application"} {
					want := map[bool]float64{true: 2}[target == row.target]
					expect.Equal(t, limited(t, metrics, "limited", target), want, "refused as %s: got", target)
				}
				time.Sleep(time.Second) // virtual
				expect.Equal(t, n.send(t, "GET", row.path, "").status, row.status, "a second later: got")
			})
		})
	}
}

func TestRateLimitRefusalIsEmptyAndSaysWhenToComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := prometheus.NewRegistry()
		n := newBubbled(t, httpd.Config{RateLimit: one(), Metrics: metrics})
		n.send(t, "GET", "/eureka/apps", "", "Accept: application/json")
		n.send(t, "GET", "/eureka/apps", "", "Accept: application/json").is(t, 503, "", "it").with(t, "Retry-After", "1").with(t, "Content-Length", "0")
		labels := map[string]string{"route": "{base}/apps", "code": "503"}
		if got := gathered(t, metrics, "rollcall_http_requests_total", labels); got != 1 {
			t.Errorf("%v answers are counted as %v, want 1", got, labels)
		}
	})
}

func TestRateLimitTakesNoTokensFromPrivilegedClients(t *testing.T) {
	for _, row := range []struct {
		name, identity string
		throttle       bool
		passes         bool
	}{
		{"Java client", "DefaultClient", false, true},
		{"peer", "DefaultServer", false, true},
		{"listed", "batch-loader", false, true},
		{"not listed", "Batch-Loader", false, false},
		{"no identity", "", false, false},
		{"Java client, standard clients throttled", "DefaultClient", true, false},
		{"peer, standard clients throttled", "DefaultServer", true, false},
		{"listed, standard clients throttled", "batch-loader", true, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				settings := one()
				settings.ThrottleStandard, settings.Privileged = row.throttle, []string{"batch-loader"}
				n := newBubbled(t, httpd.Config{RateLimit: settings})
				var headers []string
				if row.identity != "" {
					headers = []string{"DiscoveryIdentity-Name: " + row.identity}
				}
				for i := range 5 {
					want := http.StatusOK
					if i > 0 && !row.passes {
						want = http.StatusServiceUnavailable
					}
					expect.Equal(t, n.send(t, "GET", "/eureka/apps", "", headers...).status, want, "fetch %d: got", i+1)
				}
				anonymous := map[bool]int{true: 200, false: 503}[row.passes]
				expect.Equal(t, n.send(t, "GET", "/eureka/apps", "").status, anonymous, "another client afterwards: got")
			})
		})
	}
}

func TestRateLimitTakesATokenFromBothBucketsForAFullFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newBubbled(t, httpd.Config{RateLimit: httpd.RateLimit{Enabled: true, BurstSize: 5, FetchRate: 1, FullFetchRate: 1}})
		statuses := func(path string, times int) []int {
			var got []int
			for range times {
				got = append(got, n.send(t, "GET", path, "").status)
			}
			return got
		}
		need.Slice(t, statuses("/eureka/apps/delta", 3), []int{200, 200, 200}, "deltas: got")
		// Both buckets serve a full fetch: the common one has two tokens left.
		need.Slice(t, statuses("/eureka/apps", 5), []int{200, 200, 503, 503, 503}, "full fetches: got")
		time.Sleep(time.Second) // virtual; one token more in each
		expect.Slice(t, statuses("/eureka/apps", 2), []int{200, 503}, "full fetches a second later: got")
	})
}

func TestRateLimitTakesNoCommonTokenForARefusedFullFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newBubbled(t, httpd.Config{RateLimit: httpd.RateLimit{Enabled: true, BurstSize: 3, FetchRate: 1000, FullFetchRate: 1}})
		for i := range 3 {
			n.send(t, "GET", "/eureka/apps", "")
			if i < 2 {
				time.Sleep(time.Millisecond) // virtual; the common token is back, that of full fetches is not
			}
		}
		time.Sleep(10 * time.Millisecond) // virtual
		for range 20 {
			need.Equal(t, n.send(t, "GET", "/eureka/apps", "").status, 503, "a full fetch too many: got")
		}
		for i := range 3 {
			n.send(t, "GET", "/eureka/apps/delta", "").says(t, 200, "", "delta %d", i+1)
		}
	})
}

func TestRateLimitCountsWouldBeRefusalsWhileDisabled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := prometheus.NewRegistry()
		n := newBubbled(t, httpd.Config{RateLimit: setting.Default[httpd.RateLimit](), Metrics: metrics})
		n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "i1")})
		for range 15 {
			for _, path := range []string{"/eureka/apps", "/eureka/apps/delta", "/eureka/apps/ORDERS"} {
				expect.Equal(t, n.send(t, "GET", path, "").status, 200, "GET %s: got", path)
			}
		}
		// The burst of ten served four of the full fetches, three deltas and three applications.
		for target, want := range map[string]float64{"full": 11, "delta": 12, "application": 12} {
			expect.Equal(t, limited(t, metrics, "would_limit", target), want, "would have been refused as %s: got", target)
			expect.Equal(t, limited(t, metrics, "limited", target), 0, "refused as %s: got", target)
		}
	})
}

func TestRateLimitTokensAreOfOneHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 2 {
			n := newBubbled(t, httpd.Config{RateLimit: one()})
			expect.Equal(t, n.send(t, "GET", "/eureka/apps", "").status, 200, "the first fetch from a node: got")
		}
	})
}

func TestRateLimitNeverRefusesWritesHeadAndPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newBubbled(t, httpd.Config{RateLimit: one()})
		n.send(t, "GET", "/eureka/apps", "")
		need.Equal(t, n.send(t, "GET", "/eureka/apps", "").status, 503, "the limiter has a token left: got")
		for range 20 {
			for _, r := range []struct {
				method, target, body string
				want                 int
			}{
				{"POST", "/eureka/apps/ORDERS", instanceJSON, 204},
				{"PUT", "/eureka/apps/ORDERS/i1", "", 200}, {"PUT", "/eureka/apps/ORDERS/i1/", "", 200},
				{"PUT", "/eureka/apps/ORDERS/i1/status?value=UP", "", 200}, {"PUT", "/eureka/apps/ORDERS/i1/metadata?a=b", "", 200},
				{"POST", "/eureka/peerreplication/batch/", batchJSON, 200},
				{"HEAD", "/eureka/apps", "", 200}, {"HEAD", "/eureka/apps/ORDERS", "", 200},
				{"DELETE", "/eureka/apps/ORDERS/i1", "", 200},
			} {
				need.Equal(t, n.send(t, r.method, r.target, r.body, "Content-Type: application/json").status, r.want, "%s %s: got", r.method, r.target)
			}
		}
	})
}

// Spring's and JavaScript's clients send no identity, so the limiter is about them: its defaults must
// leave them enough. Here 300 of them start within three seconds and then fetch as they do.
func TestRateLimitDefaultsDoNotStarveClientsWithoutIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settings := setting.Default[httpd.RateLimit]()
		settings.Enabled = true
		n := newBubbled(t, httpd.Config{RateLimit: settings})
		n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "i1")})
		fetch := func(path string) {
			for i := range 300 {
				agent := []string{"Java/17.0.1", "node-fetch/1.0"}[i%2]
				need.Equal(t, n.send(t, "GET", path, "", "Accept: application/json", "User-Agent: "+agent).status, 200, "client %d: GET %s: got", i, path)
				time.Sleep(10 * time.Millisecond) // virtual
			}
		}
		fetch("/eureka/apps/")
		for range 3 {
			time.Sleep(27 * time.Second) // virtual; every client comes again after 30 s
			fetch("/eureka/apps/delta")
		}
	})
}

func TestRateLimitRefusesAnEmptyPrivilegedName(t *testing.T) {
	_, err := httpd.New(httpd.Config{Service: registrytest.New(), RateLimit: httpd.RateLimit{Privileged: []string{"a", ""}}})
	expect.That(t, err != nil && strings.Contains(err.Error(), "RateLimit.Privileged"), "got %v, want an error that names RateLimit.Privileged", err)
	synctest.Test(t, func(t *testing.T) {
		n := newBubbled(t, httpd.Config{})
		settings := one()
		settings.Privileged = []string{""}
		n.handler.SetRateLimit(settings)
		n.send(t, "GET", "/eureka/apps", "", "DiscoveryIdentity-Name: ")
		expect.Equal(t, n.send(t, "GET", "/eureka/apps", "", "DiscoveryIdentity-Name: ").status, 503, "a client with an empty name: got")
	})
}
