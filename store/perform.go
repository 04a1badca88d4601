package store

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// applyStep is how many operations are performed at a stretch: a large batch of another node must not
// keep the clients waiting.
const applyStep = 256

// Apply implements registry.Service. With SyncAlways the answer waits for the disk; otherwise ctx is
// looked at before Run only.
func (s *Local) Apply(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	if err := s.admit(ctx, origin, ops); err != nil {
		return nil, fmt.Errorf("apply %d operations: %w", len(ops), err)
	}
	s.metrics.operations.Add(float64(len(ops)))
	results := make([]registry.Result, 0, len(ops))
	var saved *flush
	for left := ops; len(left) > 0; {
		n := min(len(left), applyStep)
		var err error
		if results, saved, err = s.perform(results, saved, origin, left[:n]); err != nil {
			return nil, fmt.Errorf("apply %d operations: %w", len(ops), partly(len(results), err))
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
func (s *Local) admit(ctx context.Context, origin registry.Origin, ops []registry.Op) error {
	for i, op := range ops {
		if _, small := op.(registry.Renew); small {
			continue
		}
		if size := sizeOf(fsm.Item{Origin: origin, Op: op}); size > maxOpBytes {
			return fmt.Errorf("operation %d has %d bytes, at most %d are allowed: %w", i+1, size, maxOpBytes, registry.ErrTooLarge)
		}
	}
	select {
	case <-s.begun:
		return nil
	default:
	}
	select {
	case <-s.begun:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// perform performs operations and appends their results. Of a call's operations the last flush contains
// all: flushes come in order.
func (s *Local) perform(results []registry.Result, saved *flush, origin registry.Origin, ops []registry.Op) ([]registry.Result, *flush, error) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.serving {
		return results, saved, registry.ErrClosed
	}
	stamp := s.stamp(now)
	effects, amends := effect(0), s.registry.Amends()
	for _, op := range ops {
		res := s.registry.Apply(stamp, s.id.Boot, origin, op)
		effects = max(effects, effectOf(op, res))
		results = append(results, res)
	}
	if s.registry.Amends() > amends {
		effects = telling // also of a renewal
	}
	if effects == renewing {
		return results, saved, nil
	}
	s.publish()
	if f := s.spoil(effects); f != nil {
		saved = f
	}
	return results, saved, nil
}

// effect is what an operation means for those who look at the state.
type effect uint8

const (
	renewing effect = iota // nothing but the time of a renewal, which is live
	noting                 // something new that nobody relies on: it comes again
	telling                // an answer that must be as true after a crash
)

func effectOf(op registry.Op, res registry.Result) effect {
	if res.Index != 0 {
		return telling
	}
	switch op.(type) {
	case registry.Renew:
		return renewing
	case registry.Contact, registry.AckPeer:
		return noting
	}
	return telling
}

// maxLost is what the lease clock may lose before renewals become hearsay: the conflict rules bear as much.
const maxLost = 5 * time.Second

// stamp is the time of an operation. If the node was paused, what it knew before is hearsay from now on. The
// caller holds mu.
func (s *Local) stamp(now time.Time) registry.Stamp {
	lease, _ := s.clock.Read(now)
	if lost := s.clock.Lost(); lost > s.doubted+maxLost {
		s.doubted = lost
		s.registry.Doubt()
		s.log.Warn("this node stood still, or its wall clock was set forward: until they are renewed, it takes no lease for younger than other nodes do", "lost", lost)
	}
	return registry.Stamp{Lease: lease, Wall: now.UnixMilli()}
}
