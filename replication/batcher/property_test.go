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

// facts are what a task of the property test consists of: the numbers of the submissions that went into it.
type facts []int

// history is a drawn run: what is submitted and when, and what becomes of each transmission.
type history struct {
	config  Config[int, facts]
	steps   []step
	results []outcome // of the transmissions in the order in which they start; then all succeed
	stop    bool      // the dispatcher is stopped after the last step, and not left to finish
	drain   time.Duration
}

// step is a submission of one id, after a pause.
type step struct {
	pause time.Duration
	id    int
}

type outcome struct {
	result Result
	after  time.Duration
}

func drawHistory(t *rapid.T) history {
	moment := rapid.SampledFrom([]time.Duration{0, 0, 0, ms, 50 * ms, 600 * ms, 3 * time.Second})
	result := rapid.SampledFrom([]Result{Success, Congestion, TransientError, PermanentError})
	return history{
		config: Config[int, facts]{
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

// witness is the receiver and the user of a dispatcher, and writes down what they see.
type witness struct {
	mu        sync.Mutex
	results   []outcome
	busy      map[int]bool
	attempted map[int]int   // the newest submission that was ever sent, by id
	done      map[int]facts // what was transmitted, in order, by id
	dropped   map[int]facts
	broken    []string
}

func (w *witness) Process(ctx context.Context, task facts) Result {
	return w.ProcessBatch(ctx, []facts{task})
}

func (w *witness) ProcessBatch(ctx context.Context, tasks []facts) Result {
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

// start records a transmission. The last digit of each fact is the id.
func (w *witness) start(tasks []facts) (o outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range tasks {
		id, newest := f[0]%10, f[len(f)-1]
		if w.busy[id] {
			w.breaks("id %d is in flight twice", id)
		}
		if newest < w.attempted[id] {
			w.breaks("id %d: %v is sent after %d", id, f, w.attempted[id])
		}
		w.busy[id], w.attempted[id] = true, newest
	}
	if len(w.results) > 0 {
		o = w.results[0]
		w.results = w.results[1:]
	}
	return o
}

func (w *witness) finish(tasks []facts) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range tasks {
		w.busy[f[0]%10] = false
	}
}

// record records in which list a task ended.
func (w *witness) record(list map[int]facts, id int, f facts) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list[id] = append(list[id], f...)
}

// breaks records a broken promise. The caller holds mu.
func (w *witness) breaks(format string, args ...any) {
	w.broken = append(w.broken, fmt.Sprintf(format, args...))
}

// play runs a history in a bubble.
func play(t *testing.T, h history) (w *witness, submitted map[int]facts, end Stats, room int) {
	w = &witness{results: h.results, busy: map[int]bool{}, attempted: map[int]int{}, done: map[int]facts{}, dropped: map[int]facts{}}
	submitted = map[int]facts{}
	synctest.Test(t, func(t *testing.T) {
		c := h.config
		c.Processor = w
		c.Merge = func(older, newer facts) facts { return slices.Concat(older, newer) }
		c.Done = func(id int, f facts) { w.record(w.done, id, f) }
		c.Dropped = func(id int, f facts, _ Drop) { w.record(w.dropped, id, f) }
		d := New(c)
		ctx, stop := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { _ = d.Run(ctx, h.drain) })
		for i, s := range h.steps {
			time.Sleep(s.pause)
			fact := 10*(i+1) + s.id
			submitted[s.id] = append(submitted[s.id], fact)
			d.Process(s.id, facts{fact}, time.Time{})
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

func TestTheLastStateOfEachIDArrivesInOrderOrIsReportedDropped(t *testing.T) {
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
			if last := want[len(want)-1]; !slices.Contains(dropped, last) && w.attempted[id] != last {
				rt.Errorf("id %d: the last state %d did not arrive, the newest sent is %d", id, last, w.attempted[id])
			}
		}
		elapsed := end.SuccessfulExecutions + end.OverriddenTasks + end.QueueOverflows + end.PermanentErrors + end.StoppedTasks
		expect.That(rt, int(elapsed) == len(h.steps) && int(end.AcceptedTasks) == len(h.steps) && end.QueueSize == 0 && end.InFlight == 0,
			"%d tasks are not accounted for by %+v", len(h.steps), end)
		if !h.stop && end.StoppedTasks != 0 {
			rt.Errorf("tasks were left after an hour: %+v", end)
		}
		expect.That(rt, room == h.config.MaxBufferSize, "there is room for %d tasks, want %d", room, h.config.MaxBufferSize)
	})
}
