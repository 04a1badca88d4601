package consensus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
)

// stamp is the time that an entry carries.
func (s *Raft) stamp() registry.Stamp {
	now := time.Now()
	lease, _ := s.clock.Read(now)
	return registry.Stamp{Lease: lease, Wall: now.UnixMilli()}
}

// entry is a log entry on its way through Raft.
type entry struct {
	future  raft.ApplyFuture
	batches int
	started time.Time
}

// propose hands an entry with batches to Raft, as the established leader, and returns without
// waiting for it: entries stand in the log in the order of the calls.
func (s *Raft) propose(batches ...[]byte) (*entry, error) {
	l := s.lead.Load()
	if l == nil {
		return nil, fmt.Errorf("%w: %w", port.ErrNotSent, errNotLeader)
	}
	e := s.begin(fsm.AppendWrite(nil, s.stamp(), l.tenure(time.Now()), batches...), enqueueTimeout)
	e.batches = len(batches)
	return e, nil
}

// begin hands an entry to Raft, which has to find a place for it within patience.
func (s *Raft) begin(encoded []byte, patience time.Duration) *entry {
	now := time.Now()
	s.proposed.Store(now.UnixNano())
	s.metrics.entries.Inc()
	return &entry{future: s.raft.Apply(encoded, patience), started: now}
}

// results waits for the answers to an entry's batches. Errors that wrap errNotSent are certain;
// after any other nobody knows.
func (e *entry) results(ctx context.Context) ([]fsm.BatchResult, error) {
	applied, err := e.wait(ctx, answerWait)
	if err != nil {
		return nil, err
	}
	if len(applied.Batches) != e.batches {
		return nil, fmt.Errorf("entry with %d batches has %d answers", e.batches, len(applied.Batches))
	}
	return applied.Batches, nil
}

func (e *entry) wait(ctx context.Context, limit time.Duration) (fsm.Applied, error) {
	done := make(chan error, 1)
	go func() { done <- e.future.Error() }() // may never end if Raft shuts down meanwhile
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case err := <-done:
		if err != nil {
			return fsm.Applied{}, certain(err)
		}
	case <-t.C:
		return fsm.Applied{}, fmt.Errorf("entry not applied within %v", limit)
	case <-ctx.Done():
		return fsm.Applied{}, ctx.Err()
	}
	switch r := e.future.Response().(type) {
	case fsm.Applied:
		return r, nil
	case error:
		return fsm.Applied{}, r
	}
	return fsm.Applied{}, fmt.Errorf("entry answered by %T", e.future.Response())
}

// certain marks the errors of raft.Apply after which the entry is certainly not in the log.
func certain(err error) error {
	if errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrEnqueueTimeout) || errors.Is(err, raft.ErrLeadershipTransferInProgress) {
		return fmt.Errorf("%w: %w", port.ErrNotSent, err)
	}
	return err
}
