package load

import (
	"cmp"
	"maps"
	"math"
	"math/bits"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// LongestLatency is the upper end of the histograms, in µs; longer latencies are counted there.
const LongestLatency = int64(time.Minute / time.Microsecond)

// recorder counts calls. Safe for concurrent use.
type recorder struct {
	mu         sync.Mutex
	begin, end time.Time // of the load; zero before Run
	renewals   int64
	totals     map[trial.Operation]Totals
	bins       map[place][]trial.Bin // by number; includes empty ones
	watched    Watched
}

// place is the clients of one operation and one home node.
type place struct {
	operation trial.Operation
	home      int
}

// Totals sums up the calls of one operation.
type Totals struct {
	Outcomes map[trial.Outcome]int64
	Latency  *hdrhistogram.Histogram // µs, of the answered calls, from when they were due
}

// NewLatency returns an empty histogram of latencies in µs.
func NewLatency() *hdrhistogram.Histogram { return hdrhistogram.New(1, LongestLatency, 3) }

// record counts one ended call of a client of home that was due at due, and what the client felt (nil: nothing is
// kept). Of calls that were due before Run's start only Renewals counts.
func (l *Load) record(o trial.Operation, home int, due time.Time, result callResult, client *felt) {
	r := &l.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	if o == trial.Heartbeat && result.outcome == trial.Done {
		r.renewals++
	}
	if r.begin.IsZero() || due.Before(r.begin) {
		return
	}
	answered := result.outcome.Answered()
	client.add(due, result.done, answered, !due.Before(r.end))
	t, ok := r.totals[o]
	if !ok {
		t = Totals{Outcomes: make(map[trial.Outcome]int64), Latency: NewLatency()}
		r.totals[o] = t
	}
	t.Outcomes[result.outcome]++
	bin := r.bin(place{o, home}, int(due.Sub(r.begin)/trial.BinLength))
	*bin.Count(result.outcome)++
	if answered {
		latency := min(max(result.done.Sub(due).Microseconds(), 0), LongestLatency)
		_ = t.Latency.RecordValue(latency) // cannot fail: in range
		bin.Latencies = addLatency(bin.Latencies, lowestOfBucket(latency))
	}
}

// bin returns the bin of a number.
func (r *recorder) bin(of place, number int) *trial.Bin {
	for n := len(r.bins[of]); n <= number; n++ {
		r.bins[of] = append(r.bins[of], trial.Bin{Number: n})
	}
	return &r.bins[of][number]
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
func (l *Load) Renewals() int64 {
	l.recorder.mu.Lock()
	defer l.recorder.mu.Unlock()
	return l.recorder.renewals
}

// Snapshot returns the totals so far, for progress lines and tables, over all nodes. It leaves out operations without
// a call.
func (l *Load) Snapshot() map[trial.Operation]Totals {
	l.recorder.mu.Lock()
	defer l.recorder.mu.Unlock()
	all := make(map[trial.Operation]Totals)
	for o, t := range l.recorder.totals {
		all[o] = Totals{Outcomes: maps.Clone(t.Outcomes), Latency: hdrhistogram.Import(t.Latency.Export())}
	}
	return all
}

// Series returns the record of everything sent since began, once Run has returned.
func (l *Load) Series() (all []trial.Series) {
	l.recorder.mu.Lock()
	defer l.recorder.mu.Unlock()
	for _, o := range trial.Operations {
		for node := range l.Nodes {
			if bins := filled(l.recorder.bins[place{o, node}]); len(bins) > 0 {
				all = append(all, trial.Series{Operation: o, Node: node, Bins: bins})
			}
		}
	}
	return all
}

// filled returns copies of the bins that are not empty.
func filled(all []trial.Bin) (bins []trial.Bin) {
	for _, b := range all {
		if b.Due() > 0 {
			b.Latencies = slices.Clone(b.Latencies)
			bins = append(bins, b)
		}
	}
	return bins
}

// felt is what one client saw of one operation. The zero value has seen nothing. Safe for concurrent use.
type felt struct {
	mu       sync.Mutex
	calls    int
	answered int
	waits    time.Time // since when it has had no answer; zero if it has had one since its last call was due
	gap      time.Duration
}

// add counts a call that was due at a time and has ended. If it was due after the load (over), it only matters as the
// end of the client's wait.
func (f *felt) add(due, done time.Time, answered, over bool) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !over {
		f.calls++
		if answered {
			f.answered++
		}
		if f.waits.IsZero() {
			f.waits = due
		}
	}
	if answered && !f.waits.IsZero() {
		f.gap = max(f.gap, done.Sub(f.waits))
		f.waits = time.Time{}
	}
}

// stop records that the client stops calling, and so stops waiting for missing answers.
func (f *felt) stop(at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.waits.IsZero() {
		f.gap = max(f.gap, at.Sub(f.waits))
		f.waits = time.Time{}
	}
}

// saw returns what the client saw of the load. end is when it stopped calling.
func (f *felt) saw(end time.Time, o trial.Operation, home int) trial.Client {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := trial.Client{Operation: o, Home: home, Calls: f.calls, Answered: f.answered, Gap: trial.Of(f.gap)}
	if wait := trial.Since(f.waits, end); !f.waits.IsZero() && wait >= c.Gap {
		c.Gap, c.Open = wait, true
	}
	return c
}

// Clients returns what the clients saw that made any call during the load: those of instances, for heartbeats,
// registrations and cancels; and those that fetch, which end with the load. The others have been calling until now.
func (l *Load) Clients() (all []trial.Client) {
	add := func(f *felt, end time.Time, o trial.Operation, home int) {
		if c := f.saw(end, o, home); c.Calls > 0 {
			all = append(all, c)
		}
	}
	now := time.Now()
	for _, i := range l.fleet.instances() {
		add(&i.felt.heartbeats, now, trial.Heartbeat, i.home)
		add(&i.felt.registrations, now, trial.Register, i.home)
		add(&i.felt.cancels, now, trial.Cancel, i.home)
	}
	end := l.recorder.until(now)
	for _, p := range l.pollers {
		add(&p.felt, end, p.what, p.home)
	}
	return all
}

// until returns the end of the load, or now if that is earlier.
func (r *recorder) until(now time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end.After(now) {
		return now
	}
	return r.end
}

// pace records whether idle clients begin their calls when these are due. Safe for concurrent use.
type pace struct {
	mu        sync.Mutex
	due, late int
	worst     time.Duration
}

// add records that a call that was due at due begins now. One that waited for its client, which has been idle since a
// time, is not late because of the machine. Scripts keep their own time: what they do is due at the zero time.
func (p *pace) add(due, idle time.Time) {
	if due.IsZero() {
		return
	}
	lateness := min(time.Since(due), time.Since(idle))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.due++
	if lateness > trial.LateAfter {
		p.late++
	}
	p.worst = max(p.worst, lateness)
}

// Pace returns how many calls have been due since it was last called, how many of them began late although their
// client was idle, and the worst delay.
func (l *Load) Pace() (due, late int, worst time.Duration) {
	l.pace.mu.Lock()
	defer l.pace.mu.Unlock()
	due, late, worst = l.pace.due, l.pace.late, l.pace.worst
	l.pace.due, l.pace.late, l.pace.worst = 0, 0, 0
	return due, late, worst
}

// returned returns when a call ended, or the end of time if its client stopped waiting. When the trial begins is not
// known yet: moments are since the load was made, until rebase.
func returned(since time.Time, o trial.Outcome, at time.Time) trial.Micros {
	if o == trial.Unknown {
		return math.MaxInt64
	}
	return trial.Since(since, at)
}

// rebase makes moments since another time those of a trial that began at began.
func rebase(since, began time.Time, moments ...*trial.Micros) {
	for _, m := range moments {
		if *m != math.MaxInt64 {
			*m += trial.Since(began, since)
		}
	}
}

// History keeps every call on the watched keys of one load. The zero value is empty. Safe for concurrent use.
type History struct {
	mu    sync.Mutex
	since time.Time // when the load was made
	calls []trial.Call
}

// add keeps a call that has ended, or whose client has stopped waiting. Without a history it does nothing.
func (h *History) add(c trial.Call, called time.Time) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	c.Called, c.Returned = trial.Since(h.since, called), returned(h.since, c.Outcome, time.Now())
	h.calls = append(h.calls, c)
}

// Calls returns the calls in the order of their times, relative to began. Calls without a response return at the end
// of time (math.MaxInt64) if their outcome is trial.Unknown.
func (h *History) Calls(began time.Time) []trial.Call {
	h.mu.Lock()
	defer h.mu.Unlock()
	calls := slices.Clone(h.calls)
	for i := range calls {
		rebase(h.since, began, &calls[i].Called, &calls[i].Returned)
	}
	slices.SortStableFunc(calls, func(a, b trial.Call) int { return cmp.Compare(a.Called, b.Called) })
	return calls
}
