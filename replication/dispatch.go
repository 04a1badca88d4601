package replication

import (
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// merge is merge, and keeps the cursor's account.
func (s *session) merge(older, newer link.Task) link.Task {
	if older.First != 0 && newer.First != 0 {
		s.cursor.done(max(older.First, newer.First))
	}
	return link.Merge(older, newer)
}

var dropNames = [...]string{
	batcher.Expired: "expired", batcher.Overflow: "overflow", batcher.Permanent: "permanent", batcher.Stopped: "stopped",
}

// givenUp is told by the dispatcher. What the peer refuses is left to the next comparison; everything
// else is read again, when the dispatcher says that there is room.
func (s *session) givenUp(_ registry.Key, t link.Task, why batcher.Drop) {
	s.dropped(dropNames[why])
	if why == batcher.Permanent {
		s.cursor.done(t.First)
		return
	}
	s.cursor.giveUp(t.First)
}

// transmission is the link, as the dispatcher sees it: it brings the ages of removals up to date.
type transmission struct{ *peer }

// Process implements batcher.Processor.
func (t transmission) Process(ctx context.Context, one link.Task) batcher.Result {
	return t.link.Process(ctx, t.aged([]link.Task{one})[0])
}

// ProcessBatch implements batcher.Processor.
func (t transmission) ProcessBatch(ctx context.Context, tasks []link.Task) batcher.Result {
	return t.link.ProcessBatch(ctx, t.aged(tasks))
}

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
	t.metrics.waited(t.Name, now.Sub(oldest))
	return aged
}

// newActs is the dispatcher of operators' acts: in single-item form, without delay. Of two that wait the
// newer one counts.
func newActs(p *peer, a link.Actor) *batcher.Dispatcher[struct{}, registry.SelfPreservation] {
	return batcher.New(batcher.Config[struct{}, registry.SelfPreservation]{
		Name: p.Name + " acts", Processor: acting{a}, WorkloadSize: 1,
		CongestionRetryDelay: p.CongestionDelay, NetworkFailureRetry: p.NetworkDelay, MaxRetryDelay: p.MaxDelay, Backoff: p.Backoff,
	})
}

// acting is a link that tells acts.
type acting struct{ link.Actor }

// Process implements batcher.Processor.
func (a acting) Process(ctx context.Context, op registry.SelfPreservation) batcher.Result {
	return a.Act(ctx, op)
}

// ProcessBatch implements batcher.Processor; in single-item form nobody calls it.
func (a acting) ProcessBatch(ctx context.Context, ops []registry.SelfPreservation) batcher.Result {
	for _, op := range ops {
		if result := a.Act(ctx, op); result != batcher.Success {
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
