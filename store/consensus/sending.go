package consensus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/wait"
)

// submit commits a batch through whoever leads now; the time limit and a change of leader end it.
func (s *Raft) submit(ctx context.Context, b *batch) (fsm.BatchResult, error) {
	until := b.giveUpAt(time.Now())
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if l := s.lead.Load(); l != nil {
		return s.commitHere(ctx, b.encode(l.bound(until)))
	}
	leader := s.leader.Load()
	if leader == nil || leader.id == s.id.ServerID {
		return fsm.BatchResult{}, fmt.Errorf("%w: %w", port.ErrNotSent, registry.ErrNoLeader)
	}
	defer context.AfterFunc(leader.replaced, cancel)()
	address := s.peers.DialAddress(leader.id, leader.address)
	before, cancel := context.WithDeadline(ctx, b.deadline())
	defer cancel()
	if err := s.peers.Reach(before, address); err != nil {
		return fsm.BatchResult{}, err
	}
	t, err := s.termsOf(before, leader, address)
	if err != nil {
		return fsm.BatchResult{}, err
	}
	s.metrics.forwarded.Inc()
	res, err := s.commitAt(ctx, address, b.encode(t.bound(until)))
	if errors.Is(err, errNotLeader) || errors.Is(err, errLate) {
		s.terms.CompareAndSwap(t, nil) // it may lead again, in another leadership
	}
	return res, err
}

func (s *Raft) commitHere(ctx context.Context, encoded []byte) (fsm.BatchResult, error) {
	e, err := s.propose(encoded)
	if err != nil {
		return fsm.BatchResult{}, err
	}
	results, err := e.results(ctx)
	if err != nil {
		return fsm.BatchResult{}, err
	}
	return results[0], lateness(results[0])
}

// sendUntilAnswered sends a batch to the node that leads, again and again under the same number, until it is
// answered or its time is up.
func (c *committer) sendUntilAnswered(ctx context.Context, b *batch) {
	for attempt := 0; ; attempt++ {
		changed := c.s.changed.Wait()
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
		if b.sent.IsZero() && !errors.Is(err, port.ErrNotSent) {
			b.sent = started
		}
		wait.Pause(ctx, changed, retryPause)
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
		c.failCalls(b, registry.ErrUnknownOutcome)
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
		c.failCalls(b, registry.ErrNoLeader)
		return
	}
	c.s.metrics.unknown.Add(float64(len(b.calls)))
	c.failCalls(b, registry.ErrUnknownOutcome)
}

func (c *committer) failCalls(b *batch, err error) {
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

// divide sends the calls of a batch that the leader could not read again, in smaller batches with numbers
// of their own: nothing was ever proposed under the number of this one. One goes after the other, because
// the state machine remembers the answers to 64 unanswered numbers of a node.
func (c *committer) divide(ctx context.Context, b *batch, u *unread) {
	c.forget(b)
	if u.all || len(b.calls) == 1 {
		c.failCalls(b, fmt.Errorf("%w: %s", registry.ErrUnreadable, u.reason))
		return
	}
	for _, calls := range b.around(u.item) {
		c.sendUntilAnswered(ctx, c.reseal(calls))
	}
}

func (c *committer) reseal(calls []*call) *batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seal(calls)
}
