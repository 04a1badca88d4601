package verdict

import (
	"maps"
	"testing"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// answers is a bin whose calls were all answered after so many milliseconds.
func answers(number int, millis ...int64) trial.Bin {
	b := trial.Bin{Number: number, Done: len(millis)}
	for _, m := range millis {
		b.Latencies = append(b.Latencies, m*1000, 1)
	}
	return b
}

// refusals is a bin whose only call was refused.
func refusals(number int) trial.Bin { return trial.Bin{Number: number, Refused: 1} }

func TestCallsOfAddsBinsOfTheWantedSeries(t *testing.T) {
	series := []trial.Series{
		{Operation: trial.Heartbeat, Node: 0, Bins: []trial.Bin{
			{Number: 0, Done: 98, NotFound: 1, Refused: 2, Unreached: 3, Unknown: 4, Latencies: []int64{1000, 97, 5000, 1, 9000, 1}},
		}},
		{Operation: trial.Register, Node: 1, Bins: []trial.Bin{{Number: 3, Done: 1, Latencies: []int64{20000, 1}}}},
		{Operation: trial.Read, Node: 0, Bins: []trial.Bin{answers(0, 7)}},
	}
	v := Judge(&trial.Trial{Mode: scenario.AP, Length: 10_000_000, Series: series}, scenario.Scenario{})
	want := map[trial.Outcome]int{trial.Done: 99, trial.NotFound: 1, trial.Refused: 2, trial.Unreached: 3, trial.Unknown: 4}
	w := v.Writes
	if !maps.Equal(w.Outcomes, want) || w.Count != 109 || w.PerSecond != 10 || w.Success != 100.0/109 {
		t.Errorf("writes are %+v, want 109 calls, 100 of them answered, 10 a second: %v", w, want)
	}
	if want := (Spread{Count: 100, P50: 0.001, P90: 0.001, P99: 0.009, P999: 0.02, Max: 0.02}); w.Latency != want {
		t.Errorf("the writes' latency is %+v, want %+v", w.Latency, want)
	}
	if got := v.Operations[trial.Heartbeat].Latency.Max; got != 0.009 {
		t.Errorf("the slowest heartbeat took %v s, want 0.009", got)
	}
	if _, ok := v.Operations[trial.Cancel]; ok || v.Reads.Count != 1 {
		t.Errorf("operations are %v with %d reads, want no cancel and 1 read", v.Operations, v.Reads.Count)
	}
}

func TestNoCallsAreASuccess(t *testing.T) {
	v := Judge(&trial.Trial{Mode: scenario.CP}, scenario.Scenario{})
	if v.Writes.Success != 1 || v.Writes.LongestGap != 0 || len(v.Broken) != 0 {
		t.Errorf("a trial without calls has success %v, gap %v, broken limits %v; want 1, 0, none", v.Writes.Success, v.Writes.LongestGap, v.Broken)
	}
}

func TestLongestGap(t *testing.T) {
	for _, c := range []struct {
		name string
		bins []trial.Bin
		want float64
	}{
		{"none while every bin has an answer", []trial.Bin{answers(0, 1), answers(1, 1), answers(2, 1)}, 0},
		{"the bins whose calls were refused", []trial.Bin{answers(0, 1), refusals(1), refusals(2), refusals(3), answers(4, 1)}, 0.3},
		{"begins and ends where calls were due", []trial.Bin{answers(0, 1), refusals(5), refusals(8), answers(20, 1)}, 0.4},
		{"not of bins in which nothing was due", []trial.Bin{answers(0, 1), answers(50, 1)}, 0},
		{"the longest, not the last", []trial.Bin{refusals(0), refusals(1), answers(2, 1), refusals(3), answers(4, 1)}, 0.2},
		{"until the first late answer, though all succeed", []trial.Bin{answers(0, 1), answers(1, 2000), answers(2, 1900), answers(21, 1)}, 2},
		{"ended by an answer to an older call", []trial.Bin{answers(0, 330), refusals(1), refusals(2), refusals(3), refusals(4)}, 0.3},
		{"ended by an answer where nothing was due", []trial.Bin{answers(0, 330), refusals(1), refusals(2), refusals(5)}, 0.3},
		{"goes on to the end", []trial.Bin{answers(0, 1), refusals(1), refusals(2)}, 0.2},
		{"over the bins of several series, in any order", []trial.Bin{refusals(3), answers(2, 1), refusals(2), answers(5, 1), refusals(4)}, 0.2},
	} {
		t.Run(c.name, func(t *testing.T) {
			var g gaps
			for _, b := range c.bins {
				g.add(b)
			}
			if got := g.longest(); got != c.want {
				t.Errorf("the longest gap of %v is %v s, want %v s", c.bins, got, c.want)
			}
		})
	}
}

func TestSpreadsAreOfTheNearestRank(t *testing.T) {
	values := make([]float64, 0, 1000)
	counts := make(buckets)
	for i := 1000; i > 0; i-- {
		values = append(values, float64(i)*1e-6)
		counts[int64(i)]++
	}
	want := Spread{Count: 1000, P50: 500e-6, P90: 900e-6, P99: 990e-6, P999: 999e-6, Max: 1000e-6}
	for i, v := range values {
		values[i] = float64(int64(v*1e6+0.5)) / 1e6
	}
	if got := spreadOf(values); got != want {
		t.Errorf("the spread of 1 to 1000 µs is %+v, want %+v", got, want)
	}
	if got := counts.spread(); got != want {
		t.Errorf("the spread of the buckets of 1 to 1000 µs is %+v, want %+v", got, want)
	}
	if got, want := spreadOf([]float64{3}), (Spread{Count: 1, P50: 3, P90: 3, P99: 3, P999: 3, Max: 3}); got != want {
		t.Errorf("the spread of one value is %+v, want %+v", got, want)
	}
}
