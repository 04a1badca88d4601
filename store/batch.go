package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// batch is a number of calls on their way.
type batch struct {
	calls  []*call
	id     fsm.BatchID
	items  []fsm.Item
	wait   time.Duration // for a leader
	oldest time.Time     // arrival of the call that has waited longest
	sent   time.Time     // when it was first sent; zero: it certainly never was
}

// deadline is when the callers of a batch are told that it failed or that nobody knows.
func (b *batch) deadline() time.Time {
	if b.sent.IsZero() {
		return b.oldest.Add(b.wait)
	}
	return b.sent.Add(answerWait)
}

// giveUpAt is when the answer to a batch that is sent now is waited for no longer.
func (b *batch) giveUpAt(now time.Time) time.Time {
	if b.sent.IsZero() {
		return now.Add(answerWait)
	}
	return b.sent.Add(answerWait)
}

// encode encodes a batch for one attempt to send it.
func (b *batch) encode(bound fsm.Bound) []byte {
	id := b.id
	id.Bound = bound
	return fsm.AppendBatch(nil, id, b.items)
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
		var u *unread
		if errors.As(err, &u) && b.sent.IsZero() {
			c.divide(ctx, b, u) // after an attempt of unknown outcome it could take effect twice
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
	if res.Refused || len(res.Results) != want || (res.KV != nil && len(res.KV) != want) {
		// The state machine no longer remembers the answer. That cannot happen to a batch that is
		// still open, but were it to happen, nobody could say what became of it.
		c.answer(b, registry.ErrUnknownOutcome)
		return
	}
	all := answers{registry: res.Results, kv: res.KV}
	for _, k := range b.calls {
		k.results = all.cut(len(k.items))
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
	delete(c.open, b.id.Seq)
}

// A leader that runs another build may not know an operation that a follower sends, and can then read
// nothing that stands behind it in the batch. It proposes nothing of such a batch and says so. The
// follower knows where one call ends and the next begins: it divides the batch until the call that
// cannot be read is alone, and refuses that one.

// unread is the error of a batch that the leader could not read. It proposed nothing of it.
type unread struct {
	reason string
	item   int  // the first one that it could not read; -1: it cannot say
	all    bool // it reads no batch of this node's format version
}

// Error implements error.
func (u *unread) Error() string { return "the leader cannot read the batch: " + u.reason }

// Unwrap makes it one of the errors after which a batch certainly had no effect.
func (u *unread) Unwrap() error { return errNotSent }

// unreadOf is the error that the answer of a leader stands for.
func unreadOf(reply CommitReply) error {
	return &unread{reason: reply.Reason, item: reply.Item - 1, all: reply.All}
}

// unreadable answers a batch that this node cannot read. Only the leader's word counts: any other node
// says as usual that it does not lead.
func (n *nodeCalls) unreadable(err error, reply *CommitReply) {
	if n.s.lead.Load() == nil {
		reply.Answer = answerNotLeader
		return
	}
	reply.Answer, reply.Reason = answerUnreadable, err.Error()
	reply.All = errors.Is(err, fsm.ErrNewerVersion)
	var at *fsm.ItemError
	if errors.As(err, &at) {
		reply.Item = at.Item + 1
	}
}

// divide sends the calls of a batch that the leader could not read again, in smaller batches with numbers
// of their own: nothing was ever proposed under the number of this one. One goes after the other, because
// the state machine remembers the answers to 64 unanswered numbers of a node.
func (c *committer) divide(ctx context.Context, b *batch, u *unread) {
	c.forget(b)
	if u.all || len(b.calls) == 1 {
		c.answer(b, fmt.Errorf("%w: %s", registry.ErrUnreadable, u.reason))
		return
	}
	for _, calls := range b.around(u.item) {
		c.settle(ctx, c.reseal(calls))
	}
}

func (c *committer) reseal(calls []*call) *batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seal(calls)
}

// around divides the calls of a batch, of which there are two at least: into those before the call of an
// item, that call, and those behind it; into halves if no call has the item. That the leader stumbled over
// an item is a hint: what it takes for the beginning of that one can be the end of the one before.
func (b *batch) around(item int) [][]*call {
	from := len(b.calls) / 2
	to := from
	seen := 0
	for i, k := range b.calls {
		if seen <= item && item < seen+len(k.items) {
			from, to = i, i+1
			break
		}
		seen += len(k.items)
	}
	var parts [][]*call
	for _, part := range [][]*call{b.calls[:from], b.calls[from:to], b.calls[to:]} {
		if len(part) > 0 {
			parts = append(parts, part)
		}
	}
	return parts
}
