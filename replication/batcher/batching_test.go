package batcher

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

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

// wantEnd checks that Run returns so long after the rig was made, and with every task accounted for.
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
