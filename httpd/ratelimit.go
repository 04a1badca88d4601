package httpd

import (
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// RateLimit holds the settings of the limiter of registry fetches, see docs/reference/protocol/rate-limiter.md. The
// zero value limits nothing and counts nothing.
type RateLimit struct {
	Enabled bool `key:"rate-limiter.enabled" help:"refuse fetches above the rates with 503 (rateLimiter.enabled); if false, only count them"`
	// Full fetches in a burst also draw on a bucket of their own, of the same size.
	BurstSize        int      `key:"rate-limiter.burst-size" default:"10" min:"0" help:"most fetches in a burst, and most full fetches (rateLimiter.burstSize); 0: no limit"`
	FetchRate        int64    `key:"rate-limiter.registry-fetch-average-rate" default:"500" min:"0" help:"fetches a second in the long run, counting full, delta and application fetches (rateLimiter.registryFetchAverageRate); 0: no limit"`
	FullFetchRate    int64    `key:"rate-limiter.full-fetch-average-rate" default:"100" min:"0" help:"full fetches a second in the long run (rateLimiter.fullFetchAverageRate); 0: no limit"`
	ThrottleStandard bool     `key:"rate-limiter.throttle-standard-clients" help:"exempt no client, not even those listed (rateLimiter.throttleStandardClients)"`
	Privileged       []string `key:"rate-limiter.privileged-clients" help:"values of DiscoveryIdentity-Name that are exempt, besides DefaultClient and DefaultServer (rateLimiter.privilegedClients)"`
}

// target is a kind of fetch that the limiter distinguishes.
type target uint8

const (
	notLimited target = iota
	fullFetch
	deltaFetch
	applicationFetch
)

// fetches are the targets that have a limit.
var fetches = [...]struct{ name, route string }{
	fullFetch:        {"full", "{base}/apps"},
	deltaFetch:       {"delta", "{base}/apps/delta"},
	applicationFetch: {"application", "{base}/apps/{app}"},
}

// targetOf returns what is fetched, by upstream's rule: a GET whose path, still escaped, matches ^.*/apps(/[^/]*)?$
// (RateLimitingFilter). So apps/delta/ has no limit, and an application called APPS counts as everything.
func targetOf(method, path string) target {
	if method != http.MethodGet {
		return notLimited
	}
	if strings.HasSuffix(path, "/apps") {
		return fullFetch
	}
	slash := strings.LastIndexByte(path, '/')
	if slash < 0 || !strings.HasSuffix(path[:slash], "/apps") {
		return notLimited
	}
	switch path[slash+1:] {
	case "":
		return fullFetch
	case "delta":
		return deltaFetch
	}
	return applicationFetch
}

// limiter refuses fetches of the registry when there are too many. Heartbeats and all other writes never come here:
// they are cheap, and the registry depends on them.
type limiter struct {
	rules             atomic.Pointer[limitRules]
	all, full         *eureka.Bucket
	refused, shadowed [len(fetches)]prometheus.Counter // by target
}

// limitRules are settings with the set of privileged names.
type limitRules struct {
	RateLimit
	privileged map[string]bool
}

func newLimiter(settings RateLimit, m *metrics) *limiter {
	l := new(limiter)
	l.all, _ = eureka.NewBucket(time.Second) // cannot fail: the unit is valid
	l.full, _ = eureka.NewBucket(time.Second)
	for t, fetch := range fetches {
		if fetch.name != "" {
			l.refused[t] = m.rateLimited.WithLabelValues(fetch.name)
			l.shadowed[t] = m.wouldLimit.WithLabelValues(fetch.name)
		}
	}
	l.set(settings)
	return l
}

// set replaces the settings. Tokens already taken stay taken.
func (l *limiter) set(settings RateLimit) {
	rules := &limitRules{RateLimit: settings, privileged: map[string]bool{}}
	if !settings.ThrottleStandard {
		rules.privileged["DefaultClient"], rules.privileged["DefaultServer"] = true, true
		for _, name := range settings.Privileged {
			rules.privileged[name] = name != ""
		}
	}
	l.rules.Store(rules)
}

// errRateLimited has no body, like upstream's. A new token is available within a second in any case.
var errRateLimited = &web.Refusal{Status: http.StatusServiceUnavailable, Retry: true}

// singleSlashes merges repeated slashes in a path, as the routes do: upstream does not serve apps//, so it needs no
// limit there.
func singleSlashes(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return path
}

// refuses takes the tokens for a fetch, and counts the fetch if there are too few.
func (l *limiter) refuses(t target, header http.Header) bool {
	rules := l.rules.Load()
	names := header["Discoveryidentity-Name"] // of several, the first one counts
	if len(names) > 0 && rules.privileged[names[0]] {
		return false
	}
	// The bucket of full fetches comes first, so that a full fetch that is refused there takes nothing from the others.
	full := t != fullFetch || l.full.Acquire(rules.BurstSize, rules.FullFetchRate)
	if full && l.all.Acquire(rules.BurstSize, rules.FetchRate) {
		return false
	}
	if rules.Enabled {
		l.refused[t].Inc()
	} else {
		l.shadowed[t].Inc()
	}
	return rules.Enabled
}
