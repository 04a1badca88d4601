package batcher

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestAcceptorIsWokenByTasksThatCameWhileItWorked(t *testing.T) {
	for _, row := range []struct {
		name     string
		patience int // that it goes to sleep with
		want     bool
	}{
		{"enough", 2, true},
		{"too little", 3, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newInbox[string, string]()
			b.publish(Stats{}, 0, 5)
			b.accept(&holder[string, string]{id: "a"})
			b.accept(&holder[string, string]{id: "b"})
			b.publish(Stats{}, 0, row.patience)
			expect.Equal(t, len(b.wake) == 1, row.want, "it is woken:")
		})
	}
}

func TestInboxKeepsNothingAfterASwap(t *testing.T) {
	for _, row := range []struct {
		name  string
		tasks int
		reuse bool
	}{
		{"a usual load", 10, true},
		{"a burst", 10 * maxReused, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newInbox[string, string]()
			for range row.tasks {
				b.accept(&holder[string, string]{id: "a"})
			}
			m := b.swap(mail[string, string]{})
			b.swap(m)
			expect.Equal(t, cap(b.left.accepted) > 0, row.reuse, "the slice is used again:")
			kept := b.left.accepted[:cap(b.left.accepted)]
			expect.That(t, !slices.ContainsFunc(kept, func(h *holder[string, string]) bool { return h != nil }), "tasks that were taken are still referred to")
		})
	}
}

func (r *rig) wantRoom(want int) {
	r.t.Helper()
	if got := r.Room(); got != want {
		r.t.Errorf("after %v there is room for %d tasks, want %d", time.Since(r.start), got, want)
	}
}

// wantFreed checks whether Freed has a value.
func (r *rig) wantFreed(want bool) {
	r.t.Helper()
	got := false
	select {
	case <-r.Freed():
		got = true
	default:
	}
	expect.Equal(r.t, got, want, "after %v Freed has a value:", time.Since(r.start))
}

func TestRoomCountsWhatIsQueuedPendingAndInFlight(t *testing.T) {
	in(t, func(t *testing.T) {
		r := idle(t, Config[string, string]{MaxBufferSize: 10, WorkloadSize: 2}, response{after: time.Second, result: PermanentError})
		r.wantRoom(10)
		r.submit("a1 b1")
		r.wantRoom(8) // queued
		r.run(0)
		r.submit("c1")
		r.wantRoom(7) // two are in flight, one is pending
		r.wantFreed(false)
		r.at(500 * ms)
		r.wantRoom(8)
		r.wantFreed(true)
		r.at(2 * time.Second)
		r.wantRoom(10)
		r.wantFreed(true)
		r.wantFreed(false)
	})
}

func TestEveryEndOfATaskMakesRoom(t *testing.T) {
	for _, row := range []struct {
		name   string
		config Config[string, string]
		tasks  string
		expiry time.Duration
		result Result
		room   int // of 4, after 500 ms
	}{
		{"transmitted", Config[string, string]{}, "a1 b1", 0, Success, 4},
		{"merged", Config[string, string]{MaxBatchingDelay: time.Second}, "a1 a2 a3", 0, Success, 3},
		{"expired", Config[string, string]{}, "a1 b1", 100 * ms, Success, 4},
		{"refused", Config[string, string]{}, "a1", 0, PermanentError, 4},
		{"overflowed", Config[string, string]{}, "a1 b1 c1 d1 e1 f1", 0, Congestion, 0},
		{"to be sent again", Config[string, string]{}, "a1 b1", 0, Congestion, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				row.config.MaxBufferSize = 4
				r := idle(t, row.config, response{result: row.result})
				r.until(row.expiry, row.tasks)
				r.run(0)
				r.at(500 * ms)
				r.wantRoom(row.room)
			})
		})
	}
}

func TestProducerThatWaitsForRoomCausesNoOverflow(t *testing.T) {
	in(t, func(t *testing.T) {
		again := response{after: 30 * ms, result: Congestion}
		r := running(t, Config[string, string]{MaxBufferSize: 10, WorkloadSize: 3, WorkerCount: 2}, again, again, again, again)
		tasks := many(100)
		for len(tasks) > 0 {
			for ; r.Room() > 0 && len(tasks) > 0; tasks = tasks[len("aa1 "):] {
				r.submit(tasks[:len("aa1 ")])
			}
			<-r.Freed()
		}
		r.at(time.Minute)
		r.wantDropped()
		r.wantStats(Stats{SuccessfulExecutions: 100, QueueOverflows: 0}, func(s Stats) Stats {
			return Stats{SuccessfulExecutions: s.SuccessfulExecutions, QueueOverflows: s.QueueOverflows}
		})
	})
}

