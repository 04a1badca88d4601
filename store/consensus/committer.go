package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/wait"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/membership"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// Limits of the group commit.
const (
	maxBatchBytes = 256 << 10 // a batch is closed at this size
	maxEntryBytes = 1 << 20   // of the batches that share an entry

	// wakeGrace is how long a write waits if it arrives around a pause of the process: its client may have given up
	// meanwhile, and the server needs a moment to see that the connection is closed.
	wakeGrace = 100 * time.Millisecond
)

// committerConfig is what a committer needs from its node.
type committerConfig struct {
	InFlight   int  // most entries in flight at a time
	NoBatching bool // one entry per write, for comparisons
	// RenewalWait is how long renewals wait after the last entry while few arrive. 0 disables the wait.
	RenewalWait time.Duration
	Node        string // this node's server id
	Boot        uint64 // number of this start of the node

	Leadership *membership.LeaderState
	Proposer   *proposer
	Nodes      *port.Nodes
	// TermsOf returns what this node knows of a leader's leadership. Its errors wrap port.ErrNotSent.
	TermsOf func(ctx context.Context, leader *membership.Leader, address string) (*membership.Terms, error)
	// Above returns the error of an operation that needs a higher level than the cluster writes.
	Above   func(ctx context.Context, needs byte) error
	Metrics *commitMetrics
}

// committer is the group commit: all writes of this node go through it. What waits when a slot frees becomes one
// batch. Only renewals wait for a timer (renewals.go, gather.go). It is shaped like bbolt's DB.Batch, with the
// slots of a pipeline: while one entry is in the leader's store, the one before it is in the followers'.
type committer struct {
	cfg   committerConfig
	slots chan struct{} // one token per entry in flight
	wake  chan struct{} // holds a token while something waits
	// patience is how long renewals wait to be committed together. 0 disables the wait.
	patience time.Duration
	pauses   pauseDetector

	mu        sync.Mutex // guards the fields below
	closed    bool       // no further calls are admitted
	calls     []*call    // queued, in order of arrival
	proposals []*proposal
	gathered  []*call // renewals waiting to be committed together, see gather
	renewals  renewalDelay
	seq       uint64
	open      map[uint64]struct{} // numbers of batches without results yet
}

// newCommitter returns a committer. Run must be called before anything is committed.
func newCommitter(cfg committerConfig) *committer {
	c := &committer{
		cfg:      cfg,
		slots:    make(chan struct{}, cfg.InFlight),
		wake:     make(chan struct{}, 1),
		patience: gatherFor,
		open:     map[uint64]struct{}{},
		renewals: renewalDelay{limit: cfg.RenewalWait},
	}
	if cfg.NoBatching {
		c.patience, c.renewals.limit = 0, 0
	}
	return c
}

// Calls returns the calls with which other nodes have their batches committed here, while this node leads.
func (c *committer) Calls() port.Calls {
	return port.Calls{
		callCommit:      port.Method(func(batch []byte) CommitReply { return c.Serve(batch, false) }),
		callCommitLater: port.Method(func(batch []byte) CommitReply { return c.Serve(batch, true) }),
	}
}

// noLeader returns how long a caller waits for a leader: longer, in proportion, where the nodes are far apart.
func (c *committer) noLeader() time.Duration { return c.cfg.Nodes.Stretch(store.NoLeaderWait) }

// Commit commits items in order, in as few batches as their sizes allow. If one of them is too large, or needs a
// higher level than the cluster writes, none is committed. Only renewals may wait.
func (c *committer) Commit(ctx context.Context, items []fsm.Item, pace pace) (fsm.Results, error) {
	arrived := time.Now()
	if err := c.admit(ctx, items, arrived); err != nil {
		return fsm.Results{}, err
	}
	var few [8]int // most calls are one heartbeat
	sizes := few[:0]
	for i, item := range items {
		size := store.SizeOf(item)
		if size > store.MaxOpBytes {
			return fsm.Results{}, fmt.Errorf("operation %d has %d bytes, at most %d are allowed: %w", i+1, size, store.MaxOpBytes, registry.ErrTooLarge)
		}
		sizes = append(sizes, size)
	}
	commit := c.commit
	if pace == gathered {
		commit = c.gather
	}
	var results fsm.Results
	for len(items) > 0 {
		n, size := 0, 0 // of as many operations as fit into a batch, at least one
		for n < len(sizes) && (n == 0 || size+sizes[n] <= maxBatchBytes) {
			size += sizes[n]
			n++
		}
		part, err := commit(ctx, arrived, items[:n], size, pace)
		if err != nil {
			return fsm.Results{}, store.Partly(results.Len(), err)
		}
		if n == len(items) && results.Len() == 0 {
			return part, nil
		}
		results.Add(part)
		items, sizes, arrived = items[n:], sizes[n:], time.Now()
	}
	return results, nil
}

