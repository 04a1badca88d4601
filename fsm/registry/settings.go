package registry

// Settings decide how leases end. They travel in the Establish entry of each leadership and are part
// of the state, so that every node explains a lease alike, whatever its own file says.
type Settings struct {
	// SelfPreservation: it may come on by itself (upstream: enableSelfPreservation). An operator's
	// hold works without it.
	SelfPreservation bool
	// Threshold is the share of fresh leases at or below which self-preservation comes on; 1 minus it
	// is the share of the registry that one eviction round may take (renewalPercentThreshold).
	Threshold Share
	// Population is the least number of counted leases at which self-preservation comes on.
	Population uint32
	// Bound is how long (ms of lease clock) it stays on by itself before it is released; 0: for ever.
	Bound int64
	// Expectation lets upstream's formula decide instead (eureka-compat.expectation): no population,
	// no bound.
	Expectation bool
	// ExpectedInterval (s) is upstream's expectedClientRenewalIntervalSeconds; below 1 it means 30.
	ExpectedInterval uint32
	// ExpectationUpdate (ms) is how often upstream's expectation is set to the number of leases
	// (renewalThresholdUpdateIntervalMs).
	ExpectationUpdate int64
	// DoubledLease gives a lease that was renewed two durations, as upstream's Lease.renew does
	// (eureka-compat.doubled-lease). The renewal time that is kept and shown stays the true one.
	DoubledLease bool
}

// Share is a part of a whole, in millionths: the state holds no floating-point numbers.
type Share uint32

// Whole is a share of 1.
const Whole Share = 1_000_000

// DefaultSettings hold until a leader says otherwise.
func DefaultSettings() Settings {
	return Settings{
		SelfPreservation:  true,
		Threshold:         850_000,
		Population:        10,
		Bound:             60 * 60 * 1000,
		ExpectedInterval:  30,
		ExpectationUpdate: 15 * 60 * 1000,
	}
}

// Of is the share of n, rounded down: upstream's (int) (n * renewalPercentThreshold).
func (s Share) Of(n int) int { return int(uint64(n) * uint64(s) / uint64(Whole)) }
