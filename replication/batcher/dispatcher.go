// Package batcher is the batching task dispatcher of Netflix Eureka (com.netflix.eureka.util.batcher),
// with its roles and names, for one receiver of tasks:
//
//   - the Dispatcher accepts tasks and never blocks its caller;
//   - the acceptor owns all state: the acceptor and reprocess queues, the pending tasks by id in their
//     order, and the work that workers asked for; it is one goroutine, woken by events, and polls nothing;
//   - the executor's workers ask for work, run the Processor, and give back what is to be tried again;
//   - the Processor transmits tasks and says what became of them;
//   - a holder is a task with its id, its expiry and the time of its first submission;
//   - the trafficShaper delays all hand-outs after congestion and network failures.
//
// It knows nothing of registries: what a task is, and how two of one id merge, its user says.
//
// Where it differs from upstream, it is to lose less. Upstream's batch waits for its delay even when it
// is full, and a task that is renewed more often than the delay holds back all others for ever; here the
// time of the first submission counts, and a full batch leaves at once. Upstream's workers overtake each
// other; here an id that a worker has is not handed out again. Upstream drops a batch that is refused,
// and a failed task that a newer one supersedes; here the batch is split until the task that spoils it
// is alone, and the failed task is merged into the newer one.
package batcher

import (
	"context"
	"runtime/pprof"
	"time"
)

// Dispatcher accepts tasks for one receiver (upstream: TaskDispatcher). Safe for concurrent use.
type Dispatcher[K comparable, T any] struct {
	config Config[K, T]
	inbox  *inbox[K, T]
}

// New makes a dispatcher. It starts nothing.
func New[K comparable, T any](c Config[K, T]) *Dispatcher[K, T] {
	return &Dispatcher[K, T]{config: c.complete(), inbox: newInbox[K, T]()}
}

// Process accepts a task and returns at once. Expiry is when it is of no use any more; zero: never.
// After Run has ended the task is dropped as Stopped, before Process returns.
func (d *Dispatcher[K, T]) Process(id K, task T, expiry time.Time) {
	h := &holder[K, T]{id: id, task: task, expiry: expiry, first: time.Now()}
	if !d.inbox.accept(h) {
		d.config.Dropped(id, task, Stopped)
	}
}

// Run transmits until ctx ends, and may be called once. It then either tries to send what is pending for
// at most drain (0: not at all), without batching delay, or drops it as Stopped. Transmissions under way
// have as long; then their context ends, and Run waits for them. It returns nil.
func (d *Dispatcher[K, T]) Run(ctx context.Context, drain time.Duration) error {
	sending, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	e := newExecutor(&d.config, d.inbox)
	e.start(sending)
	a := newAcceptor(&d.config, d.inbox, e.work)
	pprof.Do(ctx, labels("TaskAcceptor-"+d.config.Name), func(ctx context.Context) {
		a.serve(ctx.Done())
		if drain > 0 {
			a.drain(drain)
		}
		cut()
		e.stop()
		a.close()
	})
	return nil
}

// Reached tells that the receiver was reached by other means than a task: the pause after network
// failures ends. That after congestion does not.
func (d *Dispatcher[K, T]) Reached() { d.inbox.reach() }

// Room is how many more tasks of new ids fit without an overflow, even if all that workers have comes back.
func (d *Dispatcher[K, T]) Room() int { return d.inbox.room(d.config.MaxBufferSize) }

// Freed receives a value when Room has grown, or when nothing is pending or in flight any more. Values
// are not counted: whoever receives one looks.
func (d *Dispatcher[K, T]) Freed() <-chan struct{} { return d.inbox.freed }

// Stats are the present numbers.
func (d *Dispatcher[K, T]) Stats() Stats { return d.inbox.snapshot() }

// Stats are the counters and gauges of upstream's AcceptorExecutor and TaskExecutors, by their names.
type Stats struct {
	AcceptedTasks   uint64 // given to Process
	ReplayedTasks   uint64 // given back by workers after congestion and transient errors
	ExpiredTasks    uint64 // dropped as Expired
	OverriddenTasks uint64 // made one with another task of their id
	QueueOverflows  uint64 // dropped as Overflow
	StoppedTasks    uint64 // dropped as Stopped

	SuccessfulExecutions uint64
	TransientErrors      uint64
	PermanentErrors      uint64 // dropped as Permanent
	CongestionIssues     uint64

	// What waits is the sum of these three: the acceptor looks at the first two only when it has to.
	AcceptorQueueSize  int // accepted, not looked at yet
	ReprocessQueueSize int // given back, not looked at yet
	QueueSize          int // pending

	InFlight           int // handed to workers, those that wait as part of a split batch included
	PendingJobRequests int // workers that wait for work
	LastBatchSize      int
}

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

// holder is a task on its way through the dispatcher (upstream: TaskHolder).
type holder[K comparable, T any] struct {
	id     K
	task   T
	expiry time.Time // zero: never
	// first is when the oldest task that was merged into this one was submitted. Upstream keeps the time
	// of the newest, so that an id that is submitted more often than the batching delay passes holds back
	// the whole queue when it is at its head.
	first time.Time

	before, after *holder[K, T] // its neighbours in an order
}

// expired says whether the task is of no use any more.
func (h *holder[K, T]) expired(now time.Time) bool {
	return !h.expiry.IsZero() && !h.expiry.After(now)
}

// later is the later of two expiries, of which zero is the latest.
func later(a, b time.Time) time.Time {
	if a.IsZero() || b.IsZero() {
		return time.Time{}
	}
	if a.After(b) {
		return a
	}
	return b
}
