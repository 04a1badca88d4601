package replication

import (
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// transmission is the link as the dispatcher sees it: it brings the ages of removals up to date.
type transmission struct{ *peer }

// Process implements batcher.Processor.
func (t transmission) Process(ctx context.Context, one link.Task) batcher.Result {
	return t.link.Process(ctx, t.aged([]link.Task{one})[0])
}

// ProcessBatch implements batcher.Processor.
func (t transmission) ProcessBatch(ctx context.Context, tasks []link.Task) batcher.Result {
	return t.link.ProcessBatch(ctx, t.aged(tasks))
}

// aged returns the tasks with the ages of their removals as of now.
func (t transmission) aged(tasks []link.Task) []link.Task {
	now := time.Now()
	aged := make([]link.Task, len(tasks))
	oldest := now
	for i, one := range tasks {
		if one.Queued.Before(oldest) {
			oldest = one.Queued
		}
		one.Remove.Age += now.Sub(one.AsOf).Milliseconds()
		aged[i] = one
	}
	t.waiting.Observe(now.Sub(oldest).Seconds())
	return aged
}
