package expiry

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestLeaseClock(t *testing.T) {
	begin := time.Now()
	at := func(d time.Duration) time.Time { return begin.Add(d) }
	tests := []struct {
		name string
		do   func(c *Clock)
		at   time.Duration
		want int64
	}{
		{"stands still before a leadership", func(c *Clock) {}, time.Hour, 0},
		{"goes on from the base", func(c *Clock) { c.Start(7000, begin) }, 0, 7000},
		{"runs with the monotonic time", func(c *Clock) { c.Start(0, begin) }, 100 * time.Millisecond, 100},
		{"a pause is charged with one step at most", func(c *Clock) { c.Start(0, begin) }, time.Hour, 500},
		{"does not go back", func(c *Clock) {
			c.Start(0, begin)
			c.Read(at(300 * time.Millisecond))
		}, 100 * time.Millisecond, 300},
		{"stands still after a leadership", func(c *Clock) {
			c.Start(0, begin)
			c.Read(at(200 * time.Millisecond))
			c.Stop()
		}, 400 * time.Millisecond, 200},
		{"runs at most two seconds ahead of what was applied", func(c *Clock) {
			c.Start(0, begin)
			for d := time.Duration(0); d < 10*time.Second; d += 100 * time.Millisecond {
				c.Read(at(d))
			}
		}, 10 * time.Second, 2000},
		{"goes on when an entry was applied", func(c *Clock) {
			c.Start(0, begin)
			for d := time.Duration(0); d < 10*time.Second; d += 100 * time.Millisecond {
				c.Read(at(d))
			}
			c.Observe(2000)
		}, 10 * time.Second, 2100},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var c Clock
			tt.do(&c)
			got, _ := c.Read(at(tt.at))
			expect.That(t, got == tt.want, "read at +%v: got %d ms, want %d ms", tt.at, got, tt.want)
			if got := c.Glance(); got != tt.want {
				t.Errorf("a glance after it: got %d ms, want %d ms", got, tt.want)
			}
		})
	}
}

func TestLeaseClockCountsWhatItLoses(t *testing.T) {
	begin := time.Now()
	var c Clock
	c.Start(0, begin)
	c.Read(begin.Add(400 * time.Millisecond))
	lost := c.lost.Load()
	expect.That(t, lost == 0, "lost %d ns without a pause", lost)
	c.Read(begin.Add(time.Hour))
	want := time.Hour - 900*time.Millisecond
	if lost := time.Duration(c.lost.Load()); lost != want {
		t.Errorf("lost %v with a pause, want %v", lost, want)
	}
}

func TestLeaseClockGlanceShowsTheNewBaseAtOnce(t *testing.T) {
	var c Clock
	c.Start(7000, time.Now())
	expect.Equal(t, c.Glance(), 7000, "got")
}

func TestLeaseClockCountsStalls(t *testing.T) {
	begin := time.Now()
	var c Clock
	c.Start(0, begin)
	_, before := c.Read(begin.Add(100 * time.Millisecond))
	_, same := c.Read(begin.Add(200 * time.Millisecond))
	_, after := c.Read(begin.Add(900 * time.Millisecond))
	expect.That(t, same == before && after == before+1, "stalls %d, %d, %d: want one more only after the pause", before, same, after)
}

// TestEvictorEndsOnlySilentLeasesThoughEachSecondStalls gives the process a processor for a part of each second.
func TestEvictorEndsOnlySilentLeasesThoughEachSecondStalls(t *testing.T) {
	tests := []struct {
		name         string
		stall, awake time.Duration
	}{
		{name: "600 ms", stall: 600 * time.Millisecond, awake: 400 * time.Millisecond},
		{name: "900 ms", stall: 900 * time.Millisecond, awake: 200 * time.Millisecond},
		{name: "5 s", stall: 5 * time.Second, awake: 300 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, registry.DefaultSettings(), false, func(g *evictionRig) {
				live := g.registerMany(20, 1, 5)
				g.pass(11 * time.Second)
				silent := g.register("silent", 1, 5, 0)
				held := g.session(1, 10*time.Second, 0, time.Second)
				mute := g.session(2, 10*time.Second, 0, 0)
				for range 60 {
					g.pass(tt.awake)
					time.Sleep(tt.stall)
				}
				if _, gone := g.evictedAt[silent]; !gone {
					t.Errorf("the silent instance is still there after %v", time.Since(g.begun))
				}
				expect.That(t, g.sessions[mute].ended != 0, "the silent session is still there after %v", time.Since(g.begun))
				for _, key := range live {
					at, gone := g.evictedAt[key]
					expect.That(t, !gone, "%v, which was renewed whenever the node ran, went after %v", key, at)
				}
				g.wantLive(held)
			})
		})
	}
}

func TestLeaseClockNeverChargesMoreThanItMay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c Clock
		base := rapid.Int64Range(0, 1<<40).Draw(t, "base")
		begin := time.Now()
		now := begin // moves in whole ms, so that nothing is lost in rounding
		c.Start(base, now)
		value, applied, newest := base, base, now
		for range rapid.IntRange(1, 200).Draw(t, "readings") {
			now = now.Add(time.Duration(step(t)) * time.Millisecond)
			if rapid.Bool().Draw(t, "an entry was applied") {
				stamp := rapid.Int64Range(applied, value).Draw(t, "stamp")
				c.Observe(stamp)
				applied = stamp
			}
			got, _ := c.Read(now)
			passed := max(0, now.Sub(newest).Milliseconds())
			switch {
			case got < value:
				t.Fatalf("went back from %d to %d", value, got)
			case got-value > passed:
				t.Fatalf("added %d ms in %d ms", got-value, passed)
			case got-value > MaxStep.Milliseconds():
				t.Fatalf("added %d ms in one reading", got-value)
			case got > applied+MaxLead.Milliseconds():
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
		rapid.Int64Range(0, ClockInterval.Milliseconds()),
		rapid.Int64Range(-50, 2*MaxStep.Milliseconds()),
		rapid.Int64Range(0, time.Hour.Milliseconds()),
	).Draw(t, "step")
}

func TestLeaseClockIsNotMovedByReadingsWhileItStandsStill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c Clock
		now := time.Now()
		c.Start(1000, now)
		c.Stop()
		for range rapid.IntRange(1, 20).Draw(t, "readings") {
			now = now.Add(time.Duration(step(t)) * time.Millisecond)
			got, _ := c.Read(now)
			need.That(t, got == 1000, "read %d ms of a clock that was stopped at 1000 ms", got)
		}
	})
}
