package batcher

import (
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestTrafficShaperDelaysByTheRestOfTheWindow(t *testing.T) {
	type event struct {
		at      time.Duration
		result  Result
		started time.Duration
	}
	const none = time.Duration(-1)
	half := func(n int64) int64 { return n / 2 } // three quarters of each delay
	s := time.Second
	for _, row := range []struct {
		name   string
		grows  bool
		events []event
		at     time.Duration
		want   time.Duration
	}{
		{"no failure", false, nil, s, 0},
		{"success", false, []event{{0, Success, 0}}, 0, 0},
		{"permanent error", false, []event{{0, PermanentError, 0}}, 0, 0},
		{"congestion, at once", false, []event{{0, Congestion, 0}}, 0, s},
		{"congestion, later", false, []event{{0, Congestion, 0}}, 400 * ms, 600 * ms},
		{"congestion, after it", false, []event{{0, Congestion, 0}}, s, 0},
		{"network failure", false, []event{{0, TransientError, 0}}, 30 * ms, 70 * ms},
		{"the longer rest of two", false, []event{{0, Congestion, 0}, {950 * ms, TransientError, 0}}, 960 * ms, 90 * ms},
		{"the last failure counts", false, []event{{0, Congestion, 0}, {500 * ms, Congestion, 0}}, 500 * ms, s},
		{"a success ends no pause", false, []event{{0, Congestion, 0}, {100 * ms, Success, 0}}, 100 * ms, 900 * ms},
		{"a clock that went back", false, []event{{10 * s, Congestion, 0}}, 9 * s, 0},
		{"growth: the first", true, []event{{0, Congestion, none}}, 0, 750 * ms},
		{"growth: the second", true, []event{{0, Congestion, none}, {s, Congestion, 900 * ms}}, s, 1500 * ms},
		{"growth: begun before the first failed", true, []event{{s, Congestion, none}, {2 * s, Congestion, s}}, 2 * s, 750 * ms},
		{"growth: up to the bound", true, []event{{0, Congestion, none}, {s, Congestion, 1}, {2 * s, Congestion, s + 1}, {3 * s, Congestion, 2*s + 1}}, 3 * s, 3750 * ms},
		{"growth: a success resets it", true, []event{{0, Congestion, none}, {s, Congestion, 1}, {2 * s, Success, 1}, {3 * s, Congestion, 2*s + 1}}, 3 * s, 750 * ms},
		{"growth: each kind has its own", true, []event{{0, Congestion, none}, {s, Congestion, 1}, {10 * s, TransientError, 9 * s}}, 10 * s, 75 * ms},
	} {
		t.Run(row.name, func(t *testing.T) {
			begin := time.Now()
			shaper := newTrafficShaper(s, 100*ms, 5*s, row.grows, half)
			for _, e := range row.events {
				shaper.note(e.result, begin.Add(e.started), begin.Add(e.at))
			}
			expect.Equal(t, shaper.delay(begin.Add(row.at)).Round(ms), row.want, "got")
		})
	}
}

func TestDelaysAreCapped(t *testing.T) {
	now := time.Now()
	for _, result := range []Result{Congestion, TransientError} {
		s := newTrafficShaper(time.Minute, time.Hour, 30*time.Second, false, nil)
		s.note(result, now, now)
		expect.Equal(t, s.delay(now), 30*time.Second, "result %d: the delay is", result)
	}
}

func TestClockThatWentBackEndsThePauseForGood(t *testing.T) {
	now := time.Now()
	s := newTrafficShaper(time.Second, 100*ms, 30*time.Second, false, nil)
	s.note(Congestion, now, now)
	s.delay(now.Add(-time.Millisecond))
	expect.Equal(t, s.delay(now), 0, "the delay is")
}
