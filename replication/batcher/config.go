package batcher

import (
	"context"
	"time"
)

// Result is what became of a transmission (upstream: TaskProcessor.ProcessingResult).
type Result uint8

// The results.
const (
	Success        Result = iota
	Congestion            // the receiver is busy (503) or slow (read timeout): all again, after CongestionRetryDelay
	TransientError        // the receiver cannot be reached: all again, after NetworkFailureRetry
	PermanentError        // these tasks can never succeed: a batch is split to find which, a single task is dropped
)

// Drop is why a task was given up.
type Drop uint8

// The reasons.
const (
	Expired   Drop = iota // its expiry passed before it could be sent
	Overflow              // the buffer was full
	Permanent             // the receiver refuses it
	Stopped               // the dispatcher was stopped with it pending
)

// Processor transmits tasks (upstream: TaskProcessor). It is called by several workers at once, but
// never with an id that another call still has. It returns when ctx ends.
type Processor[T any] interface {
	// Process transmits one task; a dispatcher with a WorkloadSize of 1 calls it.
	Process(ctx context.Context, task T) Result
	// ProcessBatch transmits tasks in order. The result holds for all of them.
	ProcessBatch(ctx context.Context, tasks []T) Result
}

// Config is what a Dispatcher needs. Processor is required; a zero number means the default of upstream's
// peer replication.
type Config[K comparable, T any] struct {
	Name      string // labels goroutines (pprof) and metrics
	Processor Processor[T]
	// Merge makes one task of a pending one and a newer one of the same id; nil: the newer one replaces
	// the older one. The place in the order, and the time that counts for the delay, stay the older one's.
	Merge func(older, newer T) T
	// Done is told of each task that was transmitted, Dropped of each that was given up. Both are called
	// by the acceptor and must not block or call the dispatcher, except its Process. Nil: nobody is told.
	Done    func(id K, task T)
	Dropped func(id K, task T, why Drop)

	MaxBufferSize        int           // pending tasks; 0: 10000. A task beyond drops the oldest
	WorkloadSize         int           // tasks of one batch; 0: 250. 1: single-item form, no delay
	WorkerCount          int           // 0: 20 (1 in single-item form)
	MaxBatchingDelay     time.Duration // 0: 500 ms, from the first submission of the oldest task. A full batch goes at once
	CongestionRetryDelay time.Duration // 0: 1 s
	NetworkFailureRetry  time.Duration // 0: 100 ms
	MaxRetryDelay        time.Duration // 0: 30 s, the bound of both
	// Backoff doubles the delay with every failure in a row, up to MaxRetryDelay, and draws a part of it
	// at random (upstream: always the same delay).
	Backoff bool
	// Rate is the most tasks per second that are handed out; 0: no limit.
	Rate int
}

// Stats are the counters and gauges of upstream's AcceptorExecutor and TaskExecutors, by their names.
type Stats struct {
	AcceptedTasks, ReplayedTasks, ExpiredTasks, OverriddenTasks, QueueOverflows uint64
	AcceptorQueueSize, ReprocessQueueSize, QueueSize, PendingJobRequests        int
	InFlight                                                                    int // tasks that workers have
	SuccessfulExecutions, TransientErrors, PermanentErrors, CongestionIssues    uint64
	LastBatchSize                                                               int
}
