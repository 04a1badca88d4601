package batcher

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// counters picks what counts results, and what was given back and dropped.
func counters(s Stats) Stats {
	return Stats{
		ReplayedTasks: s.ReplayedTasks, ExpiredTasks: s.ExpiredTasks, OverriddenTasks: s.OverriddenTasks,
		QueueOverflows: s.QueueOverflows, StoppedTasks: s.StoppedTasks,
		SuccessfulExecutions: s.SuccessfulExecutions, TransientErrors: s.TransientErrors,
		PermanentErrors: s.PermanentErrors, CongestionIssues: s.CongestionIssues,
	}
}

func TestPauseHandsOutNothingAndTheAcceptorSleepsThroughIt(t *testing.T) {
	in(t, func(t *testing.T) {
		r := running(t, Config[string, string]{CongestionRetryDelay: 20 * time.Second}, response{result: Congestion})
		r.submit("a1")
		r.at(time.Second)
		expect.That(t, !r.published(func() { r.at(20499 * ms) }), "the acceptor woke up during the pause")
		r.at(20500 * ms)
		r.wantCalls("500ms a1; 20.5s a1")
	})
}

func TestReachingTheReceiverOtherwiseEndsThePauseAfterNetworkFailuresOnly(t *testing.T) {
	for _, tt := range []struct {
		name   string
		result Result
		want   string
	}{
		{"network failure", TransientError, "500ms a1; 5s a1"},
		{"congestion", Congestion, "500ms a1; 20.5s a1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				r := running(t, Config[string, string]{CongestionRetryDelay: 20 * time.Second, NetworkFailureRetry: 20 * time.Second}, response{result: tt.result})
				r.submit("a1")
				r.at(5 * time.Second)
				r.Reached()
				r.at(time.Minute)
				r.wantCalls(tt.want)
			})
		})
	}
}

func TestPauseGrowsToItsBoundAndASuccessResetsIt(t *testing.T) {
	in(t, func(t *testing.T) {
		again := response{result: TransientError}
		r := running(t, Config[string, string]{Backoff: true, NetworkFailureRetry: time.Second, MaxRetryDelay: 4 * time.Second},
			again, again, again, again, response{}, again)
		r.submit("a1")
		r.at(time.Minute)
		r.submit("b1")
		r.at(2 * time.Minute)
		for i, most := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second} {
			r.wantPause(i, most)
		}
		r.wantPause(5, time.Second)
		r.wantDone("a1 b1")
	})
}

// wantPause checks the pause after a call: at most the given time, and at least half of it.
func (r *rig) wantPause(call int, most time.Duration) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := r.calls[call+1].at - r.calls[call].at; got < most/2 || got > most {
		r.t.Errorf("the pause after call %d was %v, want %v to %v", call, got, most/2, most)
	}
}

func TestPanickingProcessorCostsOnlyTheTaskThatShowsIt(t *testing.T) {
	mistake := response{when: func(tasks []string) Result {
		for _, task := range tasks {
			if task == "c1" {
				panic("a mistake")
			}
		}
		return Success
	}}
	for _, row := range []struct {
		name     string
		workload int
		calls    int
	}{
		{"batches", 0, 6}, // all; two halves; d with c and e; then c alone
		{"single items", 1, 5},
	} {
		t.Run(row.name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				var log bytes.Buffer
				c := Config[string, string]{WorkloadSize: row.workload, WorkerCount: 1, Log: slog.New(slog.NewTextHandler(&log, nil))}
				r := running(t, c, slices.Repeat([]response{mistake}, 10)...)
				r.submit("a1 b1 c1 d1")
				r.at(time.Second)
				r.submit("e1")
				r.at(2 * time.Second)
				r.wantDone("a1 b1 d1 e1")
				r.wantDropped("c1 permanent")
				expect.That(t, len(r.calls) == row.calls, "got %d calls, want %d: %v", len(r.calls), row.calls, r.calls)
				for _, text := range []string{"processor panicked", "a mistake", "dispatcher=dc2", "rig_test.go"} {
					expect.That(t, strings.Contains(log.String(), text), "the log has no %q: %s", text, &log)
				}
			})
		})
	}
}

func TestPoisonTaskIsIsolatedAndTheOthersGoOn(t *testing.T) {
	for _, row := range []struct {
		name   string
		poison []string // in the order they are found
		calls  int      // at most
	}{
		{"one of 250", []string{"cd1"}, 1 + 2*8},
		{"the first and the last", []string{"jp1", "aa1"}, 1 + 2*2*8},
		{"two neighbours", []string{"ab1", "aa1"}, 1 + 2*9},
	} {
		t.Run(row.name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				refuse := response{when: func(tasks []string) Result {
					for _, poison := range row.poison {
						if slices.Contains(tasks, poison) {
							return PermanentError
						}
					}
					return Success
				}}
				r := running(t, Config[string, string]{WorkerCount: 1}, slices.Repeat([]response{refuse}, 100)...)
				r.submit(many(250))
				var dropped []string
				for _, poison := range row.poison {
					dropped = append(dropped, poison+" permanent")
				}
				r.wantDropped(dropped...)
				r.wantStats(Stats{SuccessfulExecutions: 250 - uint64(len(dropped)), PermanentErrors: uint64(len(dropped))}, counters)
				expect.That(t, len(r.calls) <= row.calls, "it took %d calls, want %d at most", len(r.calls), row.calls)
			})
		})
	}
}

