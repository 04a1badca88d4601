package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Limits of the group commit.
const (
	maxBatchBytes = 256 << 10 // a batch is closed when it is this large
	maxOpBytes    = 1 << 20   // one operation may be as large as this
	maxEntryBytes = 1 << 20   // batches that share an entry

	// noLeaderWait is how long a write that was not sent waits for a leader. Eureka's clients give
	// up after 8 s and try another server, so an early, certain "no" serves them better.
	noLeaderWait = time.Second
	// answerWait is how long a write that was sent waits for its answer.
	answerWait = 4 * time.Second
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

	mu        sync.Mutex
	closed    bool
	calls     []*call
	proposals []*proposal
	seq       uint64
	open      map[uint64]struct{} // numbers of batches not answered yet
}

// call is one Apply of this node.
type call struct {
	items   []fsm.Item
	size    int
	arrived time.Time
	state   atomic.Int32
	done    chan struct{}
	results []registry.Result
	err     error
}

// States of a call. Whoever moves it out of queued decides what becomes of it.
const (
	queued int32 = iota
	taken
	abandoned
)

// proposal is a batch that another node sent to this one, the leader.
type proposal struct {
	batch []byte
	done  chan struct{}
	res   fsm.BatchResult
	err   error
}

// batch is a number of calls on their way.
type batch struct {
	calls   []*call
	seq     uint64
	encoded []byte
	oldest  time.Time // arrival of the call that has waited longest
	sent    time.Time // when it was first sent; zero: it certainly never was
}

// deadline is when the callers of a batch are told that it failed or that nobody knows.
func (b *batch) deadline() time.Time {
	if b.sent.IsZero() {
		return b.oldest.Add(noLeaderWait)
	}
	return b.sent.Add(answerWait)
}

func newCommitter(s *Raft) *committer {
	return &committer{
		s:     s,
		slots: make(chan struct{}, s.cfg.InFlight),
		wake:  make(chan struct{}, 1),
		open:  map[uint64]struct{}{},
	}
}

// Apply implements registry.Service.
func (s *Raft) Apply(ctx context.Context, origin registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	items := make([]fsm.Item, len(ops))
	for i, op := range ops {
		items[i] = fsm.Item{Origin: origin, Op: s.shorten(op)}
	}
	results, err := s.applyItems(ctx, items)
	if err != nil {
		return nil, fmt.Errorf("apply %d operations: %w", len(ops), err)
	}
	return s.resendByName(ctx, items, ops, results)
}

// shorten replaces the name of a renewal by the lease's handle, where this node knows one.
func (s *Raft) shorten(op registry.Op) registry.Op {
	renew, ok := op.(registry.Renew)
	if !ok || renew.Overridden != registry.Unknown {
		return op
	}
	if l, ok := s.machine.View().Lease(renew.Key); ok {
		renew.Handle = l.Handle
		return renew
	}
	return op
}

// resendByName repeats, once and by name, the renewals whose handle turned out to be dead: this
// node's view was behind.
func (s *Raft) resendByName(ctx context.Context, items []fsm.Item, ops []registry.Op, results []registry.Result) ([]registry.Result, error) {
	var again []fsm.Item
	var where []int
	for i, r := range results {
		if r.Outcome == registry.GoneHandle {
			again = append(again, fsm.Item{Origin: items[i].Origin, Op: ops[i]})
			where = append(where, i)
		}
	}
	if len(again) == 0 {
		return results, nil
	}
	second, err := s.applyItems(ctx, again)
	if err != nil {
		return nil, fmt.Errorf("apply %d operations by name: %w", len(again), err)
	}
	for i, r := range second {
		results[where[i]] = r
	}
	return results, nil
}

