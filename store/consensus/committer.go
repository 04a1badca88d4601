package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/wait"
)

// Limits of the group commit.
const (
	maxBatchBytes = 256 << 10 // a batch is closed when it is this large
	maxEntryBytes = 1 << 20   // batches that share an entry

	// noLeaderWait is how long a write that was not sent waits for a leader: its caller is told "no"
	// within a second. Eureka's clients give up after 8 s and try another server, so an early,
	// certain "no" serves them better.
	noLeaderWait = 850 * time.Millisecond
	// answerWait is how long a write that was sent waits for its answer: its caller is told "unknown"
	// within four seconds.
	answerWait = 3800 * time.Millisecond
	// wakeGrace is how long a write waits that comes when the process was paused: whoever sent it may
	// have given up meanwhile, and the server needs a moment to see that the connection is closed.
	wakeGrace = 100 * time.Millisecond
	// retryPause is the pause between two attempts to send a batch.
	retryPause = 20 * time.Millisecond
)

// committer is the group commit: all writes of this node go through it. What waits when a slot
// frees becomes one batch; there is no timer. The shape is that of bbolt's DB.Batch, with the slots
// of a pipeline: while one entry is in the leader's store, the one before it is in the followers'.
type committer struct {
	s     *Raft
	slots chan struct{} // a token per entry in flight
	wake  chan struct{} // holds a token while something waits
	// patience is how long renewals wait for company; 0: not at all.
	patience time.Duration
	pulse    pulse

	mu        sync.Mutex
	closed    bool
	calls     []*call
	proposals []*proposal
	gathered  []*call // renewals that wait for company, see gather
	seq       uint64
	open      map[uint64]struct{} // numbers of batches not answered yet
}

func newCommitter(s *Raft) *committer {
	c := &committer{
		s:        s,
		slots:    make(chan struct{}, s.cfg.InFlight),
		wake:     make(chan struct{}, 1),
		patience: gatherFor,
		open:     map[uint64]struct{}{},
	}
	if s.cfg.Test.NoBatching {
		c.patience = 0
	}
	return c
}

// commit waits until items took effect, in order and in one batch.
func (c *committer) commit(ctx context.Context, items []fsm.Item, size int) (answers, error) {
	if grace := c.pulse.grace(time.Now()); grace > 0 {
		wait.Pause(ctx, nil, grace)
		if ctx.Err() != nil {
			return answers{}, ctx.Err()
		}
	}
	k := &call{items: items, size: size, arrived: time.Now(), done: make(chan struct{})}
	if !c.enqueue(k) {
		return answers{}, registry.ErrClosed
	}
	return c.await(ctx, k)
}

// await waits for the answer to a call that was let in.
func (c *committer) await(ctx context.Context, k *call) (answers, error) {
	c.s.metrics.operations.Add(float64(len(k.items)))
	select {
	case <-k.done:
		return k.results, k.err
	case <-ctx.Done():
		if k.state.CompareAndSwap(queued, abandoned) {
			return answers{}, ctx.Err()
		}
		return answers{}, fmt.Errorf("%w: %w", registry.ErrUnknownOutcome, ctx.Err())
	}
}

func (c *committer) enqueue(k *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.calls = append(c.calls, k)
	c.signal()
	return true
}

// signal says that something waits. The caller holds mu.
func (c *committer) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// propose commits a batch that another node sent, on the established leader.
func (c *committer) propose(ctx context.Context, encoded []byte, bound fsm.Bound) (fsm.BatchResult, error) {
	p := &proposal{batch: encoded, bound: bound, done: make(chan struct{})}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return fsm.BatchResult{}, fmt.Errorf("%w: %w", port.ErrNotSent, registry.ErrClosed)
	}
	c.proposals = append(c.proposals, p)
	c.signal()
	c.mu.Unlock()
	select {
	case <-p.done:
		return p.res, p.err
	case <-ctx.Done():
		return fsm.BatchResult{}, ctx.Err()
	}
}

// run fills the slots until ctx ends, and then answers whoever still waits.
func (c *committer) run(ctx context.Context) {
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
		flying.Go(func() {
			c.finishEntry(ctx, own, proposals, e, err)
			<-c.slots
		})
	}
}

