package store

import (
	"context"
	"errors"
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
