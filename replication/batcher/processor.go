package batcher

import "context"

// Processor transmits tasks (upstream: TaskProcessor). It is called by several workers at once, but
// never with an id that another call still has. It returns when ctx ends. A call that panics counts as
// a PermanentError.
type Processor[T any] interface {
	// Process transmits one task; a dispatcher with a WorkloadSize of 1 calls it.
	Process(ctx context.Context, task T) Result
	// ProcessBatch transmits tasks in order. The result holds for all of them.
	ProcessBatch(ctx context.Context, tasks []T) Result
}

// Result is what became of a transmission (upstream: TaskProcessor.ProcessingResult).
type Result uint8

// The results.
const (
	Success        Result = iota
	Congestion            // the receiver is busy (503) or slow (read timeout): all again, after CongestionRetryDelay
	TransientError        // the receiver cannot be reached: all again, after NetworkFailureRetry
	PermanentError        // these tasks can never succeed: a batch is split to find which, a single task is dropped
)

// again says whether the tasks of a transmission are to be sent once more.
func (r Result) again() bool { return r == Congestion || r == TransientError }
