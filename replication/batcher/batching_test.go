package batcher

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestBatchLeavesWhenItsOldestTaskHasWaitedForTheDelay(t *testing.T) {
	in(t, func(t *testing.T) {
		r := running(t, Config[string, string]{})
		r.at(100 * ms)
		r.submit("a1")
		r.at(400 * ms)
		r.submit("b1")
		r.at(599 * ms)
		r.wantCalls("")
		r.at(600 * ms)
		r.submit("c1")
		r.wantCalls("600ms a1 b1")
		r.at(1100 * ms)
		r.wantCalls("600ms a1 b1; 1.1s c1")
		r.wantDone("a1 b1 c1")
	})
}

func TestFullBatchLeavesAtOnce(t *testing.T) {
	in(t, func(t *testing.T) {
		r := running(t, Config[string, string]{WorkloadSize: 3})
		r.submit("a1 b1")
		r.wantCalls("")
		r.submit("c1")
		r.wantCalls("0s a1 b1 c1")
		r.submit("d1 e1 f1 g1")
		r.wantCalls("0s a1 b1 c1; 0s d1 e1 f1")
	})
}

func TestFullBufferLetsABatchLeaveAtOnce(t *testing.T) {
	in(t, func(t *testing.T) {
		r := running(t, Config[string, string]{MaxBufferSize: 2})
		r.submit("a1")
		r.wantCalls("")
		r.submit("b1")
		r.wantCalls("0s a1 b1")
	})
}

func TestDefaultsAreThoseOfUpstreamsPeerReplication(t *testing.T) {
	for _, row := range []struct {
		name         string
		workload     int
		wantWorkload int
		wantWorkers  int
	}{
		{"batches", 0, 250, 20},
		{"batches of another size", 100, 100, 20},
		{"single items", 1, 1, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := Config[string, string]{WorkloadSize: row.workload}.complete()
			got := []any{c.MaxBufferSize, c.WorkloadSize, c.WorkerCount, c.MaxBatchingDelay, c.CongestionRetryDelay, c.NetworkFailureRetry, c.MaxRetryDelay}
			want := []any{10_000, row.wantWorkload, row.wantWorkers, 500 * ms, 1000 * ms, 100 * ms, 30 * time.Second}
			for i := range want {
				if got[i] != want[i] {
					t.Errorf("got %v, want %v", got, want)
					break
				}
			}
		})
	}
}

func TestBatchTakesNoMoreThanItsSizeFromTheFront(t *testing.T) {
	in(t, func(t *testing.T) {
		r := idle(t, Config[string, string]{WorkloadSize: 2})
		r.submit("a1 b1 c1 d1 e1")
		r.run(0)
		r.at(499 * ms)
		r.wantCalls("0s a1 b1; 0s c1 d1")
		r.at(500 * ms)
		r.wantCalls("0s a1 b1; 0s c1 d1; 500ms e1")
		r.wantStats(Stats{LastBatchSize: 1, SuccessfulExecutions: 5}, func(s Stats) Stats {
			return Stats{LastBatchSize: s.LastBatchSize, SuccessfulExecutions: s.SuccessfulExecutions}
		})
	})
}

func TestNewerTaskTakesThePlaceOfThePendingOneOfItsID(t *testing.T) {
	in(t, func(t *testing.T) {
		r := running(t, Config[string, string]{})
		r.submit("a1 b1 c1 a2 b2 a3")
		r.at(500 * ms)
		r.wantCalls("500ms a3 b2 c1")
		r.wantDone("a3 b2 c1")
		r.wantDropped()
		r.wantStats(Stats{AcceptedTasks: 6, OverriddenTasks: 3, SuccessfulExecutions: 3}, func(s Stats) Stats {
			return Stats{AcceptedTasks: s.AcceptedTasks, OverriddenTasks: s.OverriddenTasks, SuccessfulExecutions: s.SuccessfulExecutions}
		})
	})
}

func TestMergeMakesOneTaskOfAnOlderAndANewer(t *testing.T) {
	in(t, func(t *testing.T) {
		r := running(t, Config[string, string]{Merge: join})
		r.submit("a1 b1 a2 a3")
		r.at(500 * ms)
		r.wantCalls("500ms a1+a2+a3 b1")
	})
}

func TestBatchHoldsWhatWasSubmittedBeforeItWasMade(t *testing.T) {
	in(t, func(t *testing.T) {
		r := idle(t, Config[string, string]{WorkloadSize: 2, Merge: join})
		r.submit("a1 b1 c1 a2 b2")
		r.wantStats(Stats{AcceptedTasks: 5, AcceptorQueueSize: 5}, func(s Stats) Stats { return s })
		r.run(0)
		r.wantCalls("0s a1+a2 b1+b2")
	})
}

func TestTaskRenewedMoreOftenThanTheDelayHoldsNothingBack(t *testing.T) {
	in(t, func(t *testing.T) {
		r := running(t, Config[string, string]{})
		r.submit("a0 b1")
		for i := range 10 {
			r.at(time.Duration(i) * 100 * ms)
			r.submit("a" + string(rune('1'+i%9)))
		}
		r.at(999 * ms)
		r.wantCalls("500ms a5 b1")
		r.at(1000 * ms)
		r.wantCalls("500ms a5 b1; 1s a1")
	})
}

