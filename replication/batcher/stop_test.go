package batcher

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

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

func TestStopDropsPendingTasks(t *testing.T) {
	in(t, func(t *testing.T) {
		r := idle(t, Config[string, string]{})
		ended := r.run(0)
		r.submit("a1 b1 a2")
		r.end()
		r.wantEnd(ended, 0)
		r.wantCalls("")
		r.wantDropped("a2 stopped", "b1 stopped")
		r.wantStats(Stats{StoppedTasks: 2, OverriddenTasks: 1}, counters)
	})
}

func TestStopWithoutDrainEndsTransmissionsUnderWay(t *testing.T) {
	in(t, func(t *testing.T) {
		r := idle(t, Config[string, string]{WorkloadSize: 2, Merge: join}, response{after: time.Minute})
		ended := r.run(0)
		r.submit("a1 b1")
		r.submit("c1 a2")
		r.at(100 * ms)
		r.end()
		r.wantEnd(ended, 100*ms)
		r.wantCalls("0s a1 b1")
		r.wantDropped("a1+a2 stopped", "b1 stopped", "c1 stopped")
	})
}

func TestStopDropsTheRestOfASplitBatch(t *testing.T) {
	in(t, func(t *testing.T) {
		r := idle(t, Config[string, string]{WorkloadSize: 4, WorkerCount: 1}, response{result: PermanentError}, response{after: time.Minute})
		ended := r.run(0)
		r.submit("a1 b1 c1 d1")
		r.submit("b2")
		r.end()
		r.wantEnd(ended, 0)
		r.wantDropped("a1 stopped", "b1 stopped", "c1 stopped", "d1 stopped", "b2 stopped")
	})
}

func TestDrainSendsPendingTasksWithoutDelay(t *testing.T) {
	in(t, func(t *testing.T) {
		r := idle(t, Config[string, string]{})
		ended := r.run(5 * time.Second)
		r.submit("a1 b1")
		r.end()
		r.wantEnd(ended, 0)
		r.wantCalls("0s a1 b1")
	})
}

func TestDrainSendsTasksThatComeWhileThereIsTime(t *testing.T) {
	in(t, func(t *testing.T) {
		slow := response{after: time.Second}
		r := idle(t, Config[string, string]{WorkloadSize: 2, WorkerCount: 1}, slow, slow, slow)
		ended := r.run(5 * time.Second)
		r.submit("a1 b1 c1 d1 e1")
		r.end()
		r.at(500 * ms)
		r.submit("f1")
		r.wantEnd(ended, 3*time.Second)
		r.wantCalls("0s a1 b1; 1s c1 d1; 2s e1 f1")
		r.wantDone("a1 b1 c1 d1 e1 f1")
		r.wantDropped()
	})
}

func TestDrainEndsAtItsTime(t *testing.T) {
	in(t, func(t *testing.T) {
		r := idle(t, Config[string, string]{WorkloadSize: 2, WorkerCount: 1}, response{after: 2 * time.Second}, response{after: time.Minute})
		ended := r.run(5 * time.Second)
		r.submit("a1 b1 c1 d1 e1")
		r.end()
		r.wantEnd(ended, 5*time.Second)
		r.wantDone("a1 b1")
		r.wantDropped("c1 stopped", "d1 stopped", "e1 stopped")
	})
}

func TestDrainKeepsThePauseAfterAFailure(t *testing.T) {
	in(t, func(t *testing.T) {
		r := idle(t, Config[string, string]{WorkloadSize: 2}, response{result: Congestion})
		ended := r.run(5 * time.Second)
		r.submit("a1 b1")
		r.end()
		r.wantEnd(ended, time.Second)
		r.wantCalls("0s a1 b1; 1s a1 b1")
	})
}

func TestDrainOfNothingEndsAtOnce(t *testing.T) {
	in(t, func(t *testing.T) {
		r := idle(t, Config[string, string]{})
		ended := r.run(time.Hour)
		r.at(time.Second)
		r.end()
		r.wantEnd(ended, time.Second)
	})
}

func TestTaskAfterTheEndIsDroppedAsStopped(t *testing.T) {
	in(t, func(t *testing.T) {
		r := idle(t, Config[string, string]{})
		ended := r.run(0)
		r.end()
		<-ended
		r.submit("a1 b1")
		r.wantDropped("a1 stopped", "b1 stopped")
		r.wantEnd(ended, 0)
	})
}

func TestTasksBeforeTheStartAreKept(t *testing.T) {
	in(t, func(t *testing.T) {
		r := idle(t, Config[string, string]{})
		r.submit("a1")
		r.at(400 * ms)
		r.run(0)
		r.at(time.Second)
		r.wantCalls("500ms a1")
	})
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
