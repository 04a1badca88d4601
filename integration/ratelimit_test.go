package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// limits are the settings of the rate limiter that a node reads anew on SIGHUP.
type limits struct {
	enabled, throttleStandard bool
	burst, rate, fullRate     int
	privileged                string
}

// write replaces the node's configuration file.
func (l limits) write(t *testing.T, file string) {
	t.Helper()
	text := fmt.Sprintf("rate-limiter:\n  enabled: %t\n  burst-size: %d\n  registry-fetch-average-rate: %d\n  full-fetch-average-rate: %d\n"+
		"  throttle-standard-clients: %t\n  privileged-clients: [%s]\n", l.enabled, l.burst, l.rate, l.fullRate, l.throttleStandard, l.privileged)
	need.OK(t, os.WriteFile(file, []byte(text), 0o600))
}

// limitedNode is a node whose limits change while it runs.
type limitedNode struct {
	*Node
	file string
}

// use gives the node other limits and waits until a probe shows that they hold.
func (n limitedNode) use(t *testing.T, l limits, holds func() error) {
	t.Helper()
	l.write(t, n.file)
	n.Signal(t, syscall.SIGHUP)
	Eventually(t, ReadyLimit, fmt.Sprintf("limits are %+v", l), holds)
}

const (
	unlimited = 0 // a rate
	fullPath  = "/eureka/v2/apps"
	deltaPath = "/eureka/v2/apps/delta"
	appPath   = "/eureka/v2/apps/ORDERS"
)

func TestRateLimiterRefusesFetchesByClassAndFollowsItsFile(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		file := filepath.Join(t.TempDir(), "node.yaml")
		limits{burst: 3, rate: 1, fullRate: 1, privileged: "ops"}.write(t, file)
		c := StartCluster(t, Config{AP: ap, Nodes: 1, Settings: map[string]string{"config": file}})
		n := limitedNode{c.Nodes[0], file}
		mustRegister(t, n.Node, Instance{App: "ORDERS", ID: "orders-1"})

		// Switched off it refuses nobody, and counts whom it would have.
		n.mustServe(t, 20, "", fullPath, deltaPath, appPath)
		counted := metric(t, n.Node, `rollcall_http_rate_would_limit_total{target="full"}`)
		expect.That(t, counted != 0, "a limiter that is off has counted nothing")

		// Full fetches have a bucket of their own, which is the only one that runs dry.
		n.use(t, limits{enabled: true, burst: 3, rate: unlimited, fullRate: 1, privileged: "ops"}, func() error { return n.refuses(fullPath) })
		n.mustPassAtMost(t, fullPath, 3, 1)
		n.mustServe(t, 20, "", deltaPath, appPath)
		n.mustServe(t, 20, "DefaultClient", fullPath)
		n.mustServe(t, 20, "ops", fullPath)

		// The common bucket is that of all fetches.
		n.use(t, limits{enabled: true, burst: 2, rate: 1, fullRate: unlimited}, func() error { return n.refuses(deltaPath) })
		for _, path := range []string{fullPath, deltaPath, appPath} {
			n.mustPassAtMost(t, path, 2, 1)
		}
		n.mustServe(t, 20, "", appPath+"/orders-1", "/eureka/v2/vips/ORDERS")
		n.mustServe(t, 20, "DefaultServer", fullPath, deltaPath, appPath)
		n.mustAcceptHeartbeats(t, 20)

		// A larger burst holds at once, and standard clients lose their privilege.
		n.use(t, limits{enabled: true, burst: 1000, rate: 1, fullRate: 1}, func() error { return n.serves(20, "", fullPath) })
		n.use(t, limits{enabled: true, burst: 1, rate: 1, fullRate: 1, throttleStandard: true}, func() error { return n.refuses(fullPath) })
		Eventually(t, ReadyLimit, "DefaultClient is refused", func() error {
			if n.serves(20, "DefaultClient", fullPath) == nil {
				return fmt.Errorf("20 full fetches were served")
			}
			return nil
		})
		n.mustAcceptHeartbeats(t, 20)
	})
}

// refuses returns nil if one of twenty fetches is refused as it should be.
func (n limitedNode) refuses(path string) error {
	for range 20 {
		answer := n.Get(path)
		if answer.Status != http.StatusServiceUnavailable {
			continue
		}
		if len(answer.Body) != 0 || answer.Header.Get("Retry-After") != "1" {
			return fmt.Errorf("refused by %v with Retry-After %q, want an empty 503 and 1", answer, answer.Header.Get("Retry-After"))
		}
		return nil
	}
	return fmt.Errorf("20 fetches of %s were served", path)
}

// serves returns nil if every one of some fetches is served.
func (n limitedNode) serves(times int, identity, path string) error {
	for range times {
		if answer := n.Do(Request{Path: path, Identity: identity}); answer.Status != http.StatusOK {
			return fmt.Errorf("%s as %q: %v, want 200", path, identity, answer)
		}
	}
	return nil
}

func (n limitedNode) mustServe(t *testing.T, times int, identity string, paths ...string) {
	t.Helper()
	for _, path := range paths {
		expect.OK(t, n.serves(times, identity, path))
	}
}

// mustPassAtMost sends fetches as fast as it can, of which no more may be served than the burst and
// what the rate (per second) brings meanwhile.
func (n limitedNode) mustPassAtMost(t *testing.T, path string, burst, rate int) {
	t.Helper()
	began, served := time.Now(), 0
	for range 50 {
		if n.Get(path).Status == http.StatusOK {
			served++
		}
	}
	took := time.Since(began)
	most := burst + rate*int(took/time.Second+1)
	expect.That(t, served <= most, "%d of 50 fetches of %s were served within %v, want at most %d", served, path, took, most)
}

func (n limitedNode) mustAcceptHeartbeats(t *testing.T, times int) {
	t.Helper()
	for range times {
		answer := n.Renew("ORDERS", "orders-1")
		need.That(t, answer.Status == http.StatusOK, "a heartbeat was answered %v, want 200", answer)
	}
}