func TestOverflowDropsTheOldest(t *testing.T) {
	in(t, func(t *testing.T) {
		r := idle(t, Config[string, string]{MaxBufferSize: 3})
		r.submit("a1 b1 c1 d1 e1")
		r.run(0)
		r.wantCalls("0s c1 d1 e1")
		r.wantDropped("a1 overflow", "b1 overflow")
		r.wantStats(Stats{QueueOverflows: 2}, func(s Stats) Stats { return Stats{QueueOverflows: s.QueueOverflows} })
	})
}

func TestFullBufferDropsNothingForAnIDThatIsPending(t *testing.T) {
	in(t, func(t *testing.T) {
		r := idle(t, Config[string, string]{MaxBufferSize: 3})
		r.submit("a1 b1 c1 b2 c2")
		r.run(0)
		r.wantCalls("0s a1 b2 c2")
		r.wantDropped()
	})
}

func TestExpiredTaskIsDroppedWhenItsTurnComes(t *testing.T) {
	in(t, func(t *testing.T) {
		r := running(t, Config[string, string]{})
		r.until(500*ms, "a1")
		r.until(501*ms, "b1")
		r.until(100*ms, "c1")
		r.at(499 * ms)
		r.wantDropped()
		r.at(500 * ms)
		r.wantCalls("500ms b1")
		r.wantDropped("a1 expired", "c1 expired")
		r.wantStats(Stats{ExpiredTasks: 2, PendingJobRequests: 20}, func(s Stats) Stats {
			return Stats{ExpiredTasks: s.ExpiredTasks, PendingJobRequests: s.PendingJobRequests}
		})
	})
}

func TestWorkersRequestStaysOpenWhenAllHasExpired(t *testing.T) {
	in(t, func(t *testing.T) {
		r := running(t, Config[string, string]{WorkerCount: 1})
		r.until(100*ms, "a1 b1")
		r.at(500 * ms)
		r.wantDropped("a1 expired", "b1 expired")
		r.submit("c1")
		r.at(1000 * ms)
		r.wantCalls("1s c1")
	})
}

func TestMergedTaskExpiresWithTheLaterOfBoth(t *testing.T) {
	never := time.Duration(0)
	for _, row := range []struct {
		name         string
		merge        func(string, string) string
		older, newer time.Duration
		want         string
	}{
		{"replaced by one that expires earlier", nil, 9 * time.Second, 100 * ms, ""},
		{"replaced by one that expires later", nil, 100 * ms, 9 * time.Second, "500ms a2"},
		{"replaced by one that never does", nil, 100 * ms, never, "500ms a2"},
		{"merged with one that expires earlier", join, 9 * time.Second, 100 * ms, "500ms a1+a2"},
		{"merged with one that expires later", join, 100 * ms, 9 * time.Second, "500ms a1+a2"},
		{"merged, the older never expires", join, never, 100 * ms, "500ms a1+a2"},
		{"merged, the newer never expires", join, 100 * ms, never, "500ms a1+a2"},
		{"merged, both expired", join, 100 * ms, 200 * ms, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				r := running(t, Config[string, string]{Merge: row.merge})
				r.until(row.older, "a1")
				r.until(row.newer, "a2")
				r.at(500 * ms)
				r.wantCalls(row.want)
			})
		})
	}
}

func TestWorkersGetOnlyTheWorkThatTheyAskedFor(t *testing.T) {
	in(t, func(t *testing.T) {
		r := running(t, Config[string, string]{WorkerCount: 2, WorkloadSize: 2, Merge: join},
			response{after: 5 * time.Second}, response{after: 6 * time.Second})
		r.submit("a1 b1 c1 d1 e1 f1")
		r.at(4 * time.Second)
		r.submit("e2")
		r.wantCalls("0s a1 b1; 0s c1 d1")
		r.wantStats(Stats{QueueSize: 2, InFlight: 4}, func(s Stats) Stats {
			return Stats{QueueSize: s.QueueSize, InFlight: s.InFlight, PendingJobRequests: s.PendingJobRequests}
		})
		r.at(5 * time.Second)
		r.wantCalls("0s a1 b1; 0s c1 d1; 5s e1+e2 f1")
	})
}

func TestIDInFlightIsNotHandedOutAgain(t *testing.T) {
	in(t, func(t *testing.T) {
		r := running(t, Config[string, string]{WorkloadSize: 2}, response{after: 3 * time.Second})
		r.submit("a1 b1") // slow
		r.submit("a2 c1")
		r.at(500 * ms)
		r.wantCalls("0s a1 b1; 500ms c1")
		r.submit("b2 d1 e1") // d1 and e1 fill a batch, although a2 and b2 are before them
		r.wantCalls("0s a1 b1; 500ms c1; 500ms d1 e1")
		r.at(2999 * ms)
		r.wantCalls("0s a1 b1; 500ms c1; 500ms d1 e1")
		r.at(3 * time.Second)
		r.wantCalls("0s a1 b1; 500ms c1; 500ms d1 e1; 3s a2 b2")
	})
}