func TestDefaultsMatchUpstreamsPeerReplication(t *testing.T) {
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

// wantEnd checks that Run returns at the given time after the rig was made, with every task accounted for.
func (r *rig) wantEnd(ended <-chan struct{}, at time.Duration) {
	r.t.Helper()
	<-ended
	expect.Equal(r.t, time.Since(r.start), at, "Run returned after")
	s := r.Stats()
	finished := s.SuccessfulExecutions + s.OverriddenTasks + s.ExpiredTasks + s.QueueOverflows + s.PermanentErrors + s.StoppedTasks
	if s.AcceptedTasks != finished || s.QueueSize+s.InFlight+s.AcceptorQueueSize+s.ReprocessQueueSize != 0 {
		r.t.Errorf("not every task is accounted for: %+v", s)
	}
	if got := r.Room(); got != r.config.MaxBufferSize {
		r.t.Errorf("there is room for %d tasks at the end, want %d", got, r.config.MaxBufferSize)
	}
}

func TestTasksOfManyCallersAreAllAccountedForAcrossAStop(t *testing.T) {
	in(t, func(t *testing.T) {
		r := idle(t, Config[string, string]{WorkloadSize: 3, MaxBufferSize: 10})
		ended := r.run(0)
		for range 8 {
			go func() {
				for _, task := range strings.Fields(many(50)) {
					r.Dispatcher.Process(name(task), task, time.Time{})
				}
			}()
		}
		go r.end()
		r.wantEnd(ended, 0)
	})
}

func TestTrafficShaperDelaysByTheRestOfTheWindow(t *testing.T) {
	type event struct {
		at      time.Duration
		result  Result
		started time.Duration
	}
	const none = time.Duration(-1)
	half := func(n int64) int64 { return n / 2 } // three quarters of each delay
	s := time.Second
	for _, row := range []struct {
		name   string
		grows  bool
		events []event
		at     time.Duration
		want   time.Duration
	}{
		{"no failure", false, nil, s, 0},
		{"success", false, []event{{0, Success, 0}}, 0, 0},
		{"permanent error", false, []event{{0, PermanentError, 0}}, 0, 0},
		{"congestion, at once", false, []event{{0, Congestion, 0}}, 0, s},
		{"congestion, later", false, []event{{0, Congestion, 0}}, 400 * ms, 600 * ms},
		{"congestion, after it", false, []event{{0, Congestion, 0}}, s, 0},
		{"network failure", false, []event{{0, TransientError, 0}}, 30 * ms, 70 * ms},
		{"the longer rest of two", false, []event{{0, Congestion, 0}, {950 * ms, TransientError, 0}}, 960 * ms, 90 * ms},
		{"the last failure counts", false, []event{{0, Congestion, 0}, {500 * ms, Congestion, 0}}, 500 * ms, s},
		{"a success ends no pause", false, []event{{0, Congestion, 0}, {100 * ms, Success, 0}}, 100 * ms, 900 * ms},
		{"a clock that went back", false, []event{{10 * s, Congestion, 0}}, 9 * s, 0},
		{"growth: the first", true, []event{{0, Congestion, none}}, 0, 750 * ms},
		{"growth: the second", true, []event{{0, Congestion, none}, {s, Congestion, 900 * ms}}, s, 1500 * ms},
		{"growth: begun before the first failed", true, []event{{s, Congestion, none}, {2 * s, Congestion, s}}, 2 * s, 750 * ms},
		{"growth: up to the bound", true, []event{{0, Congestion, none}, {s, Congestion, 1}, {2 * s, Congestion, s + 1}, {3 * s, Congestion, 2*s + 1}}, 3 * s, 3750 * ms},
		{"growth: a success resets it", true, []event{{0, Congestion, none}, {s, Congestion, 1}, {2 * s, Success, 1}, {3 * s, Congestion, 2*s + 1}}, 3 * s, 750 * ms},
		{"growth: each kind has its own", true, []event{{0, Congestion, none}, {s, Congestion, 1}, {10 * s, TransientError, 9 * s}}, 10 * s, 75 * ms},
	} {
		t.Run(row.name, func(t *testing.T) {
			start := time.Now()
			shaper := newTrafficShaper(s, 100*ms, 5*s, row.grows, half)
			for _, e := range row.events {
				shaper.record(e.result, start.Add(e.started), start.Add(e.at))
			}
			expect.Equal(t, shaper.wait(start.Add(row.at)).Round(ms), row.want, "got")
		})
	}
}

func TestTrafficShaperPausesAreCapped(t *testing.T) {
	now := time.Now()
	for _, result := range []Result{Congestion, TransientError} {
		s := newTrafficShaper(time.Minute, time.Hour, 30*time.Second, false, nil)
		s.record(result, now, now)
		expect.Equal(t, s.wait(now), 30*time.Second, "result %d: the delay is", result)
	}
}

func TestTrafficShaperClockThatWentBackEndsThePauseForGood(t *testing.T) {
	now := time.Now()
	s := newTrafficShaper(time.Second, 100*ms, 30*time.Second, false, nil)
	s.record(Congestion, now, now)
	s.wait(now.Add(-time.Millisecond))
	expect.Equal(t, s.wait(now), 0, "the delay is")
}

func TestAcceptorSleepsUntilTheRateAllowsMore(t *testing.T) {
	in(t, func(t *testing.T) {
		r := idle(t, Config[string, string]{WorkloadSize: 1, Rate: 1})
		r.submit("a1 b1")
		r.run(0)
		r.at(500 * ms)
		expect.That(t, !r.published(func() { r.at(989 * ms) }), "the acceptor woke up although nothing could be handed out")
		r.at(990 * ms)
		r.wantCalls("0s a1; 990ms b1")
	})
}

func TestPacerGivesBackAtMostWhatATimerOversleeps(t *testing.T) {
	start := time.Now()
	p := pacer{rate: 1000}
	for _, step := range []struct {
		at, want time.Duration
		tasks    int
	}{
		{0, 0, 100}, {0, 90 * ms, 0}, {90 * ms, 0, 0},
		{95 * ms, 0, 100}, {95 * ms, 95 * ms, 0}, // 5 ms late
		{time.Hour, 0, 100}, {time.Hour, 90 * ms, 0}, // idle: no burst saved
	} {
		now := start.Add(step.at)
		expect.Equal(t, p.wait(now), step.want, "at %v: the delay is", step.at)
		p.charge(step.tasks, now)
	}
}
