package batcher

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// rig is a dispatcher in a bubble, with a receiver whose results a test sets. A task is a string such as "a1"; its id
// is everything before the first digit.
type rig struct {
	*Dispatcher[string, string]
	t     *testing.T
	start time.Time
	end   context.CancelFunc // ends Run's context

	mu        sync.Mutex
	calls     []call
	done      []string
	dropped   []string // "a1 expired"
	responses []response
}

// call is which tasks the receiver got, and when.
type call struct {
	at    time.Duration // since the rig was made
	tasks string
}

func (c call) String() string { return fmt.Sprint(c.at, " ", c.tasks) }

// response is what the receiver does with a call. Without one it accepts the tasks at once.
type response struct {
	result Result
	after  time.Duration
	when   func(tasks []string) Result // instead of result
}

// in runs f in a bubble.
func in(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// idle makes a rig whose dispatcher does not run yet.
func idle(t *testing.T, c Config[string, string], responses ...response) *rig {
	r := &rig{t: t, start: time.Now(), responses: responses}
	c.Name = "dc2"
	c.Processor = r
	c.Done = func(id, task string) { r.record(&r.done, id, task, task) }
	c.Dropped = func(id, task string, why Drop) {
		r.record(&r.dropped, id, task, task+" "+[]string{"expired", "overflow", "permanent", "stopped"}[why])
	}
	r.Dispatcher = New(c)
	return r
}

// running makes a rig whose dispatcher runs until the test ends.
func running(t *testing.T, c Config[string, string], responses ...response) *rig {
	r := idle(t, c, responses...)
	r.run(0)
	return r
}

func (r *rig) run(drain time.Duration) (ended <-chan struct{}) {
	ctx, end := context.WithCancel(r.t.Context())
	r.end = end
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.Run(ctx, drain); err != nil {
			r.t.Errorf("run: %v", err)
		}
	}()
	r.t.Cleanup(func() { end(); <-done })
	return done
}

func (r *rig) record(list *[]string, id, task, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	expect.That(r.t, id == name(task), "%q came with id %q", task, id)
	*list = append(*list, text)
}

// submit submits tasks that never expire, and lets them arrive.
func (r *rig) submit(tasks string) { r.until(0, tasks) }

// until submits tasks that expire at the given time after the rig was made; 0 means never.
func (r *rig) until(expiry time.Duration, tasks string) {
	var moment time.Time
	if expiry > 0 {
		moment = r.start.Add(expiry)
	}
	for _, task := range strings.Fields(tasks) {
		r.Dispatcher.Process(name(task), task, moment)
	}
	synctest.Wait()
}

// published reports whether the acceptor did anything during f.
func (r *rig) published(f func()) bool {
	const mark = -1
	r.inbox.mu.Lock()
	r.inbox.stats.LastBatchSize = mark
	r.inbox.mu.Unlock()
	f()
	synctest.Wait()
	return r.Stats().LastBatchSize != mark
}

// at sleeps until the given time after the rig was made.
func (r *rig) at(moment time.Duration) {
	time.Sleep(time.Until(r.start.Add(moment)))
	synctest.Wait()
}

func (r *rig) Process(ctx context.Context, task string) Result {
	expect.That(r.t, r.config.single(), "%q came alone", task)
	return r.call(ctx, []string{task})
}

func (r *rig) ProcessBatch(ctx context.Context, tasks []string) Result {
	expect.That(r.t, !r.config.single(), "%q came as a batch", tasks)
	return r.call(ctx, tasks)
}

func (r *rig) call(ctx context.Context, tasks []string) Result {
	a := r.enter(tasks)
	wait := time.NewTimer(a.after)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		return TransientError
	}
	if a.when != nil {
		return a.when(tasks)
	}
	return a.result
}

// enter records a call and removes the next response.
func (r *rig) enter(tasks []string) (a response) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call{time.Since(r.start), strings.Join(tasks, " ")})
	if len(r.responses) > 0 {
		a = r.responses[0]
		r.responses = r.responses[1:]
	}
	return a
}

// wantCalls compares the calls since the rig was made with "500ms a1 b1; 1s c1". Calls by several workers at one
// moment have no order: it sorts them by text.
func (r *rig) wantCalls(want string) {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.config.WorkerCount > 1 {
		slices.SortFunc(r.calls, func(a, b call) int {
			return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.tasks, b.tasks))
		})
	}
	var got []string
	for _, c := range r.calls {
		got = append(got, c.String())
	}
	expect.Equal(r.t, strings.Join(got, "; "), want, "after %v the receiver got", time.Since(r.start))
}

