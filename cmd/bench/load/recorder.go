package load

import (
	"math/bits"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// LongestLatency is the upper end of the histograms, in µs; longer latencies are counted there.
const LongestLatency = int64(time.Minute / time.Microsecond)

// recorder counts calls. Safe for concurrent use.
type recorder struct {
	window   atomic.Pointer[window] // nil before Run
	renewals atomic.Int64
	ledgers  [][]ledger // by operation, in the order of trial.Operations, and home node
}

// window is when a load ran.
type window struct{ begin, end time.Time }

func newRecorder(nodes int) *recorder {
	r := &recorder{ledgers: make([][]ledger, len(trial.Operations))}
	for i := range r.ledgers {
		r.ledgers[i] = make([]ledger, nodes)
	}
	return r
}

// record counts one ended call of a client of home that was due at due, and what the client felt (nil: nothing is
// kept). Of calls that were due before Run's start only Renewals counts.
func (l *Load) record(o trial.Operation, home int, due time.Time, result callResult, client *felt) {
	r := l.recorder
	if o == trial.Heartbeat && result.outcome == trial.Done {
		r.renewals.Add(1)
	}
	w := r.window.Load()
	if w == nil || due.Before(w.begin) {
		return
	}
	client.add(due, result.done, result.outcome.Answered(), !due.Before(w.end))
	at, took := trial.Since(w.begin, due), trial.Since(due, result.done)
	r.ledgers[slices.Index(trial.Operations, o)][home].add(at, result.outcome, min(max(int64(took), 0), LongestLatency))
}

// ledger counts the calls of one operation of the clients of one node.
type ledger struct {
	mu       sync.Mutex
	outcomes map[trial.Outcome]int64
	latency  *hdrhistogram.Histogram // nil if nothing was answered
	bins     []trial.Bin             // by number; includes empty ones
}

func (l *ledger) add(at trial.Micros, o trial.Outcome, latency int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.outcomes == nil {
		l.outcomes = make(map[trial.Outcome]int64)
	}
	l.outcomes[o]++
	bin := l.bin(int(at.Duration() / trial.BinLength))
	*bin.Count(o)++
	if !o.Answered() {
		return
	}
	bin.Latencies = addLatency(bin.Latencies, lowestOfBucket(latency))
	if l.latency == nil {
		l.latency = NewLatency()
	}
	_ = l.latency.RecordValue(latency) // cannot fail: in range
}

// NewLatency returns an empty histogram of latencies in µs.
func NewLatency() *hdrhistogram.Histogram { return hdrhistogram.New(1, LongestLatency, 3) }

func (l *ledger) bin(number int) *trial.Bin {
	for n := len(l.bins); n <= number; n++ {
		l.bins = append(l.bins, trial.Bin{Number: n})
	}
	return &l.bins[number]
}

// bucketBits is how many leading bits of a value an HdrHistogram of two digits keeps.
const bucketBits = 8

// lowestOfBucket returns the lowest value that an HdrHistogram of two digits does not distinguish from v. It is
// computed by hand, because a histogram for each bin would take 20 KB.
func lowestOfBucket(v int64) int64 {
	lost := max(0, bits.Len64(uint64(v))-bucketBits)
	return v >> lost << lost
}

// addLatency counts a latency in a bin's pairs.
func addLatency(pairs []int64, v int64) []int64 {
	i := 2 * sort.Search(len(pairs)/2, func(i int) bool { return pairs[2*i] >= v })
	if i < len(pairs) && pairs[i] == v {
		pairs[i+1]++
		return pairs
	}
	return slices.Insert(pairs, i, v, 1)
}

// Renewals returns the number of acknowledged heartbeats so far.
func (l *Load) Renewals() int64 { return l.recorder.renewals.Load() }

// Totals sums up the calls of one operation.
type Totals struct {
	Outcomes map[trial.Outcome]int64
	Latency  *hdrhistogram.Histogram // µs, of the answered calls, from when they were due
}

// Snapshot returns the totals so far, for progress lines and tables, over all nodes. It leaves out operations without
// a call.
func (l *Load) Snapshot() map[trial.Operation]Totals {
	all := make(map[trial.Operation]Totals)
	for i, o := range trial.Operations {
		t := Totals{Outcomes: make(map[trial.Outcome]int64), Latency: NewLatency()}
		for node := range l.recorder.ledgers[i] {
			l.recorder.ledgers[i][node].addTo(t)
		}
		if len(t.Outcomes) > 0 {
			all[o] = t
		}
	}
	return all
}

func (l *ledger) addTo(t Totals) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for o, n := range l.outcomes {
		t.Outcomes[o] += n
	}
	if l.latency != nil {
		t.Latency.Merge(l.latency)
	}
}

// Series returns the record of everything sent since began, once Run has returned.
func (l *Load) Series() []trial.Series {
	var all []trial.Series
	for i, o := range trial.Operations {
		for node := range l.recorder.ledgers[i] {
			if bins := l.recorder.ledgers[i][node].filled(); len(bins) > 0 {
				all = append(all, trial.Series{Operation: o, Node: node, Bins: bins})
			}
		}
	}
	return all
}

// filled returns copies of the bins that are not empty.
func (l *ledger) filled() (bins []trial.Bin) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.bins {
		if b.Due() > 0 {
			b.Latencies = slices.Clone(b.Latencies)
			bins = append(bins, b)
		}
	}
	return bins
}
