package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// loadResult is what came of a load.
type loadResult struct {
	right   int     // answers that count
	rate    float64 // of these, per second
	latency *hdrhistogram.Histogram
	body    int64 // bytes of a right answer's body
	wrong   wrongAnswers
}

// longestLatency is the histogram's end, in µs; what takes longer is counted there.
const longestLatency = int64(time.Minute / time.Microsecond)

func sumLoad(senders []*loadSender, counted time.Duration) *loadResult {
	r := &loadResult{latency: hdrhistogram.New(1, longestLatency, 3), wrong: make(wrongAnswers)}
	for _, s := range senders {
		r.right += len(s.latencies)
		for _, µs := range s.latencies {
			r.latency.RecordValue(min(int64(µs), longestLatency)) // in range: no error
		}
		r.wrong.add(s.wrong)
		if s.err != nil {
			r.wrong.add(wrongAnswers{"connection lost: " + s.err.Error(): 1})
		}
		r.body = max(r.body, s.body)
	}
	r.rate = float64(r.right) / counted.Seconds()
	return r
}

// quantile returns the latency that a share of the requests (percent) did not exceed.
func (r *loadResult) quantile(percent float64) time.Duration {
	return time.Duration(r.latency.ValueAtQuantile(percent)) * time.Microsecond
}

// wrongAnswers counts answers other than the expected one, by what was wrong.
type wrongAnswers map[string]int

func (w wrongAnswers) add(other wrongAnswers) {
	for how, n := range other {
		w[how] += n
	}
}

// String lists them; empty if there are none.
func (w wrongAnswers) String() string {
	var parts []string
	for _, how := range slices.Sorted(maps.Keys(w)) {
		parts = append(parts, fmt.Sprintf("%d × %s", w[how], how))
	}
	return strings.Join(parts, ", ")
}