// admit returns an error if one of the items cannot be written at the cluster's level. If this node has not yet
// applied the entry that raised the level, it waits for that entry, as long as for a leader.
func (c *committer) admit(ctx context.Context, items []fsm.Item, arrived time.Time) error {
	if c.cfg.Proposer.Level() == codec.Newest {
		return nil
	}
	var needs byte
	for _, item := range items {
		needs = max(needs, fsm.Need(item))
	}
	for c.cfg.Proposer.Level() < needs {
		err := c.cfg.Above(ctx, needs)
		if !errors.Is(err, registry.ErrNoLeader) || ctx.Err() != nil || time.Since(arrived) >= c.noLeader() {
			return err
		}
		wait.Pause(ctx, nil, lookAgain)
	}
	return nil
}

// Announce commits a batch without items, which introduces this start of the node to the state machine.
func (c *committer) Announce(ctx context.Context) error {
	_, err := c.commit(ctx, time.Now(), nil, 0, atOnce)
	return err
}

// commit waits until items took effect, in order and in one batch.
func (c *committer) commit(ctx context.Context, arrived time.Time, items []fsm.Item, size int, pace pace) (fsm.Results, error) {
	if grace := c.pauses.grace(time.Now()); grace > 0 {
		wait.Pause(ctx, nil, grace)
		if ctx.Err() != nil {
			return fsm.Results{}, fmt.Errorf("%w: %w", registry.ErrGivenUp, ctx.Err())
		}
	}
	k := &call{items: items, size: size, pace: pace, arrived: arrived, done: make(chan struct{})}
	if !c.enqueue(k) {
		return fsm.Results{}, registry.ErrClosed
	}
	return c.await(ctx, k)
}

// await waits for the result of an admitted call.
func (c *committer) await(ctx context.Context, k *call) (fsm.Results, error) {
	c.cfg.Metrics.Operations.Add(float64(len(k.items)))
	select {
	case <-k.done:
		return k.results, k.err
	case <-ctx.Done():
		if k.state.CompareAndSwap(queued, abandoned) {
			return fsm.Results{}, fmt.Errorf("%w: %w", registry.ErrGivenUp, ctx.Err())
		}
		return fsm.Results{}, fmt.Errorf("%w: %w", registry.ErrUnknownOutcome, ctx.Err())
	}
}

func (c *committer) enqueue(k *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.calls = append(c.calls, k)
	c.renewals.count(renewalsIn(k.items), k.arrived)
	c.signal()
	return true
}

// signal wakes the loop because something waits. The caller holds mu.
func (c *committer) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *committer) nextCalls() (calls []*call, size int) {
	n := 0
	late := time.Now().Add(-c.noLeader())
	for ; n < len(c.calls); n++ {
		k := c.calls[n]
		if k.arrived.Before(late) {
			k.abandon(registry.ErrNoLeader) // before sweep has found it: the process was paused
			continue
		}
		if len(calls) > 0 && (size+k.size > maxBatchBytes || c.cfg.NoBatching) {
			break
		}
		if k.state.CompareAndSwap(queued, sealed) {
			calls = append(calls, k)
			size += k.size
		}
	}
	rest := copy(c.calls, c.calls[n:])
	clear(c.calls[rest:])
	c.calls = c.calls[:rest]
	return calls, size
}

func (c *committer) refuse(proposals []*proposal, err error) {
	for _, p := range proposals {
		p.err = err
		close(p.done)
	}
}

// abandon ends a call that certainly takes no effect.
func (k *call) abandon(err error) {
	if k.state.CompareAndSwap(queued, abandoned) {
		k.err = err
		close(k.done)
	}
}

// shut ends all waiting calls, and admits no others.
func (c *committer) shut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, k := range append(c.calls, c.gathered...) {
		k.abandon(registry.ErrClosed)
	}
	c.refuse(c.proposals, fmt.Errorf("%w: %w", port.ErrNotSent, registry.ErrClosed))
	c.calls, c.gathered, c.proposals = nil, nil, nil
}

// seal gives a batch its number. The caller holds mu.
func (c *committer) seal(calls []*call) *batch {
	c.seq++
	c.open[c.seq] = struct{}{}
	closed := c.seq
	for n := range c.open {
		closed = min(closed, n-1)
	}
	b := &batch{
		calls: calls, wait: c.noLeader(), oldest: calls[0].arrived, items: make([]fsm.Item, 0, len(calls)),
		id: fsm.BatchID{Node: c.cfg.Node, Boot: c.cfg.Boot, Seq: c.seq, Finished: closed},
	}
	b.mayWait = true
	for _, k := range calls {
		b.items = append(b.items, k.items...)
		b.mayWait = b.mayWait && k.pace == mayWait
	}
	c.cfg.Metrics.Batch.Observe(float64(len(b.items)))
	return b
}