// wantDone compares what was transmitted, in any order.
func (r *rig) wantDone(want string) {
	r.t.Helper()
	r.want("transmitted", &r.done, strings.Fields(want))
}

// wantDropped compares what was given up, in order: "a1 expired", "b1 overflow".
func (r *rig) wantDropped(want ...string) { r.t.Helper(); r.want("dropped", &r.dropped, want) }

func (r *rig) want(what string, list *[]string, want []string) {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	got := slices.Clone(*list)
	if what == "transmitted" {
		slices.Sort(got)
		slices.Sort(want)
	}
	expect.That(r.t, slices.Equal(got, want), "%s: got %q, want %q", what, got, want)
}

// wantStats compares the numbers that f picks.
func (r *rig) wantStats(want Stats, f func(Stats) Stats) {
	r.t.Helper()
	synctest.Wait()
	expect.Equal(r.t, f(r.Stats()), want, "stats: got")
}

func name(task string) string { return task[:strings.IndexAny(task, "0123456789")] }

// many returns tasks of n ids.
func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%c%c1 ", 'a'+i/26, 'a'+i%26)
	}
	return b.String()
}

// join merges tasks so that both remain visible.
func join(older, newer string) string { return older + "+" + newer }

const ms = time.Millisecond

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scenario says what happens when, and with what result.
type scenario struct {
	name      string
	config    Config[string, string]
	responses []response
	// script lists times and what is submitted then, ending with the time of the check: "100ms a1; 400ms b1@2s; 1s",
	// where b1 expires after 2 s. The dispatcher runs from the beginning, or from the word run on, and until the word
	// stop if there is one.
	script  string
	calls   string // "500ms a1 b1; 1s c1"
	dropped string // "a1 expired, b1 overflow"
	stats   Stats  // zero if they are not checked
	drain   time.Duration
	ends    time.Duration // when Run returns after a stop
}

// playEach plays scenarios, each in a bubble of its own.
func playEach(t *testing.T, all ...scenario) {
	for _, s := range all {
		t.Run(s.name, func(t *testing.T) { synctest.Test(t, s.play) })
	}
}

func (s scenario) play(t *testing.T) {
	r := idle(t, s.config, s.responses...)
	var ended <-chan struct{}
	if !strings.Contains(s.script, "run") {
		ended = r.run(s.drain)
	}
	for step := range strings.SplitSeq(s.script, "; ") {
		words := strings.Fields(step)
		r.at(need.Got(time.ParseDuration(words[0]))(t))
		for _, word := range words[1:] {
			task, expiry, expires := strings.Cut(word, "@")
			switch {
			case word == "run":
				ended = r.run(s.drain)
			case word == "stop":
				synctest.Wait()
				r.end()
			case expires:
				r.Dispatcher.Process(name(task), task, r.start.Add(need.Got(time.ParseDuration(expiry))(t)))
			default:
				r.Dispatcher.Process(name(task), task, time.Time{})
			}
		}
		synctest.Wait()
	}
	if strings.Contains(s.script, "stop") {
		r.wantEnd(ended, s.ends)
	}
	r.wantCalls(s.calls)
	expect.Equal(t, strings.Join(r.dropped, ", "), s.dropped, "dropped:")
	if s.stats != (Stats{}) {
		got := r.Stats()
		counts := counters(got)
		if s.stats.LastBatchSize+s.stats.PendingJobRequests > 0 {
			counts.LastBatchSize, counts.PendingJobRequests = got.LastBatchSize, got.PendingJobRequests
		}
		expect.Equal(t, counts, s.stats, "stats:")
	}
}

// of configures a dispatcher for batches of a size, a buffer (0 for the default) and workers (0 for the default).
func of(size, buffer, workers int) Config[string, string] {
	return Config[string, string]{WorkloadSize: size, MaxBufferSize: buffer, WorkerCount: workers}
}

// merging is of with tasks merged so that both remain visible.
func merging(size, buffer, workers int) Config[string, string] {
	c := of(size, buffer, workers)
	c.Merge = join
	return c
}