// applyItems commits items in order, in as few batches as their size allows.
func (s *Raft) applyItems(ctx context.Context, items []fsm.Item) ([]registry.Result, error) {
	if len(items) == 1 {
		return s.committer.commit(ctx, items, sizeOf(items[0]))
	}
	var results []registry.Result
	for len(items) > 0 {
		n, size := 0, 0
		for n < len(items) {
			more := sizeOf(items[n])
			if n > 0 && size+more > maxBatchBytes {
				break
			}
			n, size = n+1, size+more
		}
		part, err := s.committer.commit(ctx, items[:n], size)
		if err != nil {
			return nil, err
		}
		results = append(results, part...)
		items = items[n:]
	}
	return results, nil
}

// sizeOf is the encoded size of an item, or a little more.
func sizeOf(item fsm.Item) int {
	if r, ok := item.Op.(registry.Renew); ok {
		return 24 + len(r.Key.App) + len(r.Key.ID)
	}
	return len(fsm.AppendBatch(nil, fsm.BatchID{}, []fsm.Item{item}))
}

// commit waits until items took effect, in order and in one batch.
func (c *committer) commit(ctx context.Context, items []fsm.Item, size int) ([]registry.Result, error) {
	if size > maxOpBytes {
		return nil, fmt.Errorf("%d bytes, at most %d are allowed: %w", size, maxOpBytes, registry.ErrTooLarge)
	}
	k := &call{items: items, size: size, arrived: time.Now(), done: make(chan struct{})}
	if !c.enqueue(k) {
		return nil, registry.ErrClosed
	}
	c.s.metrics.operations.Add(float64(len(items)))
	select {
	case <-k.done:
		return k.results, k.err
	case <-ctx.Done():
		if k.state.CompareAndSwap(queued, abandoned) {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%w: %w", registry.ErrUnknownOutcome, ctx.Err())
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
func (c *committer) propose(ctx context.Context, encoded []byte) (fsm.BatchResult, error) {
	p := &proposal{batch: encoded, done: make(chan struct{})}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return fsm.BatchResult{}, fmt.Errorf("%w: %w", errNotSent, registry.ErrClosed)
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
		flying.Go(func() {
			c.fly(ctx, own, proposals)
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
		own, proposals := c.take()
		if own != nil || len(proposals) > 0 {
			return own, proposals, nil
		}
	}
}

// take closes the batch that was being filled, and the proposals that may share its entry.
func (c *committer) take() (*batch, []*proposal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls, size := c.takeCalls()
	n := 0
	for n < len(c.proposals) && (n == 0 || size < maxEntryBytes) && !(c.s.cfg.NoBatching && n+len(calls) > 0) {
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

func (c *committer) takeCalls() (calls []*call, size int) {
	n := 0
	for ; n < len(c.calls); n++ {
		k := c.calls[n]
		if len(calls) > 0 && (size+k.size > maxBatchBytes || c.s.cfg.NoBatching) {
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

// seal gives a batch its number and encodes it. The caller holds mu.
func (c *committer) seal(calls []*call) *batch {
	c.seq++
	c.open[c.seq] = struct{}{}
	answered := c.seq
	for n := range c.open {
		answered = min(answered, n-1)
	}
	b := &batch{calls: calls, seq: c.seq, oldest: calls[0].arrived}
	items := make([]fsm.Item, 0, len(calls))
	for _, k := range calls {
		items = append(items, k.items...)
	}
	c.s.metrics.batch.Observe(float64(len(items)))
	b.encoded = fsm.AppendBatch(nil, fsm.BatchID{Node: c.s.id.ServerID, Boot: c.s.id.Boot, Seq: b.seq, Answered: answered}, items)
	return b
}

// fly sends what was taken and answers everybody concerned.
func (c *committer) fly(ctx context.Context, own *batch, proposals []*proposal) {
	if c.s.lead.Load() == nil {
		c.refuse(proposals, fmt.Errorf("%w: %w", errNotSent, errNotLeader))
		if own != nil {
			c.settle(ctx, own)
		}
		return
	}
	started := time.Now()
	var encoded [][]byte
	if own != nil {
		encoded = append(encoded, own.encoded)
	}
	for _, p := range proposals {
		encoded = append(encoded, p.batch)
	}
	results, err := c.s.proposeEntry(ctx, encoded...)
	if err != nil {
		c.refuse(proposals, err)
		if own != nil {
			if !errors.Is(err, errNotSent) {
				own.sent = started
			}
			c.settle(ctx, own)
		}
		return
	}
	if own != nil {
		c.finish(own, results[0])
		results = results[1:]
	}
	for i, p := range proposals {
		p.res = results[i]
		close(p.done)
	}
}

func (c *committer) refuse(proposals []*proposal, err error) {
	for _, p := range proposals {
		p.err = err
		close(p.done)
	}
}

// settle sends a batch to whoever leads, again and again under the same number, until it is
// answered or its time is up.
func (c *committer) settle(ctx context.Context, b *batch) {
	for attempt := 0; ; attempt++ {
		changed := c.s.changed.wait()
		if time.Now().After(b.deadline()) || ctx.Err() != nil {
			c.giveUp(b)
			return
		}
		if attempt > 0 {
			c.s.metrics.resent.Inc()
		}
		started := time.Now()
		res, err := c.s.submit(ctx, b)
		if err == nil {
			c.finish(b, res)
			return
		}
		if b.sent.IsZero() && !errors.Is(err, errNotSent) {
			b.sent = started
		}
		pause(ctx, changed, retryPause)
	}
}

// pause waits a little, or until woken.
func pause(ctx context.Context, woken <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-woken:
	case <-t.C:
	case <-ctx.Done():
	}
}

// finish gives every call of an answered batch its results.
func (c *committer) finish(b *batch, res fsm.BatchResult) {
	c.forget(b)
	want := 0
	for _, k := range b.calls {
		want += len(k.items)
	}
	if res.Refused || len(res.Results) != want {
		// The state machine no longer remembers the answer. That cannot happen to a batch that is
		// still open, but were it to happen, nobody could say what became of it.
		c.answer(b, registry.ErrUnknownOutcome)
		return
	}
	for _, k := range b.calls {
		k.results = res.Results[:len(k.items):len(k.items)]
		res.Results = res.Results[len(k.items):]
		close(k.done)
	}
}

// giveUp answers the calls of a batch whose time is up.
func (c *committer) giveUp(b *batch) {
	c.forget(b)
	if b.sent.IsZero() {
		c.answer(b, registry.ErrNoLeader)
		return
	}
	c.s.metrics.unknown.Add(float64(len(b.calls)))
	c.answer(b, registry.ErrUnknownOutcome)
}

func (c *committer) answer(b *batch, err error) {
	for _, k := range b.calls {
		k.err = err
		close(k.done)
	}
}

// forget counts a batch as answered: its number tells the state machine, with the next batch, that
// a late copy of it must not take effect any more.
func (c *committer) forget(b *batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, b.seq)
}

// sweep answers calls that found no slot in time: they certainly took no effect.
func (c *committer) sweep(ctx context.Context) {
	tick := time.NewTicker(noLeaderWait / 20)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			c.expire(now.Add(-noLeaderWait))
		case <-ctx.Done():
			return
		}
	}
}

func (c *committer) expire(before time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.calls {
		if !k.arrived.Before(before) {
			return // the queue is in order of arrival
		}
		if k.state.CompareAndSwap(queued, abandoned) {
			k.err = registry.ErrNoLeader
			close(k.done)
		}
	}
}

// shut answers everybody who still waits and lets nobody in any more.
func (c *committer) shut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, k := range c.calls {
		if k.state.CompareAndSwap(queued, abandoned) {
			k.err = registry.ErrClosed
			close(k.done)
		}
	}
	c.refuse(c.proposals, fmt.Errorf("%w: %w", errNotSent, registry.ErrClosed))
	c.calls, c.proposals = nil, nil
}
