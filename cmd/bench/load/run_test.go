package load

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func newLoad(t testing.TB, c Config) *Load {
	t.Helper()
	l := need.Got(New(c))(t)
	t.Cleanup(l.Stop)
	return l
}

// run runs a load from now on.
func run(t testing.TB, l *Load, length time.Duration) {
	t.Helper()
	need.OK(t, l.Run(t.Context(), time.Now(), length))
}

// calls counts the calls of an operation.
func calls(l *Load, o trial.Operation) (n int64) {
	for _, count := range l.Snapshot()[o].Outcomes {
		n += count
	}
	return n
}

// A server that stalls for a while answers one slow request to a client that waits, but is slow to all those who
// would have come meanwhile.
func TestAStallIsSlowToAllWhoWereDueMeanwhile(t *testing.T) {
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
	if got := fetches.Outcomes[trial.Done]; got != rate || asked.Load() != rate {
		t.Errorf("%d of %d requests done, want %d", got, asked.Load(), rate)
	}
	slow := int64(0)
	for _, bar := range fetches.Latency.Distribution() {
		if bar.From >= (stall / 2).Microseconds() {
			slow += bar.Count
		}
	}
	// Those due in the first half of the stall.
	if atLeast := int64(rate * (stall / 2).Seconds() * 0.9); slow < atLeast {
		t.Errorf("%d calls took longer than half of the stall, want at least %d", slow, atLeast)
	}
	if bins := l.Series()[0].Bins; len(bins) != 10 {
		t.Errorf("calls were due in %d stretches of 100 ms, want 10", len(bins))
	}
}

func TestNoCallWaitsWhileAClientOfItsHomeIsIdle(t *testing.T) {
	const all, most = 100, 80
	var asked atomic.Int64
	enough := make(chan struct{})
	s := standIn(t, func(http.ResponseWriter, *http.Request) {
		switch asked.Add(1) {
		case 1:
			<-enough
		case most:
			close(enough)
		}
	})
	l := newLoad(t, Config{Nodes: []string{addrOf(s)}, Load: scenario.Load{Fetches: 2 * all}, Connections: 2, Timeout: 20 * time.Second})
	run(t, l, 500*time.Millisecond)
	if got := l.Snapshot()[trial.Fetch].Outcomes; got[trial.Done] != all {
		t.Errorf("got %v, want %d done: one client waited, the other one had time for the rest", got, all)
	}
}

func TestEveryCallThatWasDueIsRecordedThoughNobodyAnswers(t *testing.T) {
	const rate, length = 400, 250 * time.Millisecond
	l := newLoad(t, Config{
		Nodes: []string{silentNode(t)}, Load: scenario.Load{Fetches: rate}, Connections: 2, Timeout: 50 * time.Millisecond,
	})
	run(t, l, length)
	got := l.Snapshot()[trial.Fetch].Outcomes
	if got[trial.Unknown] == 0 || got[trial.Unreached] == 0 || got[trial.Unknown]+got[trial.Unreached] != rate/4 {
		t.Errorf("got %v, want %d calls: those that were sent unknown, those that could not be sent in time unreached", got, rate/4)
	}
}

func TestACanceledRunHasRecordedEveryCallUntilThen(t *testing.T) {
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
	if err := l.Run(ctx, time.Now(), time.Hour); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want %v", err, context.Canceled)
	}
	if got := l.Snapshot()[trial.Fetch].Outcomes; got[trial.Unreached] == 0 || got[trial.Done] == 0 {
		t.Errorf("got %v, want calls that were done and calls that were not sent", got)
	}
	bins := l.Series()[0].Bins
	for i, b := range bins[:len(bins)-1] { // the last one was cut short
		if n := b.Done + b.Unreached + b.Unknown; b.Number != i || n != perBin {
			t.Errorf("bin %d, number %d, has %d calls, want %d", i, b.Number, n, perBin)
		}
	}
}

