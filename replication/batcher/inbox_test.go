package batcher

import (
	"slices"
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

// wantFreed says whether Freed has a value.
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
