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
)

// rig is a dispatcher in a bubble, with a receiver whose results a test sets. A task is a string
// such as "a1", whose id is what stands before the first digit.
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

// response is what the receiver does with a call. Without one it takes the tasks at once.
type response struct {
	result Result
	after  time.Duration
	when   func(tasks []string) Result // in place of result
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

// until submits tasks that expire so long after the rig was made; 0: never.
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

// published says whether the acceptor did anything during f.
func (r *rig) published(f func()) bool {
	const mark = -1
	r.inbox.mu.Lock()
	r.inbox.stats.LastBatchSize = mark
	r.inbox.mu.Unlock()
	f()
	synctest.Wait()
	return r.Stats().LastBatchSize != mark
}

// at sleeps until so long after the rig was made.
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

// enter writes a call down and takes the next response.
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

// wantCalls compares the calls since the rig was made with "500ms a1 b1; 1s c1". Of calls by several
// workers at one moment, which have no order, it takes the lesser text first.
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

// many are tasks of n ids.
func many(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%c%c1 ", 'a'+i/26, 'a'+i%26)
	}
	return b.String()
}

// join merges tasks so that both can be seen.
func join(older, newer string) string { return older + "+" + newer }

const ms = time.Millisecond

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
