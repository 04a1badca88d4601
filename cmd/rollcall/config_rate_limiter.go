package main

import (
	"github.com/seed-20419f34/rollcall/httpd"
)

// RateLimiterConfig bounds how often the registry is fetched through Eureka's base paths. It is read
// again on SIGHUP.
type RateLimiterConfig struct {
	Enabled       bool     `key:"rate-limiter.enabled" help:"refuse fetches above the rates with 503 (rateLimiter.enabled); otherwise they are only counted"`
	BurstSize     int      `key:"rate-limiter.burst-size" default:"10" min:"0" help:"fetches that may come at once, and full fetches among them (rateLimiter.burstSize); 0: no limit"`
	FetchRate     int64    `key:"rate-limiter.registry-fetch-average-rate" default:"500" min:"0" help:"fetches a second in the long run, full, delta and of applications together (rateLimiter.registryFetchAverageRate); 0: no limit"`
	FullFetchRate int64    `key:"rate-limiter.full-fetch-average-rate" default:"100" min:"0" help:"full fetches a second in the long run (rateLimiter.fullFetchAverageRate); 0: no limit"`
	Throttle      bool     `key:"rate-limiter.throttle-standard-clients" help:"no client is privileged, not even those listed (rateLimiter.throttleStandardClients)"`
	Privileged    []string `key:"rate-limiter.privileged-clients" help:"values of DiscoveryIdentity-Name that are not limited, beside DefaultClient and DefaultServer (rateLimiter.privilegedClients)"`
}

func (c *RateLimiterConfig) http() httpd.RateLimit {
	return httpd.RateLimit{
		Enabled:          c.Enabled,
		BurstSize:        c.BurstSize,
		FetchRate:        c.FetchRate,
		FullFetchRate:    c.FullFetchRate,
		ThrottleStandard: c.Throttle,
		Privileged:       c.Privileged,
	}
}