// next waits until there is something to send, and takes it.
func (c *committer) next(ctx context.Context) (*batch, []*proposal, error) {
	for {
		select {
		case <-c.wake:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
		own, proposals := c.closeBatch()
		if own != nil || len(proposals) > 0 {
			return own, proposals, nil
		}
	}
}

// closeBatch closes the batch that was being filled, and the proposals that may share its entry.
func (c *committer) closeBatch() (*batch, []*proposal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls, size := c.nextCalls()
	n := 0
	for n < len(c.proposals) && (n == 0 || size < maxEntryBytes) && !(c.s.cfg.Test.NoBatching && n+len(calls) > 0) {
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

func (c *committer) nextCalls() (calls []*call, size int) {
	n := 0
	late := time.Now().Add(-c.s.noLeader())
	for ; n < len(c.calls); n++ {
		k := c.calls[n]
		if k.arrived.Before(late) {
			c.abandon(k) // before sweep has found it: the process was paused
			continue
		}
		if len(calls) > 0 && (size+k.size > maxBatchBytes || c.s.cfg.Test.NoBatching) {
			break
		}
		if k.state.CompareAndSwap(queued, taken) {
			calls = append(calls, k)
			size += k.size
		}
	}
	rest := copy(c.calls, c.calls[n:])
	clear(c.calls[rest:])
	c.calls = c.calls[:rest]
	return calls, size
}

// launch proposes what was taken as one entry, if this node leads. Proposals that have waited beyond
// their bound are refused; it returns the others.
func (c *committer) launch(own *batch, proposals []*proposal) (*entry, []*proposal, error) {
	l, now := c.s.lead.Load(), time.Now()
	if l == nil {
		return nil, proposals, fmt.Errorf("%w: %w", port.ErrNotSent, errNotLeader)
	}
	encoded := make([][]byte, 0, 1+len(proposals))
	if own != nil {
		encoded = append(encoded, own.encode(l.bound(own.giveUpAt(now))))
	}
	kept := proposals[:0]
	for _, p := range proposals {
		if !l.permits(p.bound, now) {
			c.refuse([]*proposal{p}, fmt.Errorf("%w: %w", port.ErrNotSent, errLate))
			continue
		}
		kept = append(kept, p)
		encoded = append(encoded, p.batch)
	}
	e, err := c.s.propose(encoded...) // an entry without batches does no harm
	return e, kept, err
}

// finishEntry waits for an entry that launch proposed, and answers everybody concerned. This node's own
// batch goes to the leader if this node is not (any longer).
func (c *committer) finishEntry(ctx context.Context, own *batch, proposals []*proposal, e *entry, err error) {
	var results []fsm.BatchResult
	if err == nil {
		results, err = e.results(ctx)
	}
	if err != nil {
		c.refuse(proposals, err)
		if own != nil {
			if !errors.Is(err, port.ErrNotSent) {
				own.sent = e.started
			}
			c.sendUntilAnswered(ctx, own)
		}
		return
	}
	for i, p := range proposals {
		p.res = results[len(results)-len(proposals)+i]
		close(p.done)
	}
	switch {
	case own == nil:
	case results[0].Late:
		c.sendUntilAnswered(ctx, own)
	default:
		c.finish(own, results[0])
	}
}

func (c *committer) refuse(proposals []*proposal, err error) {
	for _, p := range proposals {
		p.err = err
		close(p.done)
	}
}

// sweep answers calls that found no slot in time: they certainly took no effect.
func (c *committer) sweep(ctx context.Context) {
	wait.Every(ctx, noLeaderWait/40, func(now time.Time) {
		c.pulse.beat(now)
		c.expire(now.Add(-c.s.noLeader()))
	})
}

func (c *committer) expire(before time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.calls {
		if !k.arrived.Before(before) {
			return // the queue is in order of arrival
		}
		c.abandon(k)
	}
}

// abandon answers a call that certainly takes no effect.
func (c *committer) abandon(k *call) {
	if k.state.CompareAndSwap(queued, abandoned) {
		k.err = registry.ErrNoLeader
		close(k.done)
	}
}

// shut answers everybody who still waits and lets nobody in any more.
func (c *committer) shut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, k := range append(c.calls, c.gathered...) {
		if k.state.CompareAndSwap(queued, abandoned) {
			k.err = registry.ErrClosed
			close(k.done)
		}
	}
	c.refuse(c.proposals, fmt.Errorf("%w: %w", port.ErrNotSent, registry.ErrClosed))
	c.calls, c.gathered, c.proposals = nil, nil, nil
}

// seal gives a batch its number. The caller holds mu.
func (c *committer) seal(calls []*call) *batch {
	c.seq++
	c.open[c.seq] = struct{}{}
	answered := c.seq
	for n := range c.open {
		answered = min(answered, n-1)
	}
	b := &batch{
		calls: calls, wait: c.s.noLeader(), oldest: calls[0].arrived, items: make([]fsm.Item, 0, len(calls)),
		id: fsm.BatchID{Node: c.s.id.ServerID, Boot: c.s.id.Boot, Seq: c.seq, Answered: answered},
	}
	for _, k := range calls {
		b.items = append(b.items, k.items...)
	}
	c.s.metrics.batch.Observe(float64(len(b.items)))
	return b
}