func TestReprocessQueueIsTakenInBeforeTheAcceptorQueueNewestFirst(t *testing.T) {
	for _, row := range []struct {
		name    string
		size    int
		back    []string // batches, in the order they were given back
		new     string
		order   string
		dropped []string
	}{
		{"two batches stand in their old order", 9, []string{"a1 b1", "c1 d1"}, "e1", "a1 b1 c1 d1 e1", nil},
		{"a new task merges into one that was given back", 9, []string{"a1 b1"}, "c1 b2", "a1 b1+b2 c1", nil},
		{"the oldest do not fit", 3, []string{"a1 b1", "c1 d1"}, "", "b1 c1 d1", []string{"a1 overflow"}},
		{"a new one drops the oldest", 3, []string{"a1 b1", "c1 d1"}, "e1", "c1 d1 e1", []string{"a1 overflow", "b1 overflow"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				r := idle(t, Config[string, string]{MaxBufferSize: row.size, Merge: join})
				a := newAcceptor(&r.config, r.inbox, nil)
				for _, batch := range row.back {
					r.inbox.report(r.given(batch), Congestion)
				}
				r.submit(row.new)
				r.wantStats(Stats{ReprocessQueueSize: 2 * len(row.back)}, func(s Stats) Stats {
					return Stats{ReprocessQueueSize: s.ReprocessQueueSize}
				})
				a.collect(time.Now())
				var order []string
				for h := a.order.head; h != nil; h = h.after {
					order = append(order, h.task)
				}
				expect.Equal(t, strings.Join(order, " "), row.order, "the order is")
				r.wantDropped(row.dropped...)
			})
		})
	}
}

// given returns work that a worker had.
func (r *rig) given(tasks string) work[string, string] {
	var w work[string, string]
	for _, task := range strings.Fields(tasks) {
		w.tasks = append(w.tasks, &holder[string, string]{id: name(task), task: task, first: r.start})
	}
	return w
}

func TestGoroutinesAreLabelledAsUpstreamsThreads(t *testing.T) {
	for _, row := range []struct {
		name     string
		workload int
		want     []string
	}{
		{"batches", 0, []string{"TaskAcceptor-dc2", "TaskBatchingWorker-dc2"}},
		{"single items", 1, []string{"TaskAcceptor-dc2", "TaskNonBatchingWorker-dc2"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				r := running(t, Config[string, string]{WorkloadSize: row.workload})
				r.submit("")
				var profile bytes.Buffer
				need.OK(t, pprof.Lookup("goroutine").WriteTo(&profile, 1))
				for _, label := range row.want {
					expect.That(t, strings.Contains(profile.String(), `"`+label+`"`), "no goroutine is labelled %q", label)
				}
			})
		})
	}
}

// submissions is a task of the property test: the numbers of the submissions that were merged into it.
type submissions []int

// history is a drawn run: what is submitted and when, and the outcome of each transmission.
type history struct {
	config  Config[int, submissions]
	steps   []step
	results []outcome // of the transmissions in the order they start; after these, all succeed
	stop    bool      // stop the dispatcher right after the last step; otherwise it gets an hour to finish
	drain   time.Duration
}

// step is a submission of one id, after a pause.
type step struct {
	pause time.Duration
	id    int
}

// outcome is how one transmission ends, and how long it takes.
type outcome struct {
	result Result
	after  time.Duration
}

func drawHistory(t *rapid.T) history {
	moment := rapid.SampledFrom([]time.Duration{0, 0, 0, ms, 50 * ms, 600 * ms, 3 * time.Second})
	result := rapid.SampledFrom([]Result{Success, Congestion, TransientError, PermanentError})
	return history{
		config: Config[int, submissions]{
			MaxBufferSize: rapid.IntRange(1, 12).Draw(t, "buffer"),
			WorkloadSize:  rapid.IntRange(1, 5).Draw(t, "workload"),
			WorkerCount:   rapid.IntRange(1, 4).Draw(t, "workers"),
			Backoff:       rapid.Bool().Draw(t, "backoff"),
			Rate:          rapid.SampledFrom([]int{0, 0, 3, 1000}).Draw(t, "rate"),
		},
		steps: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
			return step{moment.Draw(t, "pause"), rapid.IntRange(0, 6).Draw(t, "id")}
		}), 1, 60).Draw(t, "steps"),
		results: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) outcome {
			return outcome{result.Draw(t, "result"), moment.Draw(t, "after")}
		}), 0, 40).Draw(t, "results"),
		stop:  rapid.Bool().Draw(t, "stop"),
		drain: moment.Draw(t, "drain"),
	}
}

