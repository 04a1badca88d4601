package store

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestLeaseClockNeverChargesMoreThanItMay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c leaseClock
		base := rapid.Int64Range(0, 1<<40).Draw(t, "base")
		begin := time.Now()
		now := begin // moves in whole ms, so that nothing is lost in rounding
		c.start(base, now)
		value, applied, newest := base, base, now
		for range rapid.IntRange(1, 200).Draw(t, "readings") {
			now = now.Add(time.Duration(step(t)) * time.Millisecond)
			if rapid.Bool().Draw(t, "an entry was applied") {
				stamp := rapid.Int64Range(applied, value).Draw(t, "stamp")
				c.observe(stamp)
				applied = stamp
			}
			got, _ := c.read(now)
			passed := max(0, now.Sub(newest).Milliseconds())
			switch {
			case got < value:
				t.Fatalf("went back from %d to %d", value, got)
			case got-value > passed:
				t.Fatalf("added %d ms in %d ms", got-value, passed)
			case got-value > maxStep.Milliseconds():
				t.Fatalf("added %d ms in one reading", got-value)
			case got > applied+maxLead.Milliseconds():
				t.Fatalf("%d ms with the newest entry at %d ms", got, applied)
			case got-base > newest.Sub(begin).Milliseconds()+passed:
				t.Fatalf("ran %d ms in %v", got-base, now.Sub(begin))
			}
			value = got
			if now.After(newest) {
				newest = now
			}
		}
	})
}

// step is a time (ms) between two readings: mostly the ordinary one, but pauses of any length too, and
// readings that overtook each other.
func step(t *rapid.T) int64 {
	return rapid.OneOf(
		rapid.Int64Range(0, clockInterval.Milliseconds()),
		rapid.Int64Range(-50, 2*maxStep.Milliseconds()),
		rapid.Int64Range(0, time.Hour.Milliseconds()),
	).Draw(t, "step")
}

func TestLeaseClockIsNotMovedByReadingsWhileItStandsStill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c leaseClock
		now := time.Now()
		c.start(1000, now)
		c.stop()
		for range rapid.IntRange(1, 20).Draw(t, "readings") {
			now = now.Add(time.Duration(step(t)) * time.Millisecond)
			got, _ := c.read(now)
			need.That(t, got == 1000, "read %d ms of a clock that was stopped at 1000 ms", got)
		}
	})
}
