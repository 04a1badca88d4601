package report

import (
	"maps"
	"math"
	"slices"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// bin is the sum of the bins of several series with one number.
type bin struct {
	trial.Bin               // its counts
	latencies map[int64]int // calls by their latency in µs
}

// sumBins sums the bins of the series of a trial that are selected, by number.
func sumBins(t *trial.Trial, which func(trial.Series) bool) map[int]*bin {
	sums := map[int]*bin{}
	for _, series := range t.Series {
		if !which(series) {
			continue
		}
		for _, b := range series.Bins {
			if sums[b.Number] == nil {
				sums[b.Number] = &bin{latencies: map[int64]int{}}
			}
			sums[b.Number].add(b)
		}
	}
	return sums
}

func (b *bin) add(other trial.Bin) {
	b.Done += other.Done
	b.NotFound += other.NotFound
	b.Refused += other.Refused
	b.Unreached += other.Unreached
	b.Unknown += other.Unknown
	for i := 0; i+1 < len(other.Latencies); i += 2 {
		b.latencies[other.Latencies[i]] += int(other.Latencies[i+1])
	}
}

func (b *bin) due() int { return b.Done + b.NotFound + b.Refused + b.Unreached + b.Unknown }

// success is the share of the calls that were answered.
func (b *bin) success() float64 { return float64(b.Done+b.NotFound) / float64(b.due()) }

// quantile is that of the latencies, in µs, by the nearest rank; not ok if no call was answered.
func (b *bin) quantile(q float64) (micros int64, ok bool) {
	count := 0
	for _, n := range b.latencies {
		count += n
	}
	rank := max(1, int(math.Ceil(q*float64(count))))
	for _, latency := range slices.Sorted(maps.Keys(b.latencies)) {
		if rank -= b.latencies[latency]; rank <= 0 {
			return latency, true
		}
	}
	return 0, false
}

// binBegin is when a bin begins, in seconds since the load began.
func binBegin(number int) float64 { return float64(number) * trial.BinLength.Seconds() }
