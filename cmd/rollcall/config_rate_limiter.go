package main

import (
	"errors"

	"github.com/seed-20419f34/rollcall/httpd"
)

// RateLimiterConfig bounds how often the registry is fetched through Eureka's base paths. It is read
// again on SIGHUP.
type RateLimiterConfig struct {
	Enabled       bool     `yaml:"enabled" help:"refuse fetches above the rates with 503 (rateLimiter.enabled); otherwise they are only counted"`
	BurstSize     int      `yaml:"burst-size" help:"fetches that may come at once, and full fetches among them (rateLimiter.burstSize); 0: no limit"`
	FetchRate     int64    `yaml:"registry-fetch-average-rate" help:"fetches a second in the long run, full, delta and of applications together (rateLimiter.registryFetchAverageRate); 0: no limit"`
	FullFetchRate int64    `yaml:"full-fetch-average-rate" help:"full fetches a second in the long run (rateLimiter.fullFetchAverageRate); 0: no limit"`
	Throttle      bool     `yaml:"throttle-standard-clients" help:"no client is privileged, not even those listed (rateLimiter.throttleStandardClients)"`
	Privileged    []string `yaml:"privileged-clients" help:"values of DiscoveryIdentity-Name that are not limited, beside DefaultClient and DefaultServer (rateLimiter.privilegedClients)"`
}

func defaultRateLimiter() RateLimiterConfig {
	upstream := httpd.DefaultRateLimit()
	return RateLimiterConfig{BurstSize: upstream.BurstSize, FetchRate: upstream.FetchRate, FullFetchRate: upstream.FullFetchRate}
}

func (c *RateLimiterConfig) validate() error {
	return errors.Join(
		atLeast("rate-limiter.burst-size", c.BurstSize, 0),
		atLeast("rate-limiter.registry-fetch-average-rate", c.FetchRate, 0),
		atLeast("rate-limiter.full-fetch-average-rate", c.FullFetchRate, 0),
	)
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
