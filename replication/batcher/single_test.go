package batcher

import (
	"testing"
	"time"
)

func TestSingleItemsLeaveAtOnceOneByOneInOrder(t *testing.T) {
	in(t, func(t *testing.T) {
		slow := answer{after: time.Second}
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
				r := running(t, Config[string, string]{WorkloadSize: 1}, answer{result: row.result})
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
		r := running(t, Config[string, string]{WorkloadSize: 1}, answer{after: time.Second})
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
		r := running(t, Config[string, string]{WorkloadSize: 1, WorkerCount: 3}, answer{after: time.Second})
		r.submit("a1")
		r.submit("a2 b1")
		r.at(999 * ms)
		r.wantCalls("0s a1; 0s b1")
		r.at(time.Second)
		r.wantCalls("0s a1; 0s b1; 1s a2")
	})
}
