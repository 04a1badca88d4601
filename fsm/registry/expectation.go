package registry

import (
	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// ExpectationState is upstream's bookkeeping, see Expectation.
type ExpectationState struct {
	Clients    uint32
	Minute     int64 // which minute of the lease clock Current belongs to
	Current    uint32
	Last       uint32 // in the minute before
	NextUpdate int64  // lease clock, ms
}

func (e *ExpectationState) fields(c *codec.Codec) {
	c.Uint32(&e.Clients)
	c.Int64(&e.Minute)
	c.Uint32(&e.Current)
	c.Uint32(&e.Last)
	c.Int64(&e.NextUpdate)
}

// minute is the time (ms of lease clock) over which upstream counts renewals.
const minute = 60_000

// upstreamAllows is upstream's gate: it allows evictions only while there are more renewals than the threshold, which
// must not be 0.
// Source: PeerAwareInstanceRegistryImpl.isLeaseExpirationEnabled.
func upstreamAllows(f Figures) bool { return f.Threshold > 0 && f.Renewals > f.Threshold }

// renewalThreshold is the number of renewals per minute at or below which upstream stops evicting:
// (int) (clients * (60.0 / expectedClientRenewalIntervalSeconds) * renewalPercentThreshold), without
// its rounding errors.
func renewalThreshold(s Settings, clients uint32) uint32 {
	interval := uint64(s.ExpectedInterval)
	if interval < 1 {
		interval = 30
	}
	return uint32(uint64(clients) * 60 * uint64(s.Threshold) / (interval * uint64(Whole)))
}

// startMinute moves on to the minute of a moment, if Current belongs to another one. Call it before counting a
// renewal of that moment.
func (e *ExpectationState) startMinute(now int64) {
	if now/minute == e.Minute {
		return
	}
	e.Last, e.Current, e.Minute = e.renewals(now), 0, now/minute
}

// renewals returns how many came in the last minute that is complete at a moment.
func (e *ExpectationState) renewals(now int64) uint32 {
	switch now/minute - e.Minute {
	case 0:
		return e.Last
	case 1:
		return e.Current
	default:
		return 0
	}
}

// sliding estimates the renewals of the 60 s before a moment: those of its own minute, and the share of the previous
// minute that the 60 s reach back to, as if renewals came evenly.
func (e *ExpectationState) sliding(now int64) uint32 {
	var current uint32
	if now/minute == e.Minute {
		current = e.Current
	}
	return current + uint32(int64(e.renewals(now))*(minute-now%minute)/minute)
}
