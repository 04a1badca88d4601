package verdict

import (
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// operations sums up the calls of each operation that was called at all.
func operations(series []trial.Series, length float64) map[trial.Operation]Calls {
	found := make(map[trial.Operation]Calls)
	for _, o := range trial.Operations {
		calls := callsOf(series, length, func(s trial.Series) bool { return s.Operation == o }, always)
		if calls.Count > 0 {
			found[o] = calls
		}
	}
	return found
}

// callsOf sums up the calls of the series that are wanted, those that were due in the bins that are wanted, over
// so many seconds.
func callsOf(series []trial.Series, length float64, wanted func(trial.Series) bool, within func(trial.Bin) bool) Calls {
	c := Calls{Outcomes: make(map[trial.Outcome]int), Success: 1}
	latencies := make(buckets)
	var g gaps
	for _, s := range series {
		if !wanted(s) {
			continue
		}
		for _, b := range s.Bins {
			if within(b) {
				c.add(b)
				latencies.add(b)
				g.add(b)
			}
		}
	}
	if c.Count > 0 {
		c.Success = float64(c.answered()) / float64(c.Count)
	}
	if length > 0 {
		c.PerSecond = float64(c.answered()) / length
	}
	c.Latency, c.LongestGap = latencies.spread(), g.longest()
	return c
}

// answered counts the calls whose clients got what they asked for.
func (c *Calls) answered() int { return c.Outcomes[trial.Done] + c.Outcomes[trial.NotFound] }

func (c *Calls) add(b trial.Bin) {
	for outcome, count := range map[trial.Outcome]int{
		trial.Done: b.Done, trial.NotFound: b.NotFound, trial.Refused: b.Refused, trial.Unreached: b.Unreached, trial.Unknown: b.Unknown,
	} {
		if count > 0 {
			c.Outcomes[outcome] += count
			c.Count += count
		}
	}
}

func (b buckets) add(from trial.Bin) {
	for latency, count := range pairs(from) {
		b[latency] += count
	}
}

// pairs are the latencies of a bin's answered calls, in µs, and how many calls took as long.
func pairs(b trial.Bin) func(yield func(latency int64, count int) bool) {
	return func(yield func(int64, int) bool) {
		for i := 0; i+1 < len(b.Latencies); i += 2 {
			if !yield(b.Latencies[i], int(b.Latencies[i+1])) {
				return
			}
		}
	}
}
