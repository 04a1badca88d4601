package consensus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/wait"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/membership"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
)

// submit makes one attempt to commit a batch, here or at the node that leads. The attempt ends at the batch's time
// limit, or when another node becomes leader.
func (c *committer) submit(ctx context.Context, b *batch) (fsm.BatchResult, error) {
	until := b.giveUpAt(time.Now())
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if l := c.cfg.Leadership.Own(); l != nil {
		return c.commitHere(ctx, b.encode(c.cfg.Proposer.Level(), l.Bound(until)))
	}
	leader := c.cfg.Leadership.Other()
	if leader == nil {
		return fsm.BatchResult{}, fmt.Errorf("%w: %w", port.ErrNotSent, registry.ErrNoLeader)
	}
	defer context.AfterFunc(leader.Replaced, cancel)()
	address := c.cfg.Nodes.DialAddress(leader.ID, leader.Address)
	reachCtx, cancel := context.WithDeadline(ctx, b.deadline())
	defer cancel()
	if err := c.cfg.Nodes.Reach(reachCtx, address); err != nil {
		return fsm.BatchResult{}, err
	}
	terms, err := c.cfg.TermsOf(reachCtx, leader, address)
	if err != nil {
		return fsm.BatchResult{}, err
	}
	c.cfg.Metrics.Forwarded.Inc()
	call := callCommit
	if b.mayWait && b.sent.IsZero() {
		call = callCommitLater
	}
	// A node that has just joined has not applied yet what raised the level.
	level := max(c.cfg.Proposer.Level(), min(terms.Level, codec.Newest))
	res, err := c.commitAt(ctx, address, call, b.encode(level, terms.Bound(until)))
	if errors.Is(err, membership.ErrNotLeader) || errors.Is(err, errLate) {
		c.cfg.Leadership.ClearTerms(terms) // the leader may lead again, in another leadership
	}
	return res, err
}

// commitHere commits a batch of this node, which leads.
func (c *committer) commitHere(ctx context.Context, encoded []byte) (fsm.BatchResult, error) {
	e, err := c.cfg.Proposer.Propose(encoded)
	if err != nil {
		return fsm.BatchResult{}, err
	}
	results, err := e.Results(ctx)
	if err != nil {
		return fsm.BatchResult{}, err
	}
	return results[0], lateError(results[0])
}

// CommitReply is the reply to the call Node.Commit. Exported because net/rpc requires it.
type CommitReply struct {
	Answer  port.Outcome
	Results []byte // encoded by fsm.AppendResults

	// The fields below come with port.Unreadable.
	Reason string
	Item   int  // first operation that could not be read, counted from 1; 0 if not known
	All    bool // the leader reads no batch in this format version
}

// The calls with which a follower has the leader commit a batch. The second is for renewals that may wait; older
// leaders do not know it.
const (
	callCommit      = "Node.Commit"
	callCommitLater = "Node.CommitLater"
)

// Serve commits, at the leader, a batch of another node. With mayWait, the batch may wait to share an entry.
func (c *committer) Serve(encoded []byte, mayWait bool) CommitReply {
	id, items, err := fsm.ParseBatch(encoded)
	if err != nil {
		return c.replyUnreadable(err)
	}
	if l := c.cfg.Leadership.Own(); l == nil || !l.Permits(id.Bound, time.Now()) {
		// this node leads, but not or no longer in the leadership that the batch is for
		return CommitReply{Answer: port.NotLeader}
	}
	ctx, cancel := context.WithTimeout(context.Background(), store.ResultWait)
	defer cancel()
	p := &proposal{batch: encoded, bound: id.Bound, mayWait: mayWait, done: make(chan struct{})}
	renewals := renewalsIn(items)
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return CommitReply{Answer: port.NotLeader}
	}
	c.proposals = append(c.proposals, p)
	c.renewals.count(renewals, time.Now())
	c.signal()
	c.mu.Unlock()
	select {
	case <-p.done:
	case <-ctx.Done():
		return CommitReply{Answer: port.Unknown}
	}
	switch {
	case errors.Is(p.err, port.ErrNotSent):
		return CommitReply{Answer: port.NotLeader}
	case p.err != nil:
		return CommitReply{Answer: port.Unknown}
	}
	return CommitReply{Results: fsm.AppendResults(nil, c.cfg.Proposer.Level(), p.res)}
}

