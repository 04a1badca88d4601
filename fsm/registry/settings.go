package registry

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

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
	// OnCut says what becomes of the leases of other datacenters while the links to them are cut, as package
	// replication writes it (replication.on-cut); "": all are kept.
	OnCut string
}

// Fields walks settings. A Threshold above the whole is written as the whole.
func (s *Settings) Fields(c *codec.Codec) {
	c.Bool(&s.SelfPreservation)
	s.Threshold.fields(c)
	c.Uint32(&s.Population)
	c.Int64(&s.Bound)
	c.Bool(&s.Expectation)
	c.Uint32(&s.ExpectedInterval)
	c.Int64(&s.ExpectationUpdate)
	c.Bool(&s.DoubledLease)
	c.Lasting(&s.OnCut)
}

// Share is a part of a whole, in millionths: the state holds no floating-point numbers.
type Share uint32

// Whole is a share of 1.
const Whole Share = 1_000_000

func (s *Share) fields(c *codec.Codec) {
	part := uint32(min(*s, Whole))
	if c.Uint32(&part); c.Reading() {
		if Share(part) > Whole {
			c.Fail("share of %d millionths, want at most %d", part, Whole)
			part = 0
		}
		*s = Share(part)
	}
}

// defaultThreshold is upstream's renewalPercentThreshold.
const defaultThreshold Share = 850_000

// DefaultSettings hold until a leader says otherwise.
func DefaultSettings() Settings {
	return Settings{
		SelfPreservation:  true,
		Threshold:         defaultThreshold,
		Population:        10,
		Bound:             60 * 60 * 1000,
		ExpectedInterval:  30,
		ExpectationUpdate: 15 * 60 * 1000,
	}
}

// Of is the share of n, rounded down: upstream's (int) (n * renewalPercentThreshold).
func (s Share) Of(n int) int { return int(uint64(n) * uint64(s) / uint64(Whole)) }

// String writes a share as a decimal fraction, such as 0.85.
func (s Share) String() string {
	whole, rest := s/Whole, s%Whole
	if rest == 0 {
		return fmt.Sprint(uint32(whole))
	}
	return fmt.Sprintf("%d.%s", uint32(whole), strings.TrimRight(fmt.Sprintf("%06d", uint32(rest)), "0"))
}

// UnmarshalText implements encoding.TextUnmarshaler, the inverse of String. It is for configurations: what the state holds is the
// number of millionths that the text is nearest to.
func (s *Share) UnmarshalText(text []byte) error {
	part, ok := new(big.Rat).SetString(string(text))
	if !ok || part.Sign() < 0 || part.Cmp(big.NewRat(1, 1)) > 0 || strings.Contains(string(text), "/") {
		return fmt.Errorf("%q is not a share between 0 and 1, such as 0.85", text)
	}
	millionths, err := strconv.ParseUint(part.Mul(part, big.NewRat(int64(Whole), 1)).FloatString(0), 10, 32)
	*s = Share(millionths)
	return err
}

// Configure sets how leases end, from now on. Whoever establishes an epoch says it first. What no
// setting can mean counts as the nearest that it can: an entry of the log is never refused.
func (r *Registry) Configure(s Settings) {
	s.Threshold = min(s.Threshold, Whole)
	s.Bound, s.ExpectationUpdate = max(s.Bound, 0), max(s.ExpectationUpdate, 0)
	ends := s.DoubledLease != r.settings.DoubledLease || s.Expectation != r.settings.Expectation
	r.settings = s
	if ends {
		r.reorder()
	}
	r.rebound()
	r.expectation.NextUpdate = min(r.expectation.NextUpdate, order.Later(r.clock.Lease, s.ExpectationUpdate))
}

// rebound applies the bound to self-preservation that is on already: an operator who changes it
// means the present incident.
func (r *Registry) rebound() {
	p := r.preservation()
	if p.State != PreservationOn {
		return
	}
	p.Until = r.settings.boundFrom(p.Since.Lease)
	r.transitions = slices.Clone(r.transitions) // views have the old one
	r.transitions[len(r.transitions)-1] = p
}

// boundFrom is the moment (lease clock, ms) at which self-preservation that came on by itself at a
// moment is released; 0: never.
func (s Settings) boundFrom(since int64) int64 {
	if s.Bound == 0 || s.Expectation {
		return 0
	}
	return order.Later(since, s.Bound)
}

// Settings are those of the present leadership.
func (v *View) Settings() Settings { return v.settings }
