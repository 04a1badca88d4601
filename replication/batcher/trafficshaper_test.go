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
			start := time.Now()
			shaper := newTrafficShaper(s, 100*ms, 5*s, row.grows, half)
			for _, e := range row.events {
				shaper.record(e.result, start.Add(e.started), start.Add(e.at))
			}
			expect.Equal(t, shaper.wait(start.Add(row.at)).Round(ms), row.want, "got")
		})
	}
}

func TestTrafficShaperPausesAreCapped(t *testing.T) {
	now := time.Now()
	for _, result := range []Result{Congestion, TransientError} {
		s := newTrafficShaper(time.Minute, time.Hour, 30*time.Second, false, nil)
		s.record(result, now, now)
		expect.Equal(t, s.wait(now), 30*time.Second, "result %d: the delay is", result)
	}
}

func TestTrafficShaperClockThatWentBackEndsThePauseForGood(t *testing.T) {
	now := time.Now()
	s := newTrafficShaper(time.Second, 100*ms, 30*time.Second, false, nil)
	s.record(Congestion, now, now)
	s.wait(now.Add(-time.Millisecond))
	expect.Equal(t, s.wait(now), 0, "the delay is")
}

func TestAcceptorSleepsUntilTheRateAllowsMore(t *testing.T) {
	in(t, func(t *testing.T) {
		r := idle(t, Config[string, string]{WorkloadSize: 1, Rate: 1})
		r.submit("a1 b1")
		r.run(0)
		r.at(500 * ms)
		expect.That(t, !r.published(func() { r.at(989 * ms) }), "the acceptor woke up although nothing could be handed out")
		r.at(990 * ms)
		r.wantCalls("0s a1; 990ms b1")
	})
}

func TestPacerGivesBackNoMoreThanATimerOversleeps(t *testing.T) {
	start := time.Now()
	p := pacer{rate: 1000}
	for _, step := range []struct {
		at, want time.Duration
		tasks    int
	}{
		{0, 0, 100}, {0, 90 * ms, 0}, {90 * ms, 0, 0},
		{95 * ms, 0, 100}, {95 * ms, 95 * ms, 0}, // 5 ms late
		{time.Hour, 0, 100}, {time.Hour, 90 * ms, 0}, // idle: no burst saved
	} {
		now := start.Add(step.at)
		expect.Equal(t, p.wait(now), step.want, "at %v: the delay is", step.at)
		p.charge(step.tasks, now)
	}
}
