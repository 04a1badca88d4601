package local

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store"
)

// Apply implements registry.Service. With SyncAlways the answer waits for the disk; otherwise ctx is
// looked at before Run only.
func (s *Store) Apply(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	if err := s.admit(ctx, origin, ops); err != nil {
		return nil, fmt.Errorf("apply %d operations: %w", len(ops), err)
	}
	s.metrics.operations.Add(float64(len(ops)))
	results := make([]registry.Result, 0, len(ops))
	if origin.Kind == registry.Client {
		origin.Principal = access.SenderOf(ctx).Name
	}
	var saved *flush
	for left := ops; len(left) > 0; {
		n := min(len(left), applyStep)
		var err error
		if results, saved, err = s.perform(results, saved, call{origin, access.ServerOf(ctx)}, left[:n]); err != nil {
			return nil, fmt.Errorf("apply %d operations: %w", len(ops), store.Partly(len(results), err))
		}
		left = left[n:]
	}
	if saved == nil {
		return results, nil
	}
	if err := saved.wait(ctx); err != nil {
		return nil, fmt.Errorf("apply %d operations: %w", len(ops), err)
	}
	return results, nil
}

// admit waits for the beginning of Run, and refuses a call of which an operation is larger than it may
// be in a log, so that both modes take the same.
func (s *Store) admit(ctx context.Context, origin registry.Origin, ops []registry.Op) error {
	for i, op := range ops {
		if _, small := op.(registry.Renew); small {
			continue
		}
		if size := store.SizeOf(fsm.Item{Origin: origin, Op: op}); size > store.MaxOpBytes {
			return fmt.Errorf("operation %d has %d bytes, at most %d are allowed: %w", i+1, size, store.MaxOpBytes, registry.ErrTooLarge)
		}
	}
	if err := s.refuseAbove(origin, ops); err != nil {
		return err
	}
	select {
	case <-s.started:
		return nil
	default:
	}
	select {
	case <-s.started:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// perform performs operations and appends their results. Of a call's operations the last flush contains
// all: flushes come in order.
func (s *Store) perform(results []registry.Result, saved *flush, c call, ops []registry.Op) ([]registry.Result, *flush, error) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.serving {
		return results, saved, registry.ErrClosed
	}
	stamp := s.stamp(now)
	results, effects, err := s.performSafely(results, now, stamp, c, ops)
	if err != nil || effects == renewing {
		return results, saved, err
	}
	s.publish()
	if f := s.markDirty(effects); f != nil {
		saved = f
	}
	return results, saved, nil
}

// maxLost is what the lease clock may lose before renewals become hearsay: the conflict rules bear as much.
const maxLost = 5 * time.Second

// stamp is the time of an operation. If the node was paused, what it knew before is hearsay from now on. The
// caller holds mu.
func (s *Store) stamp(now time.Time) registry.Stamp {
	lease, _ := s.clock.Read(now)
	if lost := s.clock.Lost(); lost > s.doubted+maxLost {
		s.doubted = lost
		s.registry.Doubt()
		s.log.Warn("this node stood still, or its wall clock was set forward: until they are renewed, it takes no lease for younger than other nodes do", "lost", lost)
	}
	return registry.Stamp{Lease: lease, Wall: now.UnixMilli()}
}
