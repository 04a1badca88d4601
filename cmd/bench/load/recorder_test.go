package load

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

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
	l.recorder.window.Store(&window{began, began.Add(time.Minute)})
	outcomes := []trial.Outcome{trial.Done, trial.NotFound, trial.Refused, trial.Unreached, trial.Unknown}
	random := rand.New(rand.NewPCG(3, 4))
	want := make(map[trial.Operation]map[trial.Outcome]int64)
	for range 5000 {
		o, outcome := trial.Operations[random.IntN(len(trial.Operations))], outcomes[random.IntN(len(outcomes))]
		due := began.Add(time.Duration(random.Int64N(int64(3 * time.Second))))
		l.record(o, random.IntN(3), due, callResult{outcome: outcome, done: due.Add(time.Duration(random.Int64N(int64(time.Second))))}, nil)
		if want[o] == nil {
			want[o] = make(map[trial.Outcome]int64)
		}
		want[o][outcome]++
	}
	inSeries := make(map[trial.Operation]map[trial.Outcome]int64)
	for _, s := range l.Series() {
		if inSeries[s.Operation] == nil {
			inSeries[s.Operation] = make(map[trial.Outcome]int64)
		}
		last := -1
		for _, b := range s.Bins {
			expect.That(t, b.Number > last, "%s of node %d: bin %d after %d", s.Operation, s.Node, b.Number, last)
			last = b.Number
			for _, o := range outcomes {
				inSeries[s.Operation][o] += int64(*b.Count(o))
			}
			checkLatencies(t, b)
		}
	}
	snapshot := l.Snapshot()
	for _, o := range trial.Operations {
		for _, outcome := range outcomes {
			in, total := inSeries[o][outcome], snapshot[o].Outcomes[outcome]
			expect.That(t, in == want[o][outcome] && total == want[o][outcome],
				"%s, %s: %d in the series and %d in the totals, want %d", o, outcome, in, total, want[o][outcome])
		}
		got := snapshot[o].Latency.TotalCount()
		expect.That(t, got == want[o][trial.Done]+want[o][trial.NotFound], "%s: %d latencies, want those of the answered calls", o, got)
	}
}

// checkLatencies checks that there is one for each answered call, in ascending order.
func checkLatencies(t *testing.T, b trial.Bin) {
	t.Helper()
	n := int64(0)
	for i := 0; i < len(b.Latencies); i += 2 {
		expect.That(t, i == 0 || b.Latencies[i] > b.Latencies[i-2], "bin %d: latencies %v do not ascend", b.Number, b.Latencies)
		n += b.Latencies[i+1]
	}
	expect.That(t, n == int64(b.Done+b.NotFound), "bin %d: %d latencies of %d answered calls", b.Number, n, b.Done+b.NotFound)
}
