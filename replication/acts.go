package replication

import (
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// newActs returns the dispatcher of operators' acts: in single-item form, without delay. If two are waiting, the
// newer one counts.
func newActs(p *peer, a link.Actor) *batcher.Dispatcher[struct{}, registry.SelfPreservation] {
	return batcher.New(batcher.Config[struct{}, registry.SelfPreservation]{
		Name: p.Name + " acts", Processor: acting{a}, WorkloadSize: 1,
		CongestionRetryDelay: p.CongestionDelay, NetworkFailureRetry: p.NetworkDelay, MaxRetryDelay: p.MaxDelay, Backoff: p.Backoff,
	})
}

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

// sendAct queues an operator's act.
func (f *feed) sendAct(op registry.SelfPreservation) {
	if f.acts != nil {
		f.acts.Process(struct{}{}, op, time.Now().Add(f.Expiry))
	}
}
