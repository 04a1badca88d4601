package load

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

func newLoad(t testing.TB, c Config) *Load {
	t.Helper()
	l := need.Got(New(c))(t)
	t.Cleanup(l.Stop)
	return l
}

func run(t testing.TB, l *Load, length time.Duration) {
	t.Helper()
	need.OK(t, l.Run(t.Context(), time.Now(), length))
}

func calls(l *Load, o trial.Operation) (n int64) {
	for _, count := range l.Snapshot()[o].Outcomes {
		n += count
	}
	return n
}

// A server that stalls for a while is slow once to a client that waits, but is slow to every client that would have
// sent meanwhile.
func TestRunCountsAStallForAllCallsThatWereDueMeanwhile(t *testing.T) {
	const (
		stall  = 500 * time.Millisecond
		rate   = 200
		length = time.Second
	)
	var asked atomic.Int64
	s := standIn(t, func(http.ResponseWriter, *http.Request) {
		if asked.Add(1) == 20 {
			<-time.After(stall)
		}
	})
	l := newLoad(t, Config{Nodes: []string{addrOf(s)}, Load: scenario.Load{Fetches: rate}, Connections: 1})
	run(t, l, length)
	fetches := l.Snapshot()[trial.Fetch]
	got := fetches.Outcomes[trial.Done]
	expect.That(t, got == rate && asked.Load() == rate, "%d of %d requests done, want %d", got, asked.Load(), rate)
	slow := int64(0)
	for _, bar := range fetches.Latency.Distribution() {
		if bar.From >= (stall / 2).Microseconds() {
			slow += bar.Count
		}
	}
	// The calls due in the first half of the stall.
	atLeast := int64(rate * (stall / 2).Seconds() * 0.9)
	expect.That(t, slow >= atLeast, "%d calls took longer than half of the stall, want at least %d", slow, atLeast)
	bins := l.Series()[0].Bins
	expect.That(t, len(bins) == 10, "calls were due in %d stretches of 100 ms, want 10", len(bins))
}

func TestRunRecordsEveryCallThatWasDueThoughNoNodeResponds(t *testing.T) {
	const rate, length = 400, 250 * time.Millisecond
	l := newLoad(t, Config{
		Nodes: []string{silentNode(t)}, Load: scenario.Load{Fetches: rate}, Connections: 2, Timeout: 50 * time.Millisecond,
	})
	run(t, l, length)
	got := l.Snapshot()[trial.Fetch].Outcomes
	expect.That(t, got[trial.Unknown] != 0 && got[trial.Unreached] != 0 && got[trial.Unknown]+got[trial.Unreached] == rate/4,
		"got %v, want %d calls: those that were sent unknown, those that could not be sent in time unreached", got, rate/4)
}

func TestRunThatIsCanceledHasRecordedEveryCallUntilThen(t *testing.T) {
	const perBin = 20
	ctx, cancel := context.WithCancel(t.Context())
	var asked atomic.Int64
	s := standIn(t, func(http.ResponseWriter, *http.Request) {
		if asked.Add(1) == 3*perBin {
			cancel()
		}
		<-time.After(20 * time.Millisecond) // slower than the calls are due: some wait
	})
	l := newLoad(t, Config{Nodes: []string{addrOf(s)}, Load: scenario.Load{Fetches: 10 * perBin}, Connections: 2})
	need.ErrorIs(t, l.Run(ctx, time.Now(), time.Hour), context.Canceled, "got")
	got := l.Snapshot()[trial.Fetch].Outcomes
	expect.That(t, got[trial.Unreached] != 0 && got[trial.Done] != 0, "got %v, want calls that were done and calls that were not sent", got)
	bins := l.Series()[0].Bins
	for i, b := range bins[:len(bins)-1] { // the last one was cut short
		n := b.Done + b.Unreached + b.Unknown
		expect.That(t, b.Number == i && n == perBin, "bin %d, number %d, has %d calls, want %d", i, b.Number, n, perBin)
	}
}