func TestBlockedTasksMakeNoBatchDue(t *testing.T) {
	in(t, func(t *testing.T) {
		r := running(t, Config[string, string]{WorkloadSize: 2}, response{after: 3 * time.Second})
		r.submit("a1 b1")
		r.submit("a2 b2")
		r.at(100 * ms)
		r.submit("c1")
		r.at(599 * ms)
		r.wantCalls("0s a1 b1")
		r.at(600 * ms)
		r.wantCalls("0s a1 b1; 600ms c1")
	})
}

func TestOverflowOfABlockedTaskLetsItsIDGoOn(t *testing.T) {
	in(t, func(t *testing.T) {
		r := running(t, Config[string, string]{MaxBufferSize: 2, WorkloadSize: 2, WorkerCount: 1}, response{after: time.Second})
		r.submit("a1 b1")
		r.submit("a2 c1 d1") // a2 overflows
		r.wantDropped("a2 overflow")
		r.at(time.Second)
		r.wantCalls("0s a1 b1; 1s c1 d1")
		r.submit("a3 b2")
		r.wantCalls("0s a1 b1; 1s c1 d1; 1s a3 b2")
	})
}

func TestIdleDispatcherDoesNothing(t *testing.T) {
	in(t, func(t *testing.T) {
		r := running(t, Config[string, string]{}, response{after: 3 * time.Hour})
		r.submit("a1")
		r.at(time.Second)
		r.submit("a2") // blocked
		expect.That(t, !r.published(func() { time.Sleep(time.Hour) }), "the acceptor woke up within an hour in which nothing was due")
	})
}

func TestAcceptorIsNotWokenByTasksThatMakeNothingDue(t *testing.T) {
	for _, row := range []struct {
		name     string
		response response
		before   string
	}{
		{"while a batch waits for its delay", response{}, ""},
		{"during a pause", response{result: Congestion}, "x1"},
		{"while every worker is busy", response{after: time.Hour}, "x1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				r := running(t, Config[string, string]{WorkloadSize: 4, WorkerCount: 1}, row.response)
				r.submit(row.before)
				r.at(600 * ms)
				r.submit("a1")
				expect.That(t, !r.published(func() { r.submit("b1 c1") }), "the acceptor woke up")
			})
		})
	}
}

func TestProcessNeverBlocksItsCaller(t *testing.T) {
	in(t, func(t *testing.T) {
		r := running(t, Config[string, string]{MaxBufferSize: 2, WorkerCount: 1}, response{after: time.Hour})
		for range 100 {
			r.submit(strings.Repeat("a1 b1 c1 ", 10))
		}
		expect.Equal(t, time.Since(r.start), 0, "callers waited for")
	})
}

func TestSingleItemsLeaveAtOnceOneByOneInOrder(t *testing.T) {
	in(t, func(t *testing.T) {
		slow := response{after: time.Second}
		r := running(t, Config[string, string]{WorkloadSize: 1}, slow, slow, slow)
		r.submit("a1")
		r.wantCalls("0s a1")
		r.submit("b1 c1 b2")
		r.at(10 * time.Second)
		r.wantCalls("0s a1; 1s b2; 2s c1")
		r.wantStats(Stats{SuccessfulExecutions: 3, OverriddenTasks: 1}, counters)
	})
}

func TestSingleItemIsTreatedAsABatchOfOne(t *testing.T) {
	for _, row := range []struct {
		name    string
		result  Result
		calls   string
		done    string
		dropped []string
	}{
		{"congestion", Congestion, "0s a1; 1s a1; 1s b1", "a1 b1", nil},
		{"transient error", TransientError, "0s a1; 100ms a1; 100ms b1", "a1 b1", nil},
		{"permanent error", PermanentError, "0s a1; 0s b1", "b1", []string{"a1 permanent"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				r := running(t, Config[string, string]{WorkloadSize: 1}, response{result: row.result})
				r.submit("a1")
				r.submit("b1")
				r.at(5 * time.Second)
				r.wantCalls(row.calls)
				r.wantDone(row.done)
				r.wantDropped(row.dropped...)
			})
		})
	}
}

func TestFirstSingleItemThatHasNotExpiredIsTaken(t *testing.T) {
	in(t, func(t *testing.T) {
		r := running(t, Config[string, string]{WorkloadSize: 1}, response{after: time.Second})
		r.submit("a1")
		r.until(500*ms, "b1 c1")
		r.submit("d1")
		r.at(time.Second)
		r.wantCalls("0s a1; 1s d1")
		r.wantDropped("b1 expired", "c1 expired")
	})
}

func TestSeveralWorkersKeepTheOrderOfAnID(t *testing.T) {
	in(t, func(t *testing.T) {
		r := running(t, Config[string, string]{WorkloadSize: 1, WorkerCount: 3}, response{after: time.Second})
		r.submit("a1")
		r.submit("a2 b1")
		r.at(999 * ms)
		r.wantCalls("0s a1; 0s b1")
		r.at(time.Second)
		r.wantCalls("0s a1; 0s b1; 1s a2")
	})
}
