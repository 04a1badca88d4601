package main

import (
	"log/slog"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// SelfPreservationConfig is when evictions are withheld. It is the cluster's: that of the node that
// leads holds on all nodes.
type SelfPreservationConfig struct {
	Enabled     bool           `key:"self-preservation.enabled" default:"true" help:"withhold evictions while too few leases are renewed (enableSelfPreservation); an operator's hold works without it"`
	Threshold   registry.Share `key:"self-preservation.renewal-percent-threshold" default:"0.85" help:"share of fresh leases, 0 to 1, at or below which evictions are withheld; 1 minus it is the share of the registry that one round may evict (renewalPercentThreshold); 1: nothing is ever evicted; 0 without self-preservation: all at once"`
	Population  uint32         `key:"self-preservation.min-instances" default:"10" max:"1000000" help:"least number of counted leases at which evictions are withheld"`
	MaxDuration int64          `key:"self-preservation.max-duration" default:"1h" min:"1s" zero:"for ever" unit:"ms" help:"how long evictions are withheld without an operator's act; 0: for ever"`
}

// EurekaCompatConfig brings upstream's behaviour back, for comparison.
type EurekaCompatConfig struct {
	All                     bool   `key:"eureka-compat.all" help:"turn the four switches below on: leases end, and are kept, as a stock Eureka server does it"`
	DoubledLease            bool   `key:"eureka-compat.doubled-lease" cluster:"yes" help:"a renewed lease lives two durations (Lease.renew)"`
	Expectation             bool   `key:"eureka-compat.expectation" cluster:"yes" help:"self-preservation by upstream's formula: renewals of the last minute against those expected (numberOfRenewsPerMinThreshold)"`
	ExpectedRenewalInterval uint32 `key:"eureka-compat.expected-client-renewal-interval" cluster:"yes" default:"30s" min:"1s" unit:"s" help:"time between two renewals that the formula expects of a client, whole seconds (expectedClientRenewalIntervalSeconds)"`
	ThresholdUpdateInterval int64  `key:"eureka-compat.renewal-threshold-update-interval" cluster:"yes" default:"15m" min:"1s" unit:"ms" help:"how often the formula's number of clients is set to the number of instances (renewalThresholdUpdateIntervalMs)"`
}

// leases translates what decides how leases end.
func (c *Config) leases() registry.Settings {
	p, compat := &c.SelfPreservation, &c.EurekaCompat
	return registry.Settings{
		SelfPreservation:  p.Enabled,
		Threshold:         p.Threshold,
		Population:        p.Population,
		Bound:             p.MaxDuration,
		Expectation:       compat.Expectation,
		ExpectedInterval:  compat.ExpectedRenewalInterval,
		ExpectationUpdate: compat.ThresholdUpdateInterval,
		DoubledLease:      compat.DoubledLease,
		OnCut:             c.Replication.onCut(),
	}
}

// warn says what is allowed and yet probably not meant.
func (c *Config) warn(log *slog.Logger) {
	c.warnExposed(log)
	if c.leases().Threshold == registry.Whole {
		log.Warn("nothing is ever evicted: the threshold leaves a round no share of the registry",
			"key", "self-preservation.renewal-percent-threshold", "value", c.SelfPreservation.Threshold)
	}
}
