package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

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