// commitAt commits a batch of this node at the node that leads, by the given call.
func (c *committer) commitAt(ctx context.Context, address, call string, encoded []byte) (fsm.BatchResult, error) {
	began := time.Now()
	reply, err := port.Invoke[CommitReply](ctx, c.cfg.Nodes, address, call, encoded)
	if errors.Is(err, port.ErrUnknownCall) {
		reply, err = port.Invoke[CommitReply](ctx, c.cfg.Nodes, address, callCommit, encoded)
	}
	switch {
	case err != nil:
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			c.cfg.Nodes.HangUp(address) // a copy that is still in the connection must not arrive
		}
		return fsm.BatchResult{}, err
	case reply.Answer == port.NotLeader:
		return fsm.BatchResult{}, fmt.Errorf("%w: %s: %w", port.ErrNotSent, address, membership.ErrNotLeader)
	case reply.Answer == port.Unreadable:
		unread := &unreadError{reason: reply.Reason, item: reply.Item - 1, all: reply.All}
		return fsm.BatchResult{}, fmt.Errorf("%s: %w", address, unread)
	case reply.Answer != port.OK:
		return fsm.BatchResult{}, fmt.Errorf("%s: %w", address, registry.ErrUnknownOutcome)
	}
	c.cfg.Metrics.Forward.Observe(time.Since(began).Seconds())
	res, err := fsm.ParseResults(reply.Results)
	if err == nil {
		err = lateError(res)
	}
	return res, err
}

// replyUnreadable makes the reply to a batch that this node cannot read. Only the leader says so: any other node
// replies as usual that it does not lead.
func (c *committer) replyUnreadable(err error) CommitReply {
	if c.cfg.Leadership.Own() == nil {
		return CommitReply{Answer: port.NotLeader}
	}
	reply := CommitReply{Answer: port.Unreadable, Reason: err.Error(), All: errors.Is(err, fsm.ErrNewerVersion)}
	if at, ok := errors.AsType[*fsm.ItemError](err); ok {
		reply.Item = at.Item + 1
	}
	return reply
}

// lateError returns the error of a batch that the state machine found to be late: that copy certainly had no effect.
// It returns nil for any other batch.
func lateError(res fsm.BatchResult) error {
	if res.Late {
		return fmt.Errorf("%w: %w", port.ErrNotSent, errLate)
	}
	return nil
}

// errLate means that a copy of a batch arrived after the bound within which it may take effect.
var errLate = errors.New("too late")

// sendUntilResult sends a batch to the node that leads, repeatedly and under the same number, until it has a result
// or its time is up.
func (c *committer) sendUntilResult(ctx context.Context, b *batch) {
	for attempt := 0; ; attempt++ {
		changed := c.cfg.Leadership.Changed()
		if !time.Now().Before(b.deadline()) || ctx.Err() != nil {
			c.giveUp(b)
			return
		}
		if attempt > 0 {
			c.cfg.Metrics.Resent.Inc()
		}
		started := time.Now()
		res, err := c.submit(ctx, b)
		if err == nil {
			c.finish(b, res)
			return
		}
		if u, ok := errors.AsType[*unreadError](err); ok && b.sent.IsZero() {
			c.divide(ctx, b, u) // after an attempt of unknown outcome it could take effect twice
			return
		}
		if b.sent.IsZero() && !errors.Is(err, port.ErrNotSent) {
			b.sent = started
		}
		if b.sent.IsZero() {
			b.release()
		}
		wait.Pause(ctx, changed, store.RetryPause)
		if b.sent.IsZero() && !b.regain() {
			c.closeNumber(b)
			return
		}
	}
}

// finish gives every call of a batch its results.
func (c *committer) finish(b *batch, res fsm.BatchResult) {
	c.closeNumber(b)
	want := 0
	for _, k := range b.calls {
		want += len(k.items)
	}
	if res.Refused || res.Len() != want || (res.KV != nil && len(res.KV) != want) {
		// The state machine no longer remembers the result. That cannot happen to a batch that is still open; if it
		// did, the outcome would be unknown.
		c.failCalls(b, registry.ErrUnknownOutcome)
		return
	}
	for _, k := range b.calls {
		k.results = res.Cut(len(k.items))
		close(k.done)
	}
}

// giveUp ends the calls of a batch whose time is up.
func (c *committer) giveUp(b *batch) {
	c.closeNumber(b)
	if b.sent.IsZero() {
		c.failCalls(b, registry.ErrNoLeader)
		return
	}
	c.cfg.Metrics.Unknown.Add(float64(len(b.calls)))
	c.failCalls(b, registry.ErrUnknownOutcome)
}

func (c *committer) failCalls(b *batch, err error) {
	for _, k := range b.calls {
		k.err = err
		close(k.done)
	}
}

// closeNumber counts a batch as finished: with the next batch, its number tells the state machine that a late copy
// must not take effect.
func (c *committer) closeNumber(b *batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, b.id.Seq)
}

// divide sends the calls of a batch that the leader could not read again, in smaller batches with their own numbers:
// nothing was ever proposed under this batch's number. They go one after the other, because the state machine
// remembers the results of 64 open numbers per node.
func (c *committer) divide(ctx context.Context, b *batch, u *unreadError) {
	c.closeNumber(b)
	if u.all || len(b.calls) == 1 {
		c.failCalls(b, fmt.Errorf("%w: %s", registry.ErrUnreadable, u.reason))
		return
	}
	for _, calls := range b.around(u.item) {
		c.sendUntilResult(ctx, c.reseal(calls))
	}
}

func (c *committer) reseal(calls []*call) *batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seal(calls)
}
