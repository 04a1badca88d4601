package batcher

import (
	"context"
	"time"
)

// order is a list of holders, oldest first. The links are in the holders, so that removing one from the middle is
// cheap. A holder is in at most one order.
type order[K comparable, T any] struct{ head, tail *holder[K, T] }

func (o *order[K, T]) append(h *holder[K, T]) {
	h.before = o.tail
	if o.tail == nil {
		o.head = h
	} else {
		o.tail.after = h
	}
	o.tail = h
}

func (o *order[K, T]) prepend(h *holder[K, T]) {
	h.after = o.head
	if o.head == nil {
		o.tail = h
	} else {
		o.head.before = h
	}
	o.head = h
}

func (o *order[K, T]) remove(h *holder[K, T]) {
	if h.before == nil {
		o.head = h.after
	} else {
		h.before.after = h.after
	}
	if h.after == nil {
		o.tail = h.before
	} else {
		h.after.before = h.before
	}
	h.before, h.after = nil, nil
}

// Stats has the counters and gauges of upstream's AcceptorExecutor and TaskExecutors, under their names.
type Stats struct {
	AcceptedTasks   uint64 // given to Process
	ReplayedTasks   uint64 // given back by workers after congestion and transient errors
	ExpiredTasks    uint64 // dropped as Expired
	OverriddenTasks uint64 // merged with another task of their id
	QueueOverflows  uint64 // dropped as Overflow
	StoppedTasks    uint64 // dropped as Stopped

	SuccessfulExecutions uint64
	TransientErrors      uint64
	PermanentErrors      uint64 // dropped as Permanent
	CongestionIssues     uint64

	// The tasks that wait are the sum of these three: the acceptor examines the first two only when it has to.
	AcceptorQueueSize  int // accepted, not examined yet
	ReprocessQueueSize int // given back, not examined yet
	QueueSize          int // pending

	InFlight           int // handed to workers, including those that wait as part of a split batch
	PendingJobRequests int // workers waiting for work
	LastBatchSize      int
}

// Processor transmits tasks (upstream: TaskProcessor). Several workers call it at once, but never with an id that
// another call still has. It returns when ctx ends. A call that panics counts as a PermanentError.
type Processor[T any] interface {
	// Process transmits one task. A dispatcher with a WorkloadSize of 1 calls it.
	Process(ctx context.Context, task T) Result
	// ProcessBatch transmits tasks in order. The result applies to all of them.
	ProcessBatch(ctx context.Context, tasks []T) Result
}

// Result is the outcome of a transmission (upstream: TaskProcessor.ProcessingResult).
type Result uint8

// Outcomes of a transmission.
const (
	Success        Result = iota
	Congestion            // the receiver is busy (503) or slow (read timeout): all again, after CongestionRetryDelay
	TransientError        // the receiver cannot be reached: all again, after NetworkFailureRetry
	PermanentError        // these tasks can never succeed: a batch is split to find which, a single task is dropped
)

// again reports whether the tasks of a transmission must be sent once more.
func (r Result) again() bool { return r == Congestion || r == TransientError }

// holder is a task on its way through the dispatcher (upstream: TaskHolder).
type holder[K comparable, T any] struct {
	id     K
	task   T
	expiry time.Time // zero if it never expires
	// first is when the oldest task that was merged into this one was submitted. Upstream keeps the time of the
	// newest, so an id that is submitted more often than the batching delay passes holds back the whole queue when it
	// is at its head.
	first time.Time

	before, after *holder[K, T] // its neighbours in an order
}

// expired reports whether the task has expired.
func (h *holder[K, T]) expired(now time.Time) bool {
	return !h.expiry.IsZero() && !h.expiry.After(now)
}

// later returns the later of two expiries. Zero counts as the latest.
func later(a, b time.Time) time.Time {
	if a.IsZero() || b.IsZero() {
		return time.Time{}
	}
	if a.After(b) {
		return a
	}
	return b
}

// work is what a worker gets at once (upstream: a list of TaskHolders).
type work[K comparable, T any] struct {
	tasks   []*holder[K, T]
	started time.Time // when it was handed out
}
