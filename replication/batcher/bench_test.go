package batcher

import (
	"context"
	"syscall"
	"testing"
	"time"
)

// sink accepts everything.
type sink struct{}

func (sink) Process(context.Context, int) Result        { return Success }
func (sink) ProcessBatch(context.Context, []int) Result { return Success }

// processorTime is the processor time that this process has used so far.
func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// benchmark calls submit with each number below b.N, waits until every task is transmitted, and reports the processor
// time per task.
func benchmark(b *testing.B, submit func(d *Dispatcher[int, int], i int)) {
	d := New(Config[int, int]{Processor: sink{}})
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = d.Run(ctx, time.Minute)
	}()
	b.ReportAllocs()
	b.ResetTimer()
	before := processorTime(b)
	for i := range b.N {
		submit(d, i)
	}
	stop()
	<-ended
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
	if s := d.Stats(); s.SuccessfulExecutions != uint64(b.N) {
		b.Fatalf("not every task was transmitted: %+v", s)
	}
}

// BenchmarkProducerThatWaitsForRoom submits tasks of 100,000 ids as fast as there is room for them.
func BenchmarkProducerThatWaitsForRoom(b *testing.B) {
	benchmark(b, func(d *Dispatcher[int, int], i int) {
		for d.Room() == 0 {
			<-d.Freed()
		}
		d.Process(i%100_000, i, time.Time{})
	})
}

// BenchmarkHeartbeatsOf100kInstances submits tasks of 100,000 ids one by one, 3,333 per second, as many as their
// heartbeats are.
func BenchmarkHeartbeatsOf100kInstances(b *testing.B) {
	const apart = time.Second / 3333
	start := time.Now()
	benchmark(b, func(d *Dispatcher[int, int], i int) {
		time.Sleep(time.Until(start.Add(time.Duration(i) * apart)))
		d.Process(i%100_000, i, time.Time{})
	})
}