func TestRunSendsClientsThatFailToTheNextNodeAndCountsThemAtHome(t *testing.T) {
	l := newLoad(t, Config{Nodes: []string{refuses(t), statusServer(t, 200)}, Load: scenario.Load{Deltas: 200}, Connections: 2})
	run(t, l, 200*time.Millisecond)
	for _, s := range l.Series() {
		done := 0
		for _, b := range s.Bins {
			done += b.Done
		}
		expect.That(t, s.Operation == trial.Delta && done == 20, "%s of node %d: %d done, want 20 deltas of each", s.Operation, s.Node, done)
	}
}

func TestRatesChangeWhileALoadRuns(t *testing.T) {
	var l *Load
	var asked atomic.Int64
	s := standIn(t, func(http.ResponseWriter, *http.Request) {
		switch asked.Add(1) {
		case 10:
			l.SetRates(map[string]float64{"fetches": 0})
		}
	})
	l = newLoad(t, Config{Nodes: []string{addrOf(s)}, Load: scenario.Load{Fetches: 100}})
	run(t, l, 3*time.Second)
	got := calls(l, trial.Fetch)
	expect.That(t, got >= 10 && got <= 200, "%d fetches, want little more than the 10 after which their rate became 0, and far from 300", got)
}

func TestRunLetsHeartbeatsGoOnUntilStop(t *testing.T) {
	var asked atomic.Int64
	s := standIn(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	l := newLoad(t, Config{
		Nodes: []string{addrOf(s)},
		Load:  scenario.Load{Instances: 5, Heartbeat: scenario.Span(20 * time.Millisecond), Fetches: 100},
	})
	need.OK(t, l.Register(t.Context()))
	run(t, l, 100*time.Millisecond)
	fetches, renewals := calls(l, trial.Fetch), l.Renewals()
	eventually(t, "heartbeats after the end", func() bool { return l.Renewals() > renewals+20 })
	got := calls(l, trial.Fetch)
	expect.That(t, got == fetches && got == 10, "%d fetches, %d of them after the end, want 10 and none", got, got-fetches)
	l.Stop()
	sent := asked.Load()
	wait.For(t.Context(), 100*time.Millisecond) // five intervals
	if got := asked.Load(); got != sent {
		t.Errorf("%d requests after Stop, want none", got-sent)
	}
}

func TestRunIsRefusedTheSecondTime(t *testing.T) {
	l := newLoad(t, Config{Nodes: []string{"a:1"}})
	run(t, l, 0)
	expect.ErrorIs(t, l.Run(t.Context(), time.Now(), time.Hour), errRanAlready, "the second time:")
	l.Stop()
	stopped := newLoad(t, Config{Nodes: []string{"a:1"}})
	stopped.Stop()
	expect.ErrorIs(t, stopped.Run(t.Context(), time.Now(), time.Hour), errRanAlready, "after Stop:")
}

func TestScheduleCountsWhatHasPassedWhenTheRateChanges(t *testing.T) {
	from := time.Now()
	after := func(ms int) time.Time { return from.Add(time.Duration(ms) * time.Millisecond) }
	for _, tc := range []struct {
		changes []float64 // 25 ms apart; the first at the begin
		want    int       // ms; -1 for never
	}{
		{changes: []float64{10}, want: 100},
		{changes: []float64{10, 30}, want: 50}, // a quarter has passed, ¾ of 33 ms are left
		{changes: []float64{10, 5}, want: 175}, // ¾ of 200 ms are left
		{changes: []float64{10, 10}, want: 100},
		{changes: []float64{10, 0}, want: -1},
		{changes: []float64{10, 0, 10}, want: 125}, // what was off does not count
		{changes: []float64{0}, want: -1},
		{changes: []float64{0, 10}, want: 125},
	} {
		s := schedule{from: from, wait: 1}
		for i, rate := range tc.changes {
			s.change(rate, after(25*i))
		}
		due, ever := s.next()
		if !ever {
			due = after(-1)
		}
		expect.That(t, due.Sub(after(tc.want)).Abs() <= time.Microsecond, "rates %v: due after %v, want %d ms", tc.changes, due.Sub(from), tc.want)
	}
}

func TestClosedLoopKeepsTheProportionOfTheRates(t *testing.T) {
	var under, most atomic.Int64
	s := standIn(t, func(http.ResponseWriter, *http.Request) {
		for n, seen := under.Add(1), most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
		}
		<-time.After(time.Millisecond)
		under.Add(-1)
	})
	l := newLoad(t, Config{Nodes: []string{addrOf(s)}, Load: scenario.Load{Fetches: 3, Deltas: 1}, Closed: true, Connections: 4})
	run(t, l, time.Second)
	expect.Equal(t, most.Load(), 4, "requests under way at most, one of each client:")
	fetches, deltas := calls(l, trial.Fetch), calls(l, trial.Delta)
	expect.That(t, deltas >= 10 && fetches >= 3*deltas-12 && fetches <= 3*deltas+12,
		"%d fetches and %d deltas, want three times as many, up to what four clients had under way", fetches, deltas)
}

