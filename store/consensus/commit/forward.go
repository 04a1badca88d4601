package commit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/leadership"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
)

// submit commits a batch through the node that leads now; the time limit and a change of leader end it.
func (c *Committer) submit(ctx context.Context, b *batch) (fsm.BatchResult, error) {
	until := b.giveUpAt(time.Now())
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if l := c.cfg.Leadership.Own(); l != nil {
		return c.commitHere(ctx, b.encode(l.Bound(until)))
	}
	leader := c.cfg.Leadership.Other()
	if leader == nil {
		return fsm.BatchResult{}, fmt.Errorf("%w: %w", port.ErrNotSent, registry.ErrNoLeader)
	}
	defer context.AfterFunc(leader.Replaced, cancel)()
	address := c.cfg.Nodes.DialAddress(leader.ID, leader.Address)
	before, cancel := context.WithDeadline(ctx, b.deadline())
	defer cancel()
	if err := c.cfg.Nodes.Reach(before, address); err != nil {
		return fsm.BatchResult{}, err
	}
	t, err := c.cfg.TermsOf(before, leader, address)
	if err != nil {
		return fsm.BatchResult{}, err
	}
	c.cfg.Metrics.Forwarded.Inc()
	res, err := c.commitAt(ctx, address, b.encode(t.Bound(until)))
	if errors.Is(err, leadership.ErrNotLeader) || errors.Is(err, errLate) {
		c.cfg.Leadership.ClearTerms(t) // it may lead again, in another leadership
	}
	return res, err
}

func (c *Committer) commitHere(ctx context.Context, encoded []byte) (fsm.BatchResult, error) {
	e, err := c.cfg.Proposer.Propose(encoded)
	if err != nil {
		return fsm.BatchResult{}, err
	}
	results, err := e.Results(ctx)
	if err != nil {
		return fsm.BatchResult{}, err
	}
	return results[0], lateness(results[0])
}

// CommitReply and the other types of the node channel are exported because net/rpc asks for it; they
// are of no use outside this package.
type CommitReply struct {
	Answer  port.Outcome
	Results []byte // fsm.AppendResults

	// With port.Unreadable:
	Reason string
	Item   int  // the first operation that could not be read, from 1; 0: it is not known
	All    bool // no batch of this format version can be read
}

// Serve commits a batch of another node, on the leader: the call Node.Commit.
func (c *Committer) Serve(encoded []byte, reply *CommitReply) error {
	id, _, err := fsm.ParseBatch(encoded)
	if err != nil {
		c.unreadable(err, reply)
		return nil
	}
	if l := c.cfg.Leadership.Own(); l == nil || !l.Permits(id.Bound, time.Now()) {
		reply.Answer = port.NotLeader // not in the leadership that the batch is for, or no longer
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), store.ResultWait)
	defer cancel()
	res, err := c.propose(ctx, encoded, id.Bound)
	switch {
	case errors.Is(err, port.ErrNotSent):
		reply.Answer = port.NotLeader
	case err != nil:
		reply.Answer = port.Unknown
	default:
		reply.Results = fsm.AppendResults(nil, res)
	}
	return nil
}

// commitAt commits a batch at another node.
func (c *Committer) commitAt(ctx context.Context, address string, encoded []byte) (fsm.BatchResult, error) {
	reply, err := port.Invoke[CommitReply](ctx, c.cfg.Nodes, address, "Node.Commit", encoded)
	switch {
	case err != nil:
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			c.cfg.Nodes.HangUp(address) // what is still on its way must not arrive
		}
		return fsm.BatchResult{}, err
	case reply.Answer == port.NotLeader:
		return fsm.BatchResult{}, fmt.Errorf("%w: %s: %w", port.ErrNotSent, address, leadership.ErrNotLeader)
	case reply.Answer == port.Unreadable:
		return fsm.BatchResult{}, fmt.Errorf("%s: %w", address, unreadOf(reply))
	case reply.Answer != port.OK:
		return fsm.BatchResult{}, fmt.Errorf("%s: %w", address, registry.ErrUnknownOutcome)
	}
	res, err := fsm.ParseResults(reply.Results)
	if err == nil {
		err = lateness(res)
	}
	return res, err
}

// unreadOf is the error that the reply of a leader stands for.
func unreadOf(reply CommitReply) error {
	return &unread{reason: reply.Reason, item: reply.Item - 1, all: reply.All}
}

// unreadable makes the reply to a batch that this node cannot read. Only the leader's word counts: any other node
// says as usual that it does not lead.
func (c *Committer) unreadable(err error, reply *CommitReply) {
	if c.cfg.Leadership.Own() == nil {
		reply.Answer = port.NotLeader
		return
	}
	reply.Answer, reply.Reason = port.Unreadable, err.Error()
	reply.All = errors.Is(err, fsm.ErrNewerVersion)
	var at *fsm.ItemError
	if errors.As(err, &at) {
		reply.Item = at.Item + 1
	}
}

// lateness is the error of a batch that the state machine found to be late: that copy of it certainly
// had no effect.
func lateness(res fsm.BatchResult) error {
	if res.Late {
		return fmt.Errorf("%w: %w", port.ErrNotSent, errLate)
	}
	return nil
}

// errLate: a copy of a batch came after its bound.
var errLate = errors.New("after its time")
