package commit

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/membership"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/consensus/raftio"
)

// enqueueTimeout bounds the wait for a place in Raft's own queue.
const enqueueTimeout = time.Second

// applier is the part of Raft that takes entries.
type applier interface {
	Apply(entry []byte, patience time.Duration) raft.ApplyFuture
}

// Proposer hands entries to Raft.
type Proposer struct {
	Raft       applier               // set once Raft is started, before anything is proposed
	Stamp      func() registry.Stamp // returns the time for an entry
	Level      func() byte           // returns the level of the formats that the cluster writes
	Leadership *membership.LeaderState
	Metrics    *Metrics

	newest atomic.Pointer[time.Time]
}

// Newest returns when this node proposed its last entry. There must be one.
func (p *Proposer) Newest() time.Time { return *p.newest.Load() }

// Entry is a log entry on its way through Raft.
type Entry struct {
	future  raft.ApplyFuture
	batches int
	started time.Time
	metrics *Metrics
}

// Propose hands an entry with batches to Raft, as the established leader, and returns without waiting for it. The log
// has the entries in the order of the calls.
func (p *Proposer) Propose(batches ...[]byte) (*Entry, error) {
	l := p.Leadership.Own()
	if l == nil {
		return nil, fmt.Errorf("%w: %w", port.ErrNotSent, membership.ErrNotLeader)
	}
	e := p.Start(fsm.AppendWrite(nil, p.Level(), p.Stamp(), l.Tenure(time.Now()), batches...), enqueueTimeout)
	e.batches = len(batches)
	return e, nil
}

// Start hands an entry to Raft, which must find a place for it within patience.
func (p *Proposer) Start(encoded []byte, patience time.Duration) *Entry {
	now := time.Now()
	p.newest.Store(&now)
	p.Metrics.Entries.Inc()
	return &Entry{future: p.Raft.Apply(encoded, patience), started: now, metrics: p.Metrics}
}

// Results waits for the results of an entry's batches. Errors that wrap port.ErrNotSent are certain; after any other
// the outcome is unknown.
func (e *Entry) Results(ctx context.Context) ([]fsm.BatchResult, error) {
	applied, err := e.Wait(ctx, store.ResultWait)
	if err != nil {
		return nil, err
	}
	if len(applied.Batches) != e.batches {
		return nil, fmt.Errorf("entry with %d batches has %d results", e.batches, len(applied.Batches))
	}
	return applied.Batches, nil
}

// Wait waits until the entry is applied, for at most limit. The time counts from when Raft was asked, because Raft's
// queue may have been full.
func (e *Entry) Wait(ctx context.Context, limit time.Duration) (fsm.Applied, error) {
	if err := raftio.Wait(ctx, e.future, limit-time.Since(e.started)); err != nil {
		if errors.Is(err, raftio.ErrNoResult) && ctx.Err() == nil {
			e.metrics.Commit.Observe(time.Since(e.started).Seconds())
		}
		if errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrEnqueueTimeout) || errors.Is(err, raft.ErrLeadershipTransferInProgress) {
			err = fmt.Errorf("%w: %w", port.ErrNotSent, err) // the entry is certainly not in the log
		}
		return fsm.Applied{}, err
	}
	switch r := e.future.Response().(type) {
	case fsm.Applied:
		e.metrics.Commit.Observe(time.Since(e.started).Seconds())
		return r, nil
	case error:
		return fsm.Applied{}, r
	}
	return fsm.Applied{}, fmt.Errorf("the result of the entry is a %T", e.future.Response())
}
