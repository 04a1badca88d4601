package batcher

import (
	"context"
	"fmt"
	"runtime/debug"
	"runtime/pprof"
	"sync"
)

// executor runs the workers (upstream: TaskExecutors, BatchWorkerRunnable, SingleTaskWorkerRunnable). They pull: a
// worker is handed nothing that it did not ask for, so what waits for a slow receiver waits among the pending tasks,
// where it can still be merged, expire or be dropped.
type executor[K comparable, T any] struct {
	config *Config[K, T]
	inbox  *inbox[K, T]
	work   chan work[K, T] // as large as the number of workers, so that handing out never blocks
	group  sync.WaitGroup
}

// start starts the workers. Their transmissions end with ctx at the latest.
func (e *executor[K, T]) start(ctx context.Context) {
	name := "TaskBatchingWorker-"
	if e.config.single() {
		name = "TaskNonBatchingWorker-"
	}
	for range e.config.WorkerCount {
		e.group.Go(func() {
			pprof.Do(ctx, labels(name+e.config.Name), func(ctx context.Context) {
				e.inbox.ask()
				for w := range e.work {
					e.inbox.report(w, e.run(ctx, w))
				}
			})
		})
	}
}

// stop waits until every worker has reported what it had.
func (e *executor[K, T]) stop() {
	close(e.work)
	e.group.Wait()
}

// run transmits one piece of work. A bug in the Processor costs the task that shows it, and never a worker.
func (e *executor[K, T]) run(ctx context.Context, w work[K, T]) (r Result) {
	defer func() {
		if p := recover(); p != nil {
			r = PermanentError
			e.config.Log.Error("processor panicked", "dispatcher", e.config.Name, "tasks", len(w.tasks),
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	if e.config.single() {
		return e.config.Processor.Process(ctx, w.tasks[0].task)
	}
	tasks := make([]T, len(w.tasks))
	for i, h := range w.tasks {
		tasks[i] = h.task
	}
	return e.config.Processor.ProcessBatch(ctx, tasks)
}

// labels names a goroutine in profiles as upstream names its threads.
func labels(thread string) pprof.LabelSet { return pprof.Labels("thread", thread) }
