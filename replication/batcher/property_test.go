package batcher

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

// submissions are a task of the property test: the numbers of the submissions that were merged into it.
type submissions []int

// history is a drawn run: what is submitted and when, and what becomes of each transmission.
type history struct {
	config  Config[int, submissions]
	steps   []step
	results []outcome // of the transmissions in the order in which they start; then all succeed
	stop    bool      // stop the dispatcher right after the last step; else it gets an hour to finish
	drain   time.Duration
}

// step is a submission of one id, after a pause.
type step struct {
	pause time.Duration
	id    int
}

// outcome is what becomes of one transmission, and how long it takes.
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

// recorder is the receiver of a dispatcher and its callbacks: it records what they get, and which promises are broken.
type recorder struct {
	mu        sync.Mutex
	results   []outcome
	busy      map[int]bool
	attempted map[int]int         // the newest submission that was ever sent, by id
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

// record records in which list a task ended.
func (w *recorder) record(list map[int]submissions, id int, f submissions) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list[id] = append(list[id], f...)
}

// recordBreach records a broken promise. The caller holds mu.
func (w *recorder) recordBreach(format string, args ...any) {
	w.broken = append(w.broken, fmt.Sprintf(format, args...))
}

// play runs a history in a bubble. end and room are the statistics and the room of the dispatcher when all is over.
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
