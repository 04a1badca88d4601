package replication

import (
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/replication/batcher"
)

// newActs is the dispatcher of operators' acts: in single-item form, without delay. Of two that wait the
// newer one counts.
func newActs(p *peer, a actor) *batcher.Dispatcher[struct{}, registry.SelfPreservation] {
	return batcher.New(batcher.Config[struct{}, registry.SelfPreservation]{
		Name: p.Name + " acts", Processor: acting{a}, WorkloadSize: 1,
		CongestionRetryDelay: p.CongestionDelay, NetworkFailureRetry: p.NetworkDelay, MaxRetryDelay: p.MaxDelay, Backoff: p.Backoff,
	})
}

// acting is a link that tells acts.
type acting struct{ actor }

// Process implements batcher.Processor.
func (a acting) Process(ctx context.Context, op registry.SelfPreservation) batcher.Result {
	return a.act(ctx, op)
}

// ProcessBatch implements batcher.Processor; in single-item form nobody calls it.
func (a acting) ProcessBatch(ctx context.Context, ops []registry.SelfPreservation) batcher.Result {
	for _, op := range ops {
		if result := a.act(ctx, op); result != batcher.Success {
			return result
		}
	}
	return batcher.Success
}

// tellAct queues an operator's act.
func (s *session) tellAct(op registry.SelfPreservation) {
	if s.acts != nil {
		s.acts.Process(struct{}{}, op, time.Now().Add(s.Expiry))
	}
}