// slowly takes a call after a delay.
func slowly(after time.Duration) response { return response{after: after} }
func fails(results ...Result) (all []response) {
	for _, result := range results {
		all = append(all, response{result: result})
	}
	return all
}

func TestBatchIsDueByItsDelayByItsSizeAndByAFullBuffer(t *testing.T) {
	playEach(t,
		scenario{name: "its oldest task has waited for the delay", script: "100ms a1; 400ms b1; 600ms c1; 1.1s", calls: "600ms a1 b1; 1.1s c1"},
		scenario{name: "it is full", config: of(3, 0, 0), script: "0s a1 b1; 0s c1; 0s d1 e1 f1 g1", calls: "0s a1 b1 c1; 0s d1 e1 f1"},
		scenario{name: "the buffer is full", config: of(0, 2, 0), script: "0s a1; 0s b1", calls: "0s a1 b1"},
		scenario{name: "it has no more than its size, from the front", config: of(2, 0, 0), script: "0s a1 b1 c1 d1 e1 run; 500ms",
			calls: "0s a1 b1; 0s c1 d1; 500ms e1", stats: Stats{SuccessfulExecutions: 5, LastBatchSize: 1, PendingJobRequests: 20}},
		scenario{name: "a task that is renewed more often than the delay holds nothing back",
			script: "0s a0 b1; 100ms a1; 200ms a2; 300ms a3; 400ms a4; 500ms a5; 600ms a6; 700ms a7; 800ms a8; 900ms a9; 1s", calls: "500ms a4 b1; 1s a9"},
		scenario{name: "it was submitted before the start", script: "0s a1; 400ms run; 1s", calls: "500ms a1"},
	)
}

func TestNewerTaskTakesThePlaceOfThePendingOneOfItsID(t *testing.T) {
	playEach(t,
		scenario{name: "replaced", script: "0s a1 b1 c1 a2 b2 a3; 500ms", calls: "500ms a3 b2 c1", stats: Stats{OverriddenTasks: 3, SuccessfulExecutions: 3}},
		scenario{name: "merged", config: merging(0, 0, 0), script: "0s a1 b1 a2 a3; 500ms", calls: "500ms a1+a2+a3 b1"},
		scenario{name: "all that was submitted before the batch is made", config: merging(2, 0, 0), script: "0s a1 b1 c1 a2 b2 run; 0s", calls: "0s a1+a2 b1+b2"},
	)
}

func TestOverflowDropsTheOldest(t *testing.T) {
	playEach(t,
		scenario{name: "of other ids", config: of(0, 3, 0), script: "0s a1 b1 c1 d1 e1 run; 0s", calls: "0s c1 d1 e1", dropped: "a1 overflow, b1 overflow",
			stats: Stats{QueueOverflows: 2, SuccessfulExecutions: 3}},
		scenario{name: "none for an id that is pending", config: of(0, 3, 0), script: "0s a1 b1 c1 b2 c2 run; 0s", calls: "0s a1 b2 c2"},
		scenario{name: "a blocked task, whose id goes on", config: of(2, 2, 1), responses: []response{slowly(time.Second)}, script: "0s a1 b1; 0s a2 c1 d1; 1s a3 b2",
			calls: "0s a1 b1; 1s c1 d1; 1s a3 b2", dropped: "a2 overflow"},
	)
}

func TestExpiredTaskIsDroppedWhenItsTurnComes(t *testing.T) {
	playEach(t,
		scenario{name: "not before", script: "0s a1@100ms; 499ms"},
		scenario{name: "then", script: "0s a1@500ms b1@501ms c1@100ms; 500ms", calls: "500ms b1", dropped: "a1 expired, c1 expired",
			stats: Stats{ExpiredTasks: 2, SuccessfulExecutions: 1, LastBatchSize: 1, PendingJobRequests: 20}},
		scenario{name: "the worker's request stays open", config: of(0, 0, 1), script: "0s a1@100ms b1@100ms; 500ms c1; 1s", calls: "1s c1", dropped: "a1 expired, b1 expired"},
		scenario{name: "replaced by one that expires earlier", script: "0s a1@9s a2@100ms; 500ms", dropped: "a2 expired"},
		scenario{name: "replaced by one that expires later", script: "0s a1@100ms a2@9s; 500ms", calls: "500ms a2"},
		scenario{name: "replaced by one that never does", script: "0s a1@100ms a2; 500ms", calls: "500ms a2"},
		scenario{name: "merged with one that expires earlier", config: merging(0, 0, 0), script: "0s a1@9s a2@100ms; 500ms", calls: "500ms a1+a2"},
		scenario{name: "merged with one that expires later", config: merging(0, 0, 0), script: "0s a1@100ms a2@9s; 500ms", calls: "500ms a1+a2"},
		scenario{name: "merged, the older never expires", config: merging(0, 0, 0), script: "0s a1 a2@100ms; 500ms", calls: "500ms a1+a2"},
		scenario{name: "merged, the newer never expires", config: merging(0, 0, 0), script: "0s a1@100ms a2; 500ms", calls: "500ms a1+a2"},
		scenario{name: "merged, both expired", config: merging(0, 0, 0), script: "0s a1@100ms a2@200ms; 500ms", dropped: "a1+a2 expired"},
		scenario{name: "single items", config: of(1, 0, 0), responses: []response{slowly(time.Second)}, script: "0s a1; 0s b1@500ms c1@500ms; 0s d1; 1s",
			calls: "0s a1; 1s d1", dropped: "b1 expired, c1 expired"},
	)
}

