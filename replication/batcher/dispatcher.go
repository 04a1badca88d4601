// Package batcher is the batching task dispatcher of Netflix Eureka (com.netflix.eureka.util.batcher), with its roles
// and names, for one receiver of tasks:
//
//   - the Dispatcher accepts tasks and never blocks its caller;
//   - the acceptor owns all state: the acceptor and reprocess queues, the pending tasks by id in their
//     order, and the work that workers asked for; it is one goroutine, woken by events, and polls nothing;
//   - the executor's workers ask for work, run the Processor, and give back what must be tried again;
//   - the Processor transmits tasks and reports the outcome;
//   - a holder is a task with its id, its expiry and the time of its first submission;
//   - the trafficShaper delays all hand-outs after congestion and network failures.
//
// It knows nothing of registries: the caller says what a task is, and how two with one id merge.
//
// It differs from upstream where that loses less. Upstream's batch waits for its delay even when it is full, and a
// task that is renewed more often than the delay holds back all others forever; here the time of the first submission
// counts, and a full batch leaves at once. Upstream's workers overtake each other; here an id that a worker has is
// not handed out again. Upstream drops a batch that is refused, and a failed task that a newer one supersedes; here
// the batch is split until the task that spoils it is alone, and the failed task is merged with the newer one.
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

// New returns a dispatcher. It starts nothing.
func New[K comparable, T any](c Config[K, T]) *Dispatcher[K, T] {
	return &Dispatcher[K, T]{config: c.complete(), inbox: newInbox[K, T]()}
}

// Process accepts a task and returns at once. The task is useless after expiry; zero means that it never expires.
// After Run has ended, the task is dropped as Stopped before Process returns.
func (d *Dispatcher[K, T]) Process(id K, task T, expiry time.Time) {
	h := &holder[K, T]{id: id, task: task, expiry: expiry, first: time.Now()}
	if !d.inbox.accept(h) {
		d.config.Dropped(id, task, Stopped)
	}
}

// Run transmits until ctx ends, and may be called once. It then either tries for at most drain to send what is
// pending, without batching delay, or, if drain is 0, drops it as Stopped. Transmissions in flight have the same
// time; then their context ends, and Run waits for them. It returns nil.
func (d *Dispatcher[K, T]) Run(ctx context.Context, drain time.Duration) error {
	sending, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	e := &executor[K, T]{config: &d.config, inbox: d.inbox, work: make(chan work[K, T], d.config.WorkerCount)}
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

// Reached reports that the receiver was reached by something other than a task, which ends the pause after network
// failures. The pause after congestion goes on.
func (d *Dispatcher[K, T]) Reached() {
	d.inbox.mu.Lock()
	defer d.inbox.mu.Unlock()
	d.inbox.left.reached = true
	signal(d.inbox.wake)
}

// Room returns how many more tasks of new ids fit without an overflow, even if everything that workers have comes
// back.
func (d *Dispatcher[K, T]) Room() int {
	d.inbox.mu.Lock()
	defer d.inbox.mu.Unlock()
	return max(d.config.MaxBufferSize-d.inbox.load, 0)
}

// Freed receives a value when Room has grown, or when nothing is pending or in flight any more. Values are not
// counted: after reading one, call Room.
func (d *Dispatcher[K, T]) Freed() <-chan struct{} { return d.inbox.freed }

// Stats returns the current numbers.
func (d *Dispatcher[K, T]) Stats() Stats {
	b := d.inbox
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stats
	s.AcceptedTasks = b.accepted
	s.StoppedTasks += b.refused
	s.AcceptorQueueSize = len(b.left.accepted)
	for _, r := range b.left.reports {
		if r.result.again() {
			s.ReprocessQueueSize += len(r.work.tasks)
		}
	}
	return s
}