// Run fills the slots until ctx ends, and then ends the calls that still wait.
func (c *committer) Run(ctx context.Context) {
	var flying sync.WaitGroup
	defer c.shut()
	defer flying.Wait()
	for {
		select {
		case c.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		own, proposals, err := c.next(ctx)
		if err != nil {
			return
		}
		e, proposals, err := c.launch(own, proposals)
		release := func() { <-c.slots }
		if c.sendAside(own, proposals, e) {
			release()
			release = c.returnAside
		}
		flying.Go(func() {
			defer release()
			c.finishEntry(ctx, own, proposals, e, err)
		})
	}
}

// next waits until there is something to send, and returns it.
func (c *committer) next(ctx context.Context) (*batch, []*proposal, error) {
	for {
		select {
		case <-c.wake:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
		if c.holdBack(time.Now()) {
			continue
		}
		own, proposals := c.closeBatch()
		if own != nil || len(proposals) > 0 {
			return own, proposals, nil
		}
	}
}

// closeBatch closes the current batch, and the proposals that may share its entry.
func (c *committer) closeBatch() (*batch, []*proposal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls, size := c.nextCalls()
	n := 0
	for n < len(c.proposals) && (n == 0 || size < maxEntryBytes) && !(c.cfg.NoBatching && n+len(calls) > 0) {
		size += len(c.proposals[n].batch)
		n++
	}
	proposals := c.proposals[:n:n]
	c.proposals = c.proposals[n:]
	if len(c.calls) > 0 || len(c.proposals) > 0 {
		c.signal()
	}
	if len(calls) == 0 {
		return nil, proposals
	}
	return c.seal(calls), proposals
}

// launch proposes what next returned as one entry, if this node leads. It refuses proposals that have waited beyond
// their bound, and returns the others. Those come first in the entry: renewals among them may have waited, and this
// node's own batch may hold an eviction.
func (c *committer) launch(own *batch, proposals []*proposal) (*entry, []*proposal, error) {
	l, now := c.cfg.Leadership.Own(), time.Now()
	if l == nil {
		return nil, proposals, fmt.Errorf("%w: %w", port.ErrNotSent, membership.ErrNotLeader)
	}
	encoded := make([][]byte, 0, 1+len(proposals))
	kept := proposals[:0]
	for _, p := range proposals {
		if !l.Permits(p.bound, now) {
			c.refuse([]*proposal{p}, fmt.Errorf("%w: %w", port.ErrNotSent, errLate))
			continue
		}
		kept = append(kept, p)
		encoded = append(encoded, p.batch)
	}
	if own != nil {
		encoded = append(encoded, own.encode(c.cfg.Proposer.Level(), l.Bound(own.giveUpAt(now))))
	}
	c.mu.Lock()
	c.renewals.newest = now
	c.mu.Unlock()
	e, err := c.cfg.Proposer.Propose(encoded...) // an entry without batches does no harm
	return e, kept, err
}

// finishEntry waits for an entry that launch proposed, and gives every call its result. If this node does not lead,
// or no longer, its own batch goes to the leader.
func (c *committer) finishEntry(ctx context.Context, own *batch, proposals []*proposal, e *entry, err error) {
	var results []fsm.BatchResult
	if err == nil {
		results, err = e.Results(ctx)
	}
	if err != nil {
		c.refuse(proposals, err)
		if own != nil {
			if !errors.Is(err, port.ErrNotSent) {
				own.sent = e.started
			}
			c.sendUntilResult(ctx, own)
		}
		return
	}
	for i, p := range proposals {
		p.res = results[i]
		close(p.done)
	}
	switch {
	case own == nil:
	case results[len(proposals)].Late:
		c.sendUntilResult(ctx, own)
	default:
		c.finish(own, results[len(proposals)])
	}
}

// lookAgain is the pause between looks at waiting calls.
const lookAgain = store.NoLeaderWait / 40

// Sweep ends calls that found no slot in time: they certainly took no effect. It looks more often while there are
// calls.
func (c *committer) Sweep(ctx context.Context) {
	for ctx.Err() == nil {
		now, pause := time.Now(), expiry.ClockInterval
		c.pauses.beat(now)
		before := now.Add(-c.noLeader())
		c.mu.Lock()
		for _, k := range c.calls {
			if !k.arrived.Before(before) {
				break // the queue is in order of arrival
			}
			k.abandon(registry.ErrNoLeader)
		}
		if len(c.calls) > 0 {
			pause = lookAgain
		}
		c.mu.Unlock()
		wait.Pause(ctx, nil, pause)
	}
}