func TestIDInFlightIsNotHandedOutAgain(t *testing.T) {
	playEach(t,
		// d1 and e1 fill a batch, although a2 and b2 are before them.
		scenario{name: "during a slow call", config: of(2, 0, 0), responses: []response{slowly(3 * time.Second)}, script: "0s a1 b1; 0s a2 c1; 500ms b2 d1 e1; 3s",
			calls: "0s a1 b1; 500ms c1; 500ms d1 e1; 3s a2 b2"},
		scenario{name: "blocked tasks make no batch due", config: of(2, 0, 0), responses: []response{slowly(3 * time.Second)}, script: "0s a1 b1; 0s a2 b2; 100ms c1; 600ms",
			calls: "0s a1 b1; 600ms c1"},
		scenario{name: "several workers of single items", config: of(1, 0, 3), responses: []response{slowly(time.Second)}, script: "0s a1; 0s a2 b1; 1s", calls: "0s a1; 0s b1; 1s a2"},
	)
}

func TestSingleItemIsTreatedAsABatchOfOne(t *testing.T) {
	slow := slowly(time.Second)
	playEach(t,
		scenario{name: "at once, one by one, in order", config: of(1, 0, 0), responses: []response{slow, slow, slow}, script: "0s a1; 0s b1 c1 b2; 10s",
			calls: "0s a1; 1s b2; 2s c1", stats: Stats{SuccessfulExecutions: 3, OverriddenTasks: 1}},
		scenario{name: "congestion", config: of(1, 0, 0), responses: fails(Congestion), script: "0s a1; 0s b1; 5s", calls: "0s a1; 1s a1; 1s b1",
			stats: Stats{SuccessfulExecutions: 2, CongestionIssues: 1, ReplayedTasks: 1}},
		scenario{name: "transient error", config: of(1, 0, 0), responses: fails(TransientError), script: "0s a1; 0s b1; 5s", calls: "0s a1; 100ms a1; 100ms b1",
			stats: Stats{SuccessfulExecutions: 2, TransientErrors: 1, ReplayedTasks: 1}},
		scenario{name: "permanent error", config: of(1, 0, 0), responses: fails(PermanentError), script: "0s a1; 0s b1; 5s", calls: "0s a1; 0s b1", dropped: "a1 permanent",
			stats: Stats{SuccessfulExecutions: 1, PermanentErrors: 1}},
	)
}

func TestResultDecidesWhatBecomesOfATask(t *testing.T) {
	playEach(t,
		scenario{name: "success", script: "0s a1 b1; 1m", calls: "500ms a1 b1", stats: Stats{SuccessfulExecutions: 2}},
		scenario{name: "congestion", responses: fails(Congestion), script: "0s a1 b1; 1m", calls: "500ms a1 b1; 1.5s a1 b1",
			stats: Stats{SuccessfulExecutions: 2, CongestionIssues: 2, ReplayedTasks: 2}},
		scenario{name: "transient error", responses: fails(TransientError), script: "0s a1 b1; 1m", calls: "500ms a1 b1; 600ms a1 b1",
			stats: Stats{SuccessfulExecutions: 2, TransientErrors: 2, ReplayedTasks: 2}},
		scenario{name: "no known result", responses: fails(PermanentError + 1), script: "0s a1 b1; 1m", calls: "500ms a1; 500ms a1 b1; 500ms b1", stats: Stats{SuccessfulExecutions: 2}},
	)
}

