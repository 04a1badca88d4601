package eureka

import (
	"math/big"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestBucketRatesArePerSecondOrPerMinute(t *testing.T) {
	for _, unit := range []time.Duration{time.Second, time.Minute} {
		expect.OKf(t, expect.Err(NewBucket(unit)), "%v", unit)
	}
	for _, unit := range []time.Duration{0, -time.Second, time.Millisecond, time.Hour, time.Second + 1} {
		_, err := NewBucket(unit)
		expect.That(t, err != nil && strings.Contains(err.Error(), unit.String()), "%v: the error is %v, want one that names the unit", unit, err)
	}
}

func TestBucketClockIsTimeThatPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t, time.Second)
		for i := range 3 {
			expect.Equal(t, b.Acquire(2, 4), i < 2, "call %d: got", i+1)
		}
		need.Equal(t, b.Wait(2, 4), 250*time.Millisecond, "the wait is")
		time.Sleep(250 * time.Millisecond) // virtual
		expect.That(t, b.Wait(2, 4) == 0 && b.Acquire(2, 4) && !b.Acquire(2, 4), "after the wait there is not exactly one token")
	})
}

// All callers of an instant together get what one caller would get: none is refused because another one is refilling.
func TestBucketGivesManyCallersExactlyTheTokensOfAnInstant(t *testing.T) {
	const callers, burst, rate = 64, 10, 2000
	b, m := newBucket(t, time.Second), model{unit: 1000}
	for _, now := range []int64{0, 0, 1, 2, 5, 6, 11, 11, 12, 1000, 1001, 1004} {
		var got atomic.Int32
		var start, calls sync.WaitGroup
		start.Add(1)
		for range callers {
			calls.Go(func() {
				start.Wait()
				if b.AcquireAt(burst, rate, now) {
					got.Add(1)
				}
			})
		}
		start.Done()
		calls.Wait()
		want := int32(0)
		for range callers {
			if m.acquire(burst, rate, now) {
				want++
			}
		}
		expect.That(t, got.Load() == want, "at %d ms: %d of %d callers were admitted, want %d", now, got.Load(), callers, want)
	}
}

// model is the bucket in rational numbers, which neither round nor overflow, for one caller.
type model struct {
	unit     int64
	called   bool
	refilled int64
	part     *big.Rat // of a token
	out      int
}

func (m *model) acquire(burst int, rate, now int64) bool {
	if burst <= 0 || rate <= 0 {
		return true
	}
	if !m.called {
		m.called, m.refilled, m.part = true, now, new(big.Rat)
	}
	m.refill(burst, rate, now)
	if m.out >= burst {
		return false
	}
	m.out++
	return true
}

func (m *model) refill(burst int, rate, now int64) {
	passed := new(big.Int).Sub(big.NewInt(now), big.NewInt(m.refilled))
	if passed.Sign() < 0 {
		if passed.CmpAbs(big.NewInt(m.unit)) > 0 {
			m.refilled = now
		}
		return
	}
	earned := new(big.Rat).SetFrac(passed.Mul(passed, big.NewInt(rate)), big.NewInt(m.unit))
	earned.Add(earned, m.part)
	whole := new(big.Int).Quo(earned.Num(), earned.Denom())
	if whole.Sign() == 0 {
		return
	}
	m.refilled, m.part = now, earned.Sub(earned, new(big.Rat).SetInt(whole))
	left := new(big.Int).Sub(big.NewInt(int64(min(m.out, burst))), whole)
	m.out = int(max(0, clamp(left)))
}

// clamp returns n, or 0 if it is below what an int64 holds; it is never above.
func clamp(n *big.Int) int64 {
	if !n.IsInt64() {
		return 0
	}
	return n.Int64()
}

// upstream is the rule as upstream implements it: the time of refill moves by whole tokens, in whole ms.
type upstream struct {
	unit, refilled int64
	consumed       int64
}

func (u *upstream) acquire(burst, rate, now int64) bool {
	if tokens := (now - u.refilled) * rate / u.unit; tokens > 0 {
		if u.refilled == 0 {
			u.refilled = now
		} else {
			u.refilled += tokens * u.unit / rate
		}
		u.consumed = max(0, min(u.consumed, burst)-tokens)
	}
	if u.consumed >= burst {
		return false
	}
	u.consumed++
	return true
}

func newBucket(t testing.TB, unit time.Duration) *Bucket {
	t.Helper()
	return need.Got(NewBucket(unit))(t)
}

