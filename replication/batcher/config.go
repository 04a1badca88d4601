package batcher

import (
	"log/slog"
	"time"
)

// Drop is why a task was given up.
type Drop uint8

// Reasons for giving up a task.
const (
	Expired   Drop = iota // its expiry passed before it could be sent
	Overflow              // the buffer was full
	Permanent             // the receiver refuses it
	Stopped               // the dispatcher was stopped with it pending
)

// Config is what a Dispatcher needs. Processor is required; a zero number means the default of upstream's
// peer replication.
type Config[K comparable, T any] struct {
	Name      string // labels goroutines (pprof) and metrics
	Processor Processor[T]
	// Merge merges a newer task into a pending one of the same id. If it is nil, the newer one replaces the older
	// one. The place in the order, and the time that counts for the delay, stay the older one's. Merged tasks expire
	// when the later of the two does; a replacement expires when the newer one does.
	Merge func(older, newer T) T
	// Done is called with each task that was transmitted, Dropped with each that was given up. The acceptor calls
	// both; they must not block or call the dispatcher, except its Process. A task that overflows or expires may be
	// reported before an older one of its id that is in flight. Both may be nil.
	Done    func(id K, task T)
	Dropped func(id K, task T, why Drop)
	// Log gets calls of the Processor that panicked. Nil discards them.
	Log *slog.Logger

	MaxBufferSize int // most pending tasks; 0 means 10000. A task beyond that drops the oldest
	WorkloadSize  int // tasks in one batch; 0 means 250. 1 means single-item form, without delay
	WorkerCount   int // 0 means 20 (1 in single-item form)
	// 0 means 500 ms, from the first submission of the oldest task. A full batch goes at once
	MaxBatchingDelay     time.Duration
	CongestionRetryDelay time.Duration // 0 means 1 s
	NetworkFailureRetry  time.Duration // 0 means 100 ms
	MaxRetryDelay        time.Duration // bound of both; 0 means 30 s
	// Backoff doubles the delay with every failure in a row, up to MaxRetryDelay, and randomizes the second half of
	// it (upstream always uses the same delay). A success ends the row.
	Backoff bool
	// Rate is how many tasks are handed out per second at most; 0 means no limit. No batch is larger than it.
	Rate int
}

// complete fills in the defaults.
func (c Config[K, T]) complete() Config[K, T] {
	fill(&c.MaxBufferSize, 10_000)
	fill(&c.WorkloadSize, 250)
	workers := 20
	if c.single() {
		workers = 1
	}
	fill(&c.WorkerCount, workers)
	fill(&c.MaxBatchingDelay, 500*time.Millisecond)
	fill(&c.CongestionRetryDelay, time.Second)
	fill(&c.NetworkFailureRetry, 100*time.Millisecond)
	fill(&c.MaxRetryDelay, 30*time.Second)
	if c.Done == nil {
		c.Done = func(K, T) {}
	}
	if c.Dropped == nil {
		c.Dropped = func(K, T, Drop) {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func fill[N int | time.Duration](number *N, otherwise N) {
	if *number <= 0 {
		*number = otherwise
	}
}

// single reports whether tasks are handed out one by one and without delay.
func (c *Config[K, T]) single() bool { return c.WorkloadSize == 1 }

// batch returns how many tasks are handed out at once.
func (c *Config[K, T]) batch() int {
	if c.Rate > 0 {
		return min(c.WorkloadSize, c.Rate)
	}
	return c.WorkloadSize
}