func TestFailureHoldsBackTheWholeDispatcher(t *testing.T) {
	playEach(t,
		scenario{name: "what is behind it", config: of(2, 0, 0), responses: fails(Congestion), script: "0s a1 b1; 0s c1 d1 e1 f1; 1s", calls: "0s a1 b1; 1s a1 b1; 1s c1 d1; 1s e1 f1"},
		scenario{name: "what comes later goes with it", responses: fails(TransientError, TransientError), script: "0s a1; 550ms b1; 1s", calls: "500ms a1; 600ms a1 b1; 700ms a1 b1"},
		scenario{name: "as long each time in a row", responses: fails(Congestion, Congestion, Congestion), script: "0s a1; 1m", calls: "500ms a1; 1.5s a1; 2.5s a1; 3.5s a1"},
	)
}

func TestPartOfASplitBatchMeetsAllOtherResults(t *testing.T) {
	split := func(part Result) []response { return fails(PermanentError, part) }
	playEach(t,
		scenario{name: "success", config: of(2, 0, 1), responses: split(Success), script: "0s a1 b1; 2s", calls: "0s a1 b1; 0s b1; 0s a1", stats: Stats{SuccessfulExecutions: 2}},
		scenario{name: "congestion", config: of(2, 0, 1), responses: split(Congestion), script: "0s a1 b1; 2s", calls: "0s a1 b1; 0s b1; 1s a1; 1s b1",
			stats: Stats{SuccessfulExecutions: 2, CongestionIssues: 1, ReplayedTasks: 1}},
		scenario{name: "permanent error", config: of(2, 0, 1), responses: split(PermanentError), script: "0s a1 b1; 2s", calls: "0s a1 b1; 0s b1; 0s a1", dropped: "b1 permanent",
			stats: Stats{SuccessfulExecutions: 1, PermanentErrors: 1}},
		scenario{name: "congestion, then expired", config: of(2, 0, 1), responses: split(Congestion), script: "0s a1@900ms b1@900ms; 2s", calls: "0s a1 b1; 0s b1",
			dropped: "a1 expired, b1 expired"},
		scenario{name: "its ids are in flight until their part is done", config: of(4, 0, 1),
			responses: []response{{after: time.Second, result: PermanentError}, slowly(10 * time.Second), slowly(10 * time.Second)},
			script:    "0s a1 b1 c1 d1; 0s a2 b2 c2 d2; 30s", calls: "0s a1 b1 c1 d1; 1s c1 d1; 11s a1 b1; 21s a2 b2 c2 d2"},
	)
}

func TestTasksGivenBackGoToTheHeadInTheirOldOrder(t *testing.T) {
	late := func(result Result) []response { return []response{{after: time.Second, result: result}} }
	merged := Stats{OverriddenTasks: 1, TransientErrors: 2, ReplayedTasks: 2, SuccessfulExecutions: 3}
	playEach(t,
		scenario{name: "before newer ones", config: of(3, 0, 1), responses: late(TransientError), script: "0s a1 b1 c1; 0s d1 e1 f1; 1.1s",
			calls: "0s a1 b1 c1; 1.1s a1 b1 c1; 1.1s d1 e1 f1"},
		scenario{name: "without the expired", config: of(2, 0, 0), responses: late(TransientError), script: "0s a1@1s b1@2s; 1.1s", calls: "0s a1 b1; 1.1s b1",
			dropped: "a1 expired", stats: Stats{ExpiredTasks: 1, TransientErrors: 2, ReplayedTasks: 2, SuccessfulExecutions: 1}},
		scenario{name: "whose lives do not get longer", responses: fails(Congestion, Congestion, Congestion, Congestion), script: "0s a1@3s; 10s",
			calls: "500ms a1; 1.5s a1; 2.5s a1", dropped: "a1 expired"},
		// They are behind c1 then, but a1 was before it.
		scenario{name: "replaced by newer ones", config: of(2, 0, 1), responses: late(TransientError), script: "0s a1 b1; 900ms c1 a2; 2s",
			calls: "0s a1 b1; 1.1s a2 b1; 1.4s c1", stats: merged},
		scenario{name: "merged with newer ones", config: merging(2, 0, 1), responses: late(TransientError), script: "0s a1 b1; 900ms c1 a2; 2s",
			calls: "0s a1 b1; 1.1s a1+a2 b1; 1.4s c1", stats: merged},
		scenario{name: "the oldest find no room", config: of(3, 4, 1), responses: late(Congestion), script: "0s a1 b1 c1; 0s d1 e1 f1; 2s",
			calls: "0s a1 b1 c1; 2s c1 d1 e1; 2s f1", dropped: "b1 overflow, a1 overflow",
			stats: Stats{QueueOverflows: 2, CongestionIssues: 3, ReplayedTasks: 3, SuccessfulExecutions: 4}},
		scenario{name: "one that a newer supersedes needs none", config: merging(2, 2, 1), responses: late(Congestion), script: "0s a1 b1; 0s a2 c1; 2s",
			calls: "0s a1 b1; 2s a1+a2 c1", dropped: "b1 overflow"},
	)
}

