package eureka

import (
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// Bucket is a token bucket: a burst of calls at once and a rate over time. The server's limiter of registry fetches
// uses it, per second, and the client's replicator of local changes, per minute. It queues nothing, waits for nothing
// and starts nothing: it says whether a call may be made now, and when the next one may.
//
// It follows the rules of upstream's com.netflix.discovery.util.RateLimiter; docs/reference/protocol/rate-limiter.md
// has them, and says where this bucket is more exact. Burst and rate are passed with each call, so they may change at
// any time. Safe for concurrent use; made by NewBucket.
type Bucket struct {
	unit  uint64    // of rates, ms
	since time.Time // zero of the bucket's own clock
	level atomic.Pointer[level]
}

// level is the state of a bucket at one moment, nil before the first call. It is never changed: refill time and tokens
// are replaced together, by one compare-and-swap. If each had its own word, a call in between would be refused
// although there are tokens.
type level struct {
	refilled int64  // when whole tokens were last added, ms
	part     uint64 // what was earned beyond them: tokens × unit, less than one token
	consumed int
}

// NewBucket returns a full bucket whose rates are tokens per unit: time.Second or time.Minute. Any other
// unit is an error.
func NewBucket(unit time.Duration) (*Bucket, error) {
	if unit != time.Second && unit != time.Minute {
		return nil, fmt.Errorf("rate limit: the unit of rates is %v; want a second or a minute", unit)
	}
	return &Bucket{unit: uint64(unit.Milliseconds()), since: time.Now()}, nil
}

// Acquire takes a token if there is one: at most burst can be out, and rate come back in each unit. A burst or a rate
// of zero or less limits nothing. The time is the bucket's own, which never goes back.
func (b *Bucket) Acquire(burst int, rate int64) bool { return b.AcquireAt(burst, rate, b.now()) }

// AcquireAt is Acquire at a time in ms, of any clock, which must be the same one in all calls for a bucket. A time
// before an earlier call's brings no tokens; if it is more than a unit before, the clock was set back, and tokens are
// earned from there on.
func (b *Bucket) AcquireAt(burst int, rate, now int64) bool {
	if burst <= 0 || rate <= 0 {
		return true
	}
	for {
		old := b.level.Load()
		next := b.refill(old, burst, rate, now)
		admitted := next.consumed < burst
		if admitted {
			next.consumed++
		}
		if old != nil && next == *old {
			return false
		}
		if stored := next; b.level.CompareAndSwap(old, &stored) { // a copy, so that a refusal allocates nothing
			return admitted
		}
	}
}

// Wait returns how long it takes until Acquire can succeed, if no other call takes that token, or 0 if it can now.
func (b *Bucket) Wait(burst int, rate int64) time.Duration { return b.WaitAt(burst, rate, b.now()) }

// WaitAt is Wait at a time in ms.
func (b *Bucket) WaitAt(burst int, rate, now int64) time.Duration {
	if burst <= 0 || rate <= 0 {
		return 0
	}
	l := b.refill(b.level.Load(), burst, rate, now)
	if l.consumed < burst {
		return 0
	}
	due := int64((b.unit - l.part + uint64(rate) - 1) / uint64(rate)) // ms after refilled, rounded up
	return time.Duration(due-(now-l.refilled)) * time.Millisecond
}

func (b *Bucket) now() int64 { return time.Since(b.since).Milliseconds() }

// refill returns the level at now: the whole tokens earned since the last refill have come back. The first call finds
// the bucket full. A smaller burst takes effect at the next refill.
func (b *Bucket) refill(old *level, burst int, rate, now int64) level {
	if old == nil {
		return level{refilled: now}
	}
	l := *old
	if now < l.refilled {
		if uint64(l.refilled)-uint64(now) > b.unit {
			l.refilled = now
		}
		return l
	}
	tokens, part := b.earned(uint64(now)-uint64(l.refilled), uint64(rate), l.part)
	if tokens == 0 {
		return l
	}
	l.refilled, l.part = now, part
	if l.consumed = min(l.consumed, burst); uint64(l.consumed) > tokens {
		l.consumed -= int(tokens)
	} else {
		l.consumed = 0
	}
	return l
}

// earned returns what ms bring at a rate, added to a part of a token: whole tokens and the part left. The product has
// 128 bits, so that no clock and no rate can overflow it.
func (b *Bucket) earned(ms, rate, part uint64) (tokens, left uint64) {
	high, low := bits.Mul64(ms, rate)
	low, carry := bits.Add64(low, part, 0)
	high += carry
	if high >= b.unit {
		return math.MaxUint64, bits.Rem64(high, low, b.unit) // more than any bucket holds
	}
	return bits.Div64(high, low, b.unit)
}
