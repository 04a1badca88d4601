package replication

import (
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/replication/batcher"
)

// transmission is the link, as the dispatcher sees it: it brings the ages of removals up to date.
type transmission struct{ *peer }

// Process implements batcher.Processor.
func (t transmission) Process(ctx context.Context, one task) batcher.Result {
	return t.link.Process(ctx, t.aged([]task{one})[0])
}

// ProcessBatch implements batcher.Processor.
func (t transmission) ProcessBatch(ctx context.Context, tasks []task) batcher.Result {
	return t.link.ProcessBatch(ctx, t.aged(tasks))
}

func (t transmission) aged(tasks []task) []task {
	now := time.Now()
	aged := make([]task, len(tasks))
	oldest := now
	for i, one := range tasks {
		if one.queued.Before(oldest) {
			oldest = one.queued
		}
		one.remove.Age += now.Sub(one.asOf).Milliseconds()
		aged[i] = one
	}
	t.metrics.waited(t.Name, now.Sub(oldest))
	return aged
}