// recorder is the receiver of a dispatcher and its callbacks: it records what they get, and which promises are
// broken.
type recorder struct {
	mu        sync.Mutex
	results   []outcome
	busy      map[int]bool
	attempted map[int]int         // newest submission that was ever sent, by id
	done      map[int]submissions // what was transmitted, in order, by id
	dropped   map[int]submissions
	broken    []string
}

func (w *recorder) Process(ctx context.Context, task submissions) Result {
	return w.ProcessBatch(ctx, []submissions{task})
}

func (w *recorder) ProcessBatch(ctx context.Context, tasks []submissions) Result {
	o := w.start(tasks)
	wait := time.NewTimer(o.after)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		o.result = TransientError
	}
	w.finish(tasks)
	return o.result
}

// start records a transmission. The last digit of each submission is the id.
func (w *recorder) start(tasks []submissions) (o outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range tasks {
		id, newest := f[0]%10, f[len(f)-1]
		if w.busy[id] {
			w.recordBreach("id %d is in flight twice", id)
		}
		if newest < w.attempted[id] {
			w.recordBreach("id %d: %v is sent after %d", id, f, w.attempted[id])
		}
		w.busy[id], w.attempted[id] = true, newest
	}
	if len(w.results) > 0 {
		o = w.results[0]
		w.results = w.results[1:]
	}
	return o
}

func (w *recorder) finish(tasks []submissions) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range tasks {
		w.busy[f[0]%10] = false
	}
}

// record records which list a task ended up in.
func (w *recorder) record(list map[int]submissions, id int, f submissions) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list[id] = append(list[id], f...)
}

// recordBreach records a broken promise. The caller holds mu.
func (w *recorder) recordBreach(format string, args ...any) {
	w.broken = append(w.broken, fmt.Sprintf(format, args...))
}

// play runs a history in a bubble. end and room are the dispatcher's statistics and room when everything is over.
func play(t *testing.T, h history) (w *recorder, submitted map[int]submissions, end Stats, room int) {
	w = &recorder{results: h.results, busy: map[int]bool{}, attempted: map[int]int{}, done: map[int]submissions{}, dropped: map[int]submissions{}}
	submitted = map[int]submissions{}
	synctest.Test(t, func(t *testing.T) {
		c := h.config
		c.Processor = w
		c.Merge = func(older, newer submissions) submissions { return slices.Concat(older, newer) }
		c.Done = func(id int, f submissions) { w.record(w.done, id, f) }
		c.Dropped = func(id int, f submissions, _ Drop) { w.record(w.dropped, id, f) }
		d := New(c)
		ctx, stop := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { _ = d.Run(ctx, h.drain) })
		for i, s := range h.steps {
			time.Sleep(s.pause)
			submission := 10*(i+1) + s.id
			submitted[s.id] = append(submitted[s.id], submission)
			d.Process(s.id, submissions{submission}, time.Time{})
		}
		if !h.stop {
			time.Sleep(time.Hour)
		}
		end, room = d.Stats(), d.Room()
		stop()
		group.Wait()
		if h.stop {
			end, room = d.Stats(), d.Room()
		}
	})
	return w, submitted, end, room
}

func TestDispatcherSendsTheLastStateOfEachIDInOrderOrReportsItDropped(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := drawHistory(rt)
		w, submitted, end, room := play(t, h)
		for _, b := range w.broken {
			rt.Error(b)
		}
		for id, want := range submitted {
			done, dropped := w.done[id], w.dropped[id]
			expect.That(rt, slices.IsSorted(done), "id %d: transmitted %v, want the order of submission", id, done)
			all := slices.Sorted(slices.Values(slices.Concat(done, dropped)))
			expect.That(rt, slices.Equal(all, want), "id %d: transmitted %v and dropped %v, want each of %v once", id, done, dropped, want)
			last := want[len(want)-1]
			expect.That(rt, slices.Contains(dropped, last) || w.attempted[id] == last, "id %d: the last state %d did not arrive, the newest sent is %d", id, last, w.attempted[id])
		}
		ended := end.SuccessfulExecutions + end.OverriddenTasks + end.QueueOverflows + end.PermanentErrors + end.StoppedTasks
		expect.That(rt, int(ended) == len(h.steps) && int(end.AcceptedTasks) == len(h.steps) && end.QueueSize == 0 && end.InFlight == 0,
			"%d tasks are not accounted for by %+v", len(h.steps), end)
		expect.That(rt, h.stop || end.StoppedTasks == 0, "tasks were left after an hour: %+v", end)
		expect.That(rt, room == h.config.MaxBufferSize, "there is room for %d tasks, want %d", room, h.config.MaxBufferSize)
	})
}