func units() *rapid.Generator[time.Duration] {
	return rapid.SampledFrom([]time.Duration{time.Second, time.Minute})
}

// steps generates times between calls: many at one instant, some long, a few back.
func steps() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 5), rapid.Int64Range(0, 5000), rapid.Int64Range(-120_000, 600_000))
}

func TestBucketIsTheExactModelWhileBurstAndRateChange(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		unit := units().Draw(rt, "unit")
		b, m := newBucket(t, unit), model{unit: unit.Milliseconds()}
		now := rapid.Int64Range(-1_000_000, 2_000_000_000_000).Draw(rt, "now")
		for range rapid.IntRange(1, 8).Draw(rt, "settings") {
			burst, rate := rapid.IntRange(-1, 20).Draw(rt, "burst"), rapid.Int64Range(-1, 3000).Draw(rt, "rate")
			for range rapid.IntRange(1, 60).Draw(rt, "calls") {
				now += steps().Draw(rt, "step")
				need.Equal(rt, b.AcquireAt(burst, rate, now), m.acquire(burst, rate, now), "burst %d, rate %d at %d: got", burst, rate, now)
			}
		}
	})
}

// If the rate has whole ms per token or whole tokens per ms, upstream loses nothing, and decides as we do.
func TestBucketDecidesAsUpstreamWhereItsArithmeticIsExact(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		unit := units().Draw(rt, "unit")
		ms := unit.Milliseconds()
		rate := rapid.SampledFrom([]int64{1, 2, 4, 10, 100, 500, ms / 2, ms, 2 * ms, 7 * ms}).Draw(rt, "rate")
		b, u := newBucket(t, unit), upstream{unit: ms}
		now := int64(1_700_000_000_000)
		for range rapid.IntRange(1, 300).Draw(rt, "calls") {
			now += rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, 2*ms/rate+1)).Draw(rt, "step")
			burst := rapid.IntRange(1, 12).Draw(rt, "burst")
			got, want := b.AcquireAt(burst, rate, now), u.acquire(int64(burst), rate, now)
			need.That(rt, got == want, "burst %d, rate %d per %v at %d: got %v, upstream's is %v", burst, rate, unit, now, got, want)
		}
	})
}

func TestBucketWaitEndsWithAToken(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		unit := units().Draw(rt, "unit")
		b := newBucket(t, unit)
		burst, rate := rapid.IntRange(1, 5).Draw(rt, "burst"), rapid.Int64Range(1, 3000).Draw(rt, "rate")
		now := int64(0)
		for range rapid.IntRange(1, 50).Draw(rt, "calls") {
			now += steps().Draw(rt, "step")
			wait := b.WaitAt(burst, rate, now).Milliseconds()
			need.That(rt, wait >= 0 && wait <= 2*unit.Milliseconds(), "rate %d per %v: the wait is %d ms", rate, unit, wait)
			need.That(rt, wait <= 0 || !b.AcquireAt(burst, rate, now) && !b.AcquireAt(burst, rate, now+wait-1), "rate %d per %v at %d: there was a token before the %d ms were over", rate, unit, now, wait)
			need.That(rt, b.AcquireAt(burst, rate, now+wait), "rate %d per %v at %d: no token after %d ms", rate, unit, now, wait)
			now += wait
		}
	})
}

// FuzzBucket gives a bucket any numbers, including the ends of their ranges.
func FuzzBucket(f *testing.F) {
	const most, least = int64(^uint64(0) >> 1), -1 << 63
	f.Add(true, 10, int64(500), int64(1_700_000_000_000), int64(2), int64(1))
	f.Add(false, 2, int64(4), int64(0), int64(15_000), int64(-1))
	f.Add(true, 1, most, int64(least), most, most)
	f.Add(true, int(most), int64(1), most, int64(least), int64(3))
	f.Fuzz(func(t *testing.T, perSecond bool, burst int, rate, now, step, change int64) {
		unit := time.Minute
		if perSecond {
			unit = time.Second
		}
		b, m := newBucket(t, unit), model{unit: unit.Milliseconds()}
		for range 20 {
			need.Equal(t, b.AcquireAt(burst, rate, now), m.acquire(burst, rate, now), "burst %d, rate %d at %d: got", burst, rate, now)
			wait := b.WaitAt(burst, rate, now)
			need.That(t, wait >= 0 && wait <= 2*unit, "burst %d, rate %d at %d: the wait is %v", burst, rate, now, wait)
			now += step // may overflow, which is just another jump of the clock
			rate += change
			burst += int(change)
		}
	})
}
