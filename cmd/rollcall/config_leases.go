package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// EvictionConfig is the end of leases.
type EvictionConfig struct {
	Interval time.Duration `yaml:"interval" help:"how often the leader looks for expired leases; upstream's 60 s (evictionIntervalTimerInMs) is eureka-compat.eviction-timer"`
}

// SelfPreservationConfig is when evictions are withheld. It is the cluster's: that of the node that
// leads holds on all nodes.
type SelfPreservationConfig struct {
	Enabled     bool          `yaml:"enabled" help:"withhold evictions while too few leases are renewed (enableSelfPreservation); an operator's hold works without it"`
	Threshold   float64       `yaml:"renewal-percent-threshold" help:"share of fresh leases, 0 to 1, at or below which evictions are withheld; 1 minus it is the share of the registry that one round may evict (renewalPercentThreshold); 1: nothing is ever evicted; 0 without self-preservation: all at once"`
	Population  int           `yaml:"min-instances" help:"least number of counted leases at which evictions are withheld"`
	MaxDuration time.Duration `yaml:"max-duration" help:"how long evictions are withheld without an operator's act; 0: for ever"`
}

// EurekaCompatConfig brings upstream's behaviour back, for comparison.
type EurekaCompatConfig struct {
	All                     bool          `yaml:"all" help:"turn the four switches below on: leases end, and are kept, as a stock Eureka server does it"`
	DoubledLease            bool          `yaml:"doubled-lease" help:"a renewed lease lives two durations (Lease.renew)"`
	EvictionTimer           bool          `yaml:"eviction-timer" help:"evict every 60 s, first after 60 s (evictionIntervalTimerInMs)"`
	Expectation             bool          `yaml:"expectation" help:"self-preservation by upstream's formula: renewals of the last minute against those expected (numberOfRenewsPerMinThreshold)"`
	ReadOnlyCache           bool          `yaml:"read-only-cache" help:"Eureka clients read documents that are up to 30 s old (useReadOnlyResponseCache, responseCacheUpdateIntervalMs)"`
	ExpectedRenewalInterval time.Duration `yaml:"expected-client-renewal-interval" help:"time between two renewals that the formula expects of a client, whole seconds (expectedClientRenewalIntervalSeconds)"`
	ThresholdUpdateInterval time.Duration `yaml:"renewal-threshold-update-interval" help:"how often the formula's number of clients is set to the number of instances (renewalThresholdUpdateIntervalMs)"`
}

func defaultSelfPreservation() SelfPreservationConfig {
	return SelfPreservationConfig{Enabled: true, Threshold: 0.85, Population: 10, MaxDuration: time.Hour}
}

func defaultEurekaCompat() EurekaCompatConfig {
	return EurekaCompatConfig{ExpectedRenewalInterval: 30 * time.Second, ThresholdUpdateInterval: 15 * time.Minute}
}

// expand makes eureka-compat.all what it stands for.
func (c *EurekaCompatConfig) expand() {
	for _, on := range []*bool{&c.DoubledLease, &c.EvictionTimer, &c.Expectation, &c.ReadOnlyCache} {
		*on = *on || c.All
	}
}

// mostCounted bounds a number of leases in the settings: more than any registry holds.
const mostCounted = 1_000_000

func (c *SelfPreservationConfig) validate() error {
	errs := []error{
		atLeast("self-preservation.min-instances", c.Population, 0),
		atMost("self-preservation.min-instances", c.Population, mostCounted),
	}
	if !(c.Threshold >= 0 && c.Threshold <= 1) { // false for NaN too
		errs = append(errs, fmt.Errorf("self-preservation.renewal-percent-threshold: %v is not a share between 0 and 1, such as 0.85", c.Threshold))
	}
	if c.MaxDuration != 0 {
		errs = append(errs, atLeast("self-preservation.max-duration", c.MaxDuration, time.Second))
	}
	return errors.Join(errs...)
}

func (c *EurekaCompatConfig) validate() error {
	_, err := seconds("eureka-compat.expected-client-renewal-interval", c.ExpectedRenewalInterval)
	return errors.Join(err, atLeast("eureka-compat.renewal-threshold-update-interval", c.ThresholdUpdateInterval, time.Second))
}

// leases translates what decides how leases end.
func (c *Config) leases() registry.Settings {
	p, compat := &c.SelfPreservation, &c.EurekaCompat
	return registry.Settings{
		SelfPreservation:  p.Enabled,
		Threshold:         registry.Share(math.Round(p.Threshold * float64(registry.Whole))),
		Population:        uint32(p.Population),
		Bound:             p.MaxDuration.Milliseconds(),
		Expectation:       compat.Expectation,
		ExpectedInterval:  uint32(compat.ExpectedRenewalInterval / time.Second),
		ExpectationUpdate: compat.ThresholdUpdateInterval.Milliseconds(),
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
