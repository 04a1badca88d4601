package registry

import "fmt"

// Condition says whether self-preservation should be on, given figures that Freshness counted: the
// one function for the decision and for every metric and answer. reason is a sentence with the numbers.
//
// Upstream's gate lets evictions through while there are more renewals than the threshold; this is
// the trigger, its complement, so it holds at equality.
func (v *View) Condition(f Figures) (holds bool, reason string) {
	s := v.settings
	switch {
	case !s.SelfPreservation:
		return false, "self-preservation is switched off; " + f.share()
	case s.Expectation:
		return !f.upstreamAllows(), f.upstreamReason()
	case f.Counted == 0:
		return false, "no lease is older than one renewal interval"
	case f.Counted < s.Population:
		return false, fmt.Sprintf("%s, too few for self-preservation, which needs %d", f.share(), s.Population)
	case uint64(f.Fresh)*uint64(Whole) <= uint64(f.Counted)*uint64(s.Threshold):
		return true, fmt.Sprintf("%s, not above the threshold of %s", f.share(), s.Threshold)
	default:
		return false, fmt.Sprintf("%s, above the threshold of %s", f.share(), s.Threshold)
	}
}

// share says how many of the counted leases are fresh.
func (f Figures) share() string {
	return fmt.Sprintf("%d of %d leases were renewed in time", f.Fresh, f.Counted)
}

// upstreamReason says what upstream's formula makes of the renewals.
func (f Figures) upstreamReason() string {
	if f.Threshold == 0 {
		return "by upstream's formula, nothing is evicted under a threshold of 0 renewals per minute"
	}
	than := "not more"
	if f.upstreamAllows() {
		than = "more"
	}
	return fmt.Sprintf("by upstream's formula, %d renewals in the last minute are %s than the threshold of %d", f.Renewals, than, f.Threshold)
}