func TestClosedLoopDoesNotHammerAClusterThatTakesNoConnection(t *testing.T) {
	const length = 250 * time.Millisecond
	l := newLoad(t, Config{Nodes: []string{refuses(t)}, Load: scenario.Load{Fetches: 1}, Closed: true, Connections: 2})
	run(t, l, length)
	most := 2 * int64(length/refusedPause+1)
	got := l.Snapshot()[trial.Fetch].Outcomes[trial.Unreached]
	expect.That(t, got != 0 && got <= most, "%d tries, want up to %d", got, most)
}

func TestRecorderPutsLatenciesIntoTheBucketsOfAnHdrHistogram(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	values := []int64{0, 1, 127, 128, 255, 256, 257, 511, 512, LongestLatency - 1, LongestLatency}
	for range 1000 {
		values = append(values, random.Int64N(1<<random.IntN(26)))
	}
	for _, v := range values {
		h := hdrhistogram.New(1, LongestLatency, 2)
		need.OK(t, h.RecordValue(v))
		for _, bar := range h.Distribution() {
			expect.That(t, bar.Count == 0 || bar.From == lowestOfBucket(v),
				"%d falls into the bucket from %d, want %d", v, lowestOfBucket(v), bar.From)
		}
	}
}

func TestRecorderHasEveryCallInTheSeriesAndInTheTotalsOnce(t *testing.T) {
	l := need.Got(New(Config{Nodes: []string{"a", "b", "c"}}))(t)
	began := time.Now()
	l.recorder.begin, l.recorder.end = began, began.Add(time.Minute)
	random := rand.New(rand.NewPCG(3, 4))
	type kind struct {
		operation trial.Operation
		outcome   trial.Outcome
	}
	want, inSeries := make(map[kind]int64), make(map[kind]int64)
	for range 5000 {
		k := kind{trial.Operations[random.IntN(len(trial.Operations))], trial.Outcomes[random.IntN(len(trial.Outcomes))]}
		due := began.Add(time.Duration(random.Int64N(int64(3 * time.Second))))
		done := due.Add(time.Duration(random.Int64N(int64(time.Second))))
		l.record(k.operation, random.IntN(3), due, callResult{outcome: k.outcome, done: done}, nil)
		want[k]++
	}
	for _, s := range l.Series() {
		last := -1
		for _, b := range s.Bins {
			expect.That(t, b.Number > last, "%s of node %d: bin %d after %d", s.Operation, s.Node, b.Number, last)
			last = b.Number
			for _, o := range trial.Outcomes {
				inSeries[kind{s.Operation, o}] += int64(*b.Count(o))
			}
			answers, longest := 0, int64(-1)
			for latency, n := range b.Pairs() {
				expect.That(t, latency > longest, "bin %d: latencies %v do not ascend", b.Number, b.Latencies)
				answers, longest = answers+n, latency
			}
			expect.Equal(t, answers, b.Answered(), "bin %d: latencies of the answered calls:", b.Number)
		}
	}
	snapshot := l.Snapshot()
	for k, n := range want {
		total := snapshot[k.operation].Outcomes[k.outcome]
		expect.That(t, inSeries[k] == n && total == n, "%s: %d in the series and %d in the totals, want %d", k, inSeries[k], total, n)
	}
	for o, totals := range snapshot {
		answered := want[kind{o, trial.Done}] + want[kind{o, trial.NotFound}]
		expect.Equal(t, totals.Latency.TotalCount(), answered, "%s: latencies of the answered calls:", o)
	}
}
