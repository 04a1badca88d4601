package batcher

import (
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestRateLimitsWhatIsHandedOut(t *testing.T) {
	for _, row := range []struct {
		name     string
		workload int
		rate     int
		calls    string // within 2 s
	}{
		{"batches", 4, 8, "0s aa1 ab1 ac1 ad1; 490ms ae1 af1 ag1 ah1; 990ms ai1 aj1 ak1 al1; 1.49s am1 an1 ao1 ap1; 1.99s aq1 ar1 as1 at1"},
		{"a batch is no larger than the rate", 250, 2, "0s aa1 ab1; 990ms ac1 ad1; 1.99s ae1 af1"},
		{"single items", 1, 2, "0s aa1; 490ms ab1; 990ms ac1; 1.49s ad1; 1.99s ae1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				r := idle(t, Config[string, string]{WorkloadSize: row.workload, WorkerCount: 2, Rate: row.rate})
				r.submit(many(30))
				r.run(0)
				r.at(2 * time.Second)
				r.wantCalls(row.calls)
			})
		})
	}
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
	begin := time.Now()
	p := pacer{rate: 1000}
	for _, step := range []struct {
		at, want time.Duration
		take     int
	}{
		{0, 0, 100}, {0, 90 * ms, 0}, {90 * ms, 0, 0},
		{95 * ms, 0, 100}, {95 * ms, 95 * ms, 0}, // 5 ms late
		{time.Hour, 0, 100}, {time.Hour, 90 * ms, 0}, // idle: no burst saved
	} {
		now := begin.Add(step.at)
		expect.Equal(t, p.delay(now), step.want, "at %v: the delay is", step.at)
		p.take(step.take, now)
	}
}