func TestRateLimitsWhatIsHandedOut(t *testing.T) {
	limited := func(size, rate int) Config[string, string] {
		c := of(size, 0, 2)
		c.Rate = rate
		return c
	}
	script := "0s " + many(17) + "run; 2s"
	playEach(t,
		scenario{name: "batches", config: limited(4, 8), script: script,
			calls: "0s aa1 ab1 ac1 ad1; 490ms ae1 af1 ag1 ah1; 990ms ai1 aj1 ak1 al1; 1.49s am1 an1 ao1 ap1; 1.99s aq1"},
		scenario{name: "a batch is no larger than the rate", config: limited(250, 2), script: script, calls: "0s aa1 ab1; 990ms ac1 ad1; 1.99s ae1 af1"},
		scenario{name: "single items", config: limited(1, 2), script: script, calls: "0s aa1; 490ms ab1; 990ms ac1; 1.49s ad1; 1.99s ae1"},
	)
}

func TestStopDropsPendingTasks(t *testing.T) {
	playEach(t,
		scenario{name: "that wait", script: "0s a1 b1 a2 stop", dropped: "a2 stopped, b1 stopped", stats: Stats{StoppedTasks: 2, OverriddenTasks: 1}},
		scenario{name: "and ends transmissions under way", config: merging(2, 0, 0), responses: []response{slowly(time.Minute)}, script: "0s a1 b1; 0s c1 a2; 100ms stop",
			calls: "0s a1 b1", dropped: "a1+a2 stopped, b1 stopped, c1 stopped", ends: 100 * ms},
		scenario{name: "and the rest of a split batch", config: of(4, 0, 1), responses: []response{{result: PermanentError}, slowly(time.Minute)}, script: "0s a1 b1 c1 d1; 0s b2 stop",
			calls: "0s a1 b1 c1 d1; 0s c1 d1", dropped: "a1 stopped, b1 stopped, c1 stopped, d1 stopped, b2 stopped"},
		scenario{name: "and those that come after it", script: "0s stop; 0s a1 b1", dropped: "a1 stopped, b1 stopped"},
	)
}

func TestDrainSendsPendingTasksUntilItsTime(t *testing.T) {
	slow := slowly(time.Second)
	playEach(t,
		scenario{name: "without a delay", drain: 5 * time.Second, script: "0s a1 b1 stop", calls: "0s a1 b1"},
		scenario{name: "those too that come while there is time", drain: 5 * time.Second, config: of(2, 0, 1), responses: []response{slow, slow, slow},
			script: "0s a1 b1 c1 d1 e1 stop; 500ms f1", calls: "0s a1 b1; 1s c1 d1; 2s e1 f1", ends: 3 * time.Second},
		scenario{name: "and ends at it", drain: 5 * time.Second, config: of(2, 0, 1), responses: []response{slowly(2 * time.Second), slowly(time.Minute)},
			script: "0s a1 b1 c1 d1 e1 stop", calls: "0s a1 b1; 2s c1 d1", dropped: "c1 stopped, d1 stopped, e1 stopped", ends: 5 * time.Second},
		scenario{name: "after the pause of a failure", drain: 5 * time.Second, config: of(2, 0, 0), responses: fails(Congestion), script: "0s a1 b1 stop",
			calls: "0s a1 b1; 1s a1 b1", ends: time.Second},
		scenario{name: "at once when there are none", drain: time.Hour, script: "1s stop", ends: time.Second},
	)
}
