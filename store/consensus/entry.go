package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

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

// proposer hands entries to Raft.
type proposer struct {
	Raft       applier               // set once Raft is started, before anything is proposed
	Stamp      func() registry.Stamp // returns the time for an entry
	Level      func() byte           // returns the level of the formats that the cluster writes
	Leadership *membership.LeaderState
	Metrics    *commitMetrics

	newest atomic.Pointer[time.Time]
}

// Newest returns when this node proposed its last entry. There must be one.
func (p *proposer) Newest() time.Time { return *p.newest.Load() }

// entry is a log entry on its way through Raft.
type entry struct {
	future  raft.ApplyFuture
	batches int
	started time.Time
	metrics *commitMetrics
}

// Propose hands an entry with batches to Raft, as the established leader, and returns without waiting for it. The log
// has the entries in the order of the calls.
func (p *proposer) Propose(batches ...[]byte) (*entry, error) {
	l := p.Leadership.Own()
	if l == nil {
		return nil, fmt.Errorf("%w: %w", port.ErrNotSent, membership.ErrNotLeader)
	}
	e := p.Start(fsm.AppendWrite(nil, p.Level(), p.Stamp(), l.Tenure(time.Now()), batches...), enqueueTimeout)
	e.batches = len(batches)
	return e, nil
}

// Start hands an entry to Raft, which must find a place for it within patience.
func (p *proposer) Start(encoded []byte, patience time.Duration) *entry {
	now := time.Now()
	p.newest.Store(&now)
	p.Metrics.Entries.Inc()
	return &entry{future: p.Raft.Apply(encoded, patience), started: now, metrics: p.Metrics}
}

// Results waits for the results of an entry's batches. Errors that wrap port.ErrNotSent are certain; after any other
// the outcome is unknown.
func (e *entry) Results(ctx context.Context) ([]fsm.BatchResult, error) {
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
func (e *entry) Wait(ctx context.Context, limit time.Duration) (fsm.Applied, error) {
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

// commitMetrics are the figures of the committer.
type commitMetrics struct {
	Operations prometheus.Counter
	Entries    prometheus.Counter
	Batch      prometheus.Histogram
	Forwarded  prometheus.Counter
	Resent     prometheus.Counter
	Unknown    prometheus.Counter
	Commit     prometheus.Histogram
	Forward    prometheus.Histogram
}

func newCommitMetrics(reg prometheus.Registerer) *commitMetrics {
	add := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return add.NewCounter(prometheus.CounterOpts{Name: "rollcall_store_" + name, Help: help})
	}
	return &commitMetrics{
		Entries:    counter("entries_proposed_total", "Log entries that this node proposed as leader."),
		Operations: counter("operations_total", "Operations that callers of this node asked for."),
		Forwarded:  counter("batches_forwarded_total", "Batches that this node sent to the leader."),
		Resent:     counter("batches_resent_total", "Batches that were sent more than once."),
		Unknown:    counter("unknown_outcomes_total", "Operations whose outcome was still unknown when their time was up."),
		Commit:     store.Duration(reg, "commit_seconds", "Time from proposing a log entry, as leader, until it was applied or abandoned."),
		Forward:    store.Duration(reg, "forward_seconds", "Time the leader took to reply to a batch from this node."),
		Batch:      add.NewHistogram(prometheus.HistogramOpts{Name: "rollcall_store_batch_operations", Help: "Operations per batch.", Buckets: prometheus.ExponentialBuckets(1, 2, 13)}),
	}
}
