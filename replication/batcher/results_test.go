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

func TestResultDecidesWhatBecomesOfATask(t *testing.T) {
	for _, row := range []struct {
		name    string
		result  Result
		calls   string
		done    string
		dropped []string
		stats   Stats
	}{
		{"success", Success, "500ms a1 b1", "a1 b1", nil, Stats{SuccessfulExecutions: 2}},
		{"congestion", Congestion, "500ms a1 b1; 1.5s a1 b1", "a1 b1", nil,
			Stats{SuccessfulExecutions: 2, CongestionIssues: 2, ReplayedTasks: 2}},
		{"transient error", TransientError, "500ms a1 b1; 600ms a1 b1", "a1 b1", nil,
			Stats{SuccessfulExecutions: 2, TransientErrors: 2, ReplayedTasks: 2}},
		{"no known result", PermanentError + 1, "500ms a1; 500ms a1 b1; 500ms b1", "a1 b1", nil, Stats{SuccessfulExecutions: 2}},
	} {
		t.Run(row.name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				r := running(t, Config[string, string]{}, response{result: row.result})
				r.submit("a1 b1")
				r.at(time.Minute)
				r.wantCalls(row.calls)
				r.wantDone(row.done)
				r.wantDropped(row.dropped...)
				r.wantStats(row.stats, counters)
			})
		})
	}
}

// counters picks what counts results, and what was given back and dropped.
func counters(s Stats) Stats {
	return Stats{
		ReplayedTasks: s.ReplayedTasks, ExpiredTasks: s.ExpiredTasks, OverriddenTasks: s.OverriddenTasks,
		QueueOverflows: s.QueueOverflows, StoppedTasks: s.StoppedTasks,
		SuccessfulExecutions: s.SuccessfulExecutions, TransientErrors: s.TransientErrors,
		PermanentErrors: s.PermanentErrors, CongestionIssues: s.CongestionIssues,
	}
}

func TestFailureHoldsBackTheWholeDispatcher(t *testing.T) {
	in(t, func(t *testing.T) {
		r := running(t, Config[string, string]{WorkloadSize: 2}, response{result: Congestion})
		r.submit("a1 b1")
		r.submit("c1 d1 e1 f1")
		r.at(999 * ms)
		r.wantCalls("0s a1 b1")
		r.at(time.Second)
		r.wantCalls("0s a1 b1; 1s a1 b1; 1s c1 d1; 1s e1 f1")
	})
}