func TestFailedClientsGoToTheNextNodeAndCountAtHome(t *testing.T) {
	l := newLoad(t, Config{Nodes: []string{refuses(t), answers(t, 200)}, Load: scenario.Load{Deltas: 200}, Connections: 2})
	run(t, l, 200*time.Millisecond)
	for _, s := range l.Series() {
		done := 0
		for _, b := range s.Bins {
			done += b.Done
		}
		if s.Operation != trial.Delta || done != 20 {
			t.Errorf("%s of node %d: %d done, want 20 deltas of each", s.Operation, s.Node, done)
		}
	}
}

func TestRatesCanBeReplacedAndComeBack(t *testing.T) {
	l := newLoad(t, Config{Nodes: []string{bareNode(t)}, Load: scenario.Load{Fetches: 50, Deltas: 70}})
	l.SetRates(map[string]float64{"fetches": 200, "watchers": 3})
	run(t, l, 500*time.Millisecond)
	if fetches, deltas := calls(l, trial.Fetch), calls(l, trial.Delta); fetches != 100 || deltas != 35 {
		t.Errorf("%d fetches and %d deltas, want 100 by the new rate and 35 by their own", fetches, deltas)
	}
	l.SetRates(nil)
	for _, s := range l.fetchStreams() {
		if got := l.rate(s); got != s.rate {
			t.Errorf("%s: rate %v came back, want %v", s.name, got, s.rate)
		}
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
	if got := calls(l, trial.Fetch); got < 10 || got > 200 {
		t.Errorf("%d fetches, want little more than the 10 after which their rate became 0, and far from 300", got)
	}
}

func TestHeartbeatsGoOnUntilStop(t *testing.T) {
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
	if got := calls(l, trial.Fetch); got != fetches || got != 10 {
		t.Errorf("%d fetches, %d of them after the end, want 10 and none", got, got-fetches)
	}
	l.Stop()
	sent := asked.Load()
	pauseFor(t.Context(), 100*time.Millisecond) // five intervals
	if got := asked.Load(); got != sent {
		t.Errorf("%d requests after Stop, want none", got-sent)
	}
}

func TestALoadRunsOnce(t *testing.T) {
	l := newLoad(t, Config{Nodes: []string{bareNode(t)}})
	run(t, l, 0)
	if err := l.Run(t.Context(), time.Now(), time.Hour); !errors.Is(err, errRanAlready) {
		t.Errorf("the second time: %v, want %v", err, errRanAlready)
	}
	l.Stop()
	stopped := newLoad(t, Config{Nodes: []string{bareNode(t)}})
	stopped.Stop()
	if err := stopped.Run(t.Context(), time.Now(), time.Hour); !errors.Is(err, errRanAlready) {
		t.Errorf("after Stop: %v, want %v", err, errRanAlready)
	}
}

// BenchmarkTheOpenLoop sends 20,000 calls per second, and reports how many cores that takes: the load's, and those
// of the goroutines that answer in the same process.
func BenchmarkTheOpenLoop(b *testing.B) {
	const rate = 20_000
	l := newLoad(b, Config{Nodes: []string{bareNode(b), bareNode(b), bareNode(b)}, Load: scenario.Load{Deltas: rate}})
	b.ResetTimer()
	before, begin := cpuTime(b), time.Now()
	run(b, l, time.Duration(b.N)*time.Second/rate)
	took := time.Since(begin)
	deltas := l.Snapshot()[trial.Delta]
	b.ReportMetric((cpuTime(b)-before).Seconds()/took.Seconds(), "cores")
	b.ReportMetric(float64(deltas.Latency.ValueAtQuantile(50)), "µs-p50")
	b.ReportMetric(float64(deltas.Latency.ValueAtQuantile(99)), "µs-p99")
	if got := deltas.Outcomes[trial.Done]; got < int64(b.N)-1 {
		b.Errorf("%d of %d calls done: %v", got, b.N, deltas.Outcomes)
	}
}

// cpuTime is what the process has used.
func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
