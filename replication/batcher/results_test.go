package batcher

import (
	"bytes"
	"log/slog"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

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

// wantPause checks the pause after a call: at most so long, and at least half of it.
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
		poison []string // in the order in which they are found
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
		back    []string // batches, in the order in which they were given back
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

// given is work that a worker had.
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