func TestRetriedTaskNeedsNoNewDelay(t *testing.T) {
	in(t, func(t *testing.T) {
		r := running(t, Config[string, string]{}, response{result: TransientError}, response{result: TransientError})
		r.submit("a1")
		r.at(550 * ms)
		r.submit("b1")
		r.at(time.Second)
		r.wantCalls("500ms a1; 600ms a1 b1; 700ms a1 b1")
	})
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

func TestPauseOfUpstreamStaysTheSameInARow(t *testing.T) {
	in(t, func(t *testing.T) {
		again := response{result: Congestion}
		r := running(t, Config[string, string]{}, again, again, again)
		r.submit("a1")
		r.at(time.Minute)
		r.wantCalls("500ms a1; 1.5s a1; 2.5s a1; 3.5s a1")
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

func TestIDsOfASplitBatchAreInFlightUntilTheirPartIsDone(t *testing.T) {
	in(t, func(t *testing.T) {
		slow := response{after: 10 * time.Second}
		r := running(t, Config[string, string]{WorkloadSize: 4, WorkerCount: 1}, response{after: time.Second, result: PermanentError}, slow, slow)
		r.submit("a1 b1 c1 d1")
		r.submit("a2 b2 c2 d2")
		r.at(2 * time.Second)
		r.wantCalls("0s a1 b1 c1 d1; 1s c1 d1")
		r.wantStats(Stats{QueueSize: 4, InFlight: 4}, func(s Stats) Stats { return Stats{QueueSize: s.QueueSize, InFlight: s.InFlight} })
		r.at(30 * time.Second)
		r.wantCalls("0s a1 b1 c1 d1; 1s c1 d1; 11s a1 b1; 21s a2 b2 c2 d2")
	})
}

func TestPartOfASplitBatchMeetsAllOtherResults(t *testing.T) {
	for _, row := range []struct {
		name   string
		part   Result
		expiry time.Duration
		calls  string
		done   string
		drops  []string
	}{
		{"success", Success, 0, "0s a1 b1; 0s b1; 0s a1", "a1 b1", nil},
		{"congestion", Congestion, 0, "0s a1 b1; 0s b1; 1s a1; 1s b1", "a1 b1", nil},
		{"permanent error", PermanentError, 0, "0s a1 b1; 0s b1; 0s a1", "a1", []string{"b1 permanent"}},
		{"congestion, then expired", Congestion, 900 * ms, "0s a1 b1; 0s b1", "", []string{"a1 expired", "b1 expired"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				r := running(t, Config[string, string]{WorkloadSize: 2, WorkerCount: 1}, response{result: PermanentError}, response{result: row.part})
				r.until(row.expiry, "a1 b1")
				r.at(2 * time.Second)
				r.wantCalls(row.calls)
				r.wantDone(row.done)
				r.wantDropped(row.drops...)
			})
		})
	}
}

func TestTasksGivenBackGoToTheHeadInTheirOldOrder(t *testing.T) {
	in(t, func(t *testing.T) {
		r := running(t, Config[string, string]{WorkloadSize: 3, WorkerCount: 1}, response{after: time.Second, result: TransientError})
		r.submit("a1 b1 c1")
		r.submit("d1 e1 f1")
		r.at(1100 * ms)
		r.wantCalls("0s a1 b1 c1; 1.1s a1 b1 c1; 1.1s d1 e1 f1")
	})
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

func TestExpiredTaskThatIsGivenBackIsDropped(t *testing.T) {
	in(t, func(t *testing.T) {
		r := running(t, Config[string, string]{WorkloadSize: 2}, response{after: time.Second, result: TransientError})
		r.until(time.Second, "a1")
		r.until(2*time.Second, "b1")
		r.at(time.Second)
		r.wantDropped("a1 expired")
		r.at(1100 * ms)
		r.wantCalls("0s a1 b1; 1.1s b1")
		r.wantStats(Stats{ExpiredTasks: 1, TransientErrors: 2, ReplayedTasks: 2, SuccessfulExecutions: 1}, counters)
	})
}

func TestRetryDoesNotProlongTheLifeOfATask(t *testing.T) {
	in(t, func(t *testing.T) {
		r := running(t, Config[string, string]{}, slices.Repeat([]response{{result: Congestion}}, 10)...)
		r.until(3*time.Second, "a1")
		r.at(10 * time.Second)
		r.wantCalls("500ms a1; 1.5s a1; 2.5s a1")
		r.wantDropped("a1 expired")
	})
}

func TestTaskGivenBackIsMergedIntoTheNewerPendingOne(t *testing.T) {
	for _, row := range []struct {
		name  string
		merge func(string, string) string
		want  string
	}{
		{"replaced", nil, "0s a1 b1; 1.1s a2 b1; 1.4s c1"},
		{"merged", join, "0s a1 b1; 1.1s a1+a2 b1; 1.4s c1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				r := running(t, Config[string, string]{WorkloadSize: 2, WorkerCount: 1, Merge: row.merge},
					response{after: time.Second, result: TransientError})
				r.submit("a1 b1")
				r.at(900 * ms)
				r.submit("c1 a2") // behind c1, but a1 was before it
				r.at(2 * time.Second)
				r.wantCalls(row.want)
				r.wantStats(Stats{OverriddenTasks: 1, TransientErrors: 2, ReplayedTasks: 2, SuccessfulExecutions: 3}, counters)
				r.wantDropped()
			})
		})
	}
}

func TestFullBufferDropsTheOldestOfWhatIsGivenBack(t *testing.T) {
	in(t, func(t *testing.T) {
		r := running(t, Config[string, string]{MaxBufferSize: 4, WorkloadSize: 3, WorkerCount: 1},
			response{after: time.Second, result: Congestion})
		r.submit("a1 b1 c1")
		r.submit("d1 e1 f1")
		r.at(2 * time.Second)
		r.wantCalls("0s a1 b1 c1; 2s c1 d1 e1; 2s f1")
		r.wantDropped("b1 overflow", "a1 overflow")
		r.wantStats(Stats{QueueOverflows: 2, CongestionIssues: 3, ReplayedTasks: 3, SuccessfulExecutions: 4}, counters)
	})
}

func TestFullBufferTakesBackWhatANewerPendingTaskSupersedes(t *testing.T) {
	in(t, func(t *testing.T) {
		r := running(t, Config[string, string]{MaxBufferSize: 2, WorkloadSize: 2, WorkerCount: 1, Merge: join},
			response{after: time.Second, result: Congestion})
		r.submit("a1 b1")
		r.submit("a2 c1")
		r.at(2 * time.Second)
		r.wantCalls("0s a1 b1; 2s a1+a2 c1")
		r.wantDropped("b1 overflow")
	})
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
