package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

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

// pipelineLimit is how long the handing over of one request may take: longer than an answer may, after
// which the connection is given up anyway.
const pipelineLimit = transportTimeout + time.Second

// transport is hashicorp/raft's, whose pipelines end by themselves where they would hang. When a follower
// refuses a request, raft stops to read the answers of the pipeline; a sender that waits at that moment to
// hand over its next request then waits for ever, with the follower left behind and the node unable to
// stop (pipelineDecode in raft's replication.go, AppendEntries in net_transport.go).
//
// It also passes on to Raft's main loop what other nodes ask, so that this node can ask as well (loop.go), has
// entries sent to a follower as soon as the follower answers heartbeats again, and lets nobody but the main loop
// raise the term. The main loop takes the snapshot of a leader as it comes, and meanwhile neither votes nor looks
// for another leader: from one that hangs in the middle it would wait for the rest without end.
type transport struct {
	*raft.NetworkTransport
	net     *network
	closing context.Context               // ends when the node stops
	rpcs    chan raft.RPC                 // to the main loop
	term    atomic.Pointer[func() uint64] // Raft's own; nil: not known yet
	heard   sync.Map                      // *broadcast by raft.ServerID: fires when the server answered a heartbeat
}

// Consumer implements raft.Transport.
func (t *transport) Consumer() <-chan raft.RPC { return t.rpcs }

// passOn passes requests on to the main loop until the node stops.
func (t *transport) passOn() {
	for {
		select {
		case rpc := <-t.NetworkTransport.Consumer():
			if install, ok := rpc.Command.(*raft.InstallSnapshotRequest); ok {
				rpc.Reader = snapshotReader{rpc.Reader, t.net, string(install.ID)}
			}
			select {
			case t.rpcs <- rpc:
			case <-t.closing.Done():
				return
			}
		case <-t.closing.Done():
			return
		}
	}
}

// snapshotReader reads what a leader sends of a snapshot.
type snapshotReader struct {
	io.Reader
	net    *network
	leader string
}

// Read implements io.Reader.
func (r snapshotReader) Read(p []byte) (int, error) {
	hung := time.AfterFunc(r.net.patience, func() { r.net.hangUpOn(r.leader) })
	defer hung.Stop()
	return r.Reader.Read(p)
}

// SetHeartbeatHandler implements raft.Transport. Raft answers heartbeats beside its main loop, so that a slow disk
// does not look like a follower that is gone, and one of a new term sets the term there: at the same moment the
// main loop may set an earlier one, of a leader that was late, and the term falls (appendEntries in raft.go). So
// heartbeats of a term that is new go through the main loop.
func (t *transport) SetHeartbeatHandler(handle func(raft.RPC)) {
	t.NetworkTransport.SetHeartbeatHandler(func(rpc raft.RPC) {
		now := t.term.Load()
		if a, ok := rpc.Command.(*raft.AppendEntriesRequest); !ok || now != nil && a.Term <= (*now)() {
			handle(rpc)
			return
		}
		select {
		case t.rpcs <- rpc:
		case <-t.closing.Done():
			rpc.Respond(nil, raft.ErrTransportShutdown)
		}
	})
}

// silentLimit is how long the failure of one request may be held back. It is bounded because Raft sees only
// afterwards that its leadership is over, or that the follower was removed.
const silentLimit = time.Minute

// AppendEntries implements raft.Transport. After each failure to send entries Raft waits twice as long, up to
// 10 s: a follower that comes back would get nothing for as long as it was away (replicateTo in replication.go).
// Heartbeats go on twice a second at least. So a failure counts, once, when the follower answers one.
func (t *transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	bound(args)
	answered, _ := t.heard.LoadOrStore(id, new(broadcast))
	next := answered.(*broadcast).wait()
	err := t.NetworkTransport.AppendEntries(id, target, args, resp)
	switch heartbeat := isHeartbeat(args); {
	case heartbeat && err == nil:
		answered.(*broadcast).fire()
	case !heartbeat && err != nil:
		pause(t.closing, next, silentLimit)
	}
	return err
}

// isHeartbeat tells heartbeats as Raft does itself (handleCommand in net_transport.go).
func isHeartbeat(args *raft.AppendEntriesRequest) bool {
	return args.PrevLogEntry == 0 && args.PrevLogTerm == 0 && len(args.Entries) == 0 && args.LeaderCommitIndex == 0
}

// bound leaves to the next request the entries for which this one has no room. Raft, which counts entries and
// not bytes, takes from the request afterwards how far the follower has come (updateLastAppended and
// pipelineSend in replication.go).
func bound(args *raft.AppendEntriesRequest) { args.Entries = args.Entries[:fitting(args.Entries)] }

// AppendEntriesPipeline implements raft.Transport.
func (t *transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	p, err := t.NetworkTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	return newPipeline(t.closing, p), nil
}

// pipeline is a pipeline that nobody waits in for longer than pipelineLimit.
type pipeline struct {
	raft.AppendPipeline
	detach func() bool // from the context that closes it
}

func newPipeline(closing context.Context, p raft.AppendPipeline) *pipeline {
	return &pipeline{AppendPipeline: p, detach: context.AfterFunc(closing, func() { p.Close() })}
}

// AppendEntries implements raft.AppendPipeline.
func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	hung := time.AfterFunc(pipelineLimit, func() { p.Close() })
	defer hung.Stop()
	bound(args)
	return p.AppendPipeline.AppendEntries(args, resp)
}

// Close implements raft.AppendPipeline.
func (p *pipeline) Close() error {
	p.detach()
	return p.AppendPipeline.Close()
}
