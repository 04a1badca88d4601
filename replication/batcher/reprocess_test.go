package batcher

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestWhatIsGivenBackGoesToTheHeadInItsOldOrder(t *testing.T) {
	in(t, func(t *testing.T) {
		r := running(t, Config[string, string]{WorkloadSize: 3, WorkerCount: 1}, answer{after: time.Second, result: TransientError})
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
		r := running(t, Config[string, string]{WorkloadSize: 2}, answer{after: time.Second, result: TransientError})
		r.until(time.Second, "a1")
		r.until(2*time.Second, "b1")
		r.at(time.Second)
		r.wantDropped("a1 expired")
		r.at(1100 * ms)
		r.wantCalls("0s a1 b1; 1.1s b1")
		r.wantStats(Stats{ExpiredTasks: 1, TransientErrors: 2, ReplayedTasks: 2, SuccessfulExecutions: 1}, counters)
	})
}

func TestRetryDoesNotProlongALife(t *testing.T) {
	in(t, func(t *testing.T) {
		r := running(t, Config[string, string]{}, slices.Repeat([]answer{{result: Congestion}}, 10)...)
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
					answer{after: time.Second, result: TransientError})
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
			answer{after: time.Second, result: Congestion})
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
			answer{after: time.Second, result: Congestion})
		r.submit("a1 b1")
		r.submit("a2 c1")
		r.at(2 * time.Second)
		r.wantCalls("0s a1 b1; 2s a1+a2 c1")
		r.wantDropped("b1 overflow")
	})
}
