package replication

import (
	"context"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// acting sends acts over a link.
type acting struct{ link.Actor }

// Process implements batcher.Processor.
func (a acting) Process(ctx context.Context, op registry.SelfPreservation) batcher.Result {
	return a.Act(ctx, op)
}

// ProcessBatch implements batcher.Processor; it is not called in single-item form.
func (a acting) ProcessBatch(ctx context.Context, ops []registry.SelfPreservation) batcher.Result {
	for _, op := range ops {
		if result := a.Act(ctx, op); result != batcher.Success {
			return result
		}
	}
	return batcher.Success
}
