package raftio

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/internal/wait"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
)

// pipelineLimit bounds the hand-over of one request: longer than a reply may take, after which the connection is
// dropped anyway.
const pipelineLimit = port.RaftTimeout + time.Second

// Transport is hashicorp/raft's, with pipelines that end where they would otherwise hang. When a follower refuses a
// request, raft stops reading the replies of the pipeline; a sender that is handing over its next request at that
// moment then waits forever, with the follower left behind and the node unable to stop (pipelineDecode in raft's
// replication.go, AppendEntries in net_transport.go).
//
// It also passes what other nodes ask on to Raft's main loop, so that this node can ask as well (loop.go), has
// entries sent to a follower as soon as the follower replies to heartbeats again, leaves out requests that tell a
// follower nothing (see pipeline), and lets only the main loop change the term. The main loop receives a leader's
// snapshot as it comes, and meanwhile neither votes nor looks for another leader: if the leader hangs in the middle,
// it would wait for the rest forever.
type Transport struct {
	*raft.NetworkTransport
	net       *port.Port
	Patience  time.Duration // with a leader that stops sending in the middle of a snapshot
	during    During
	closing   context.Context // ends when the node stops
	rpcs      chan raft.RPC   // to the main loop
	followers sync.Map        // *follower by raft.ServerID
	received  atomic.Uint64   // parts of snapshots received from leaders
	news      wait.Broadcast  // fires when there may be something to tell followers
	leads     atomic.Pointer[func(term uint64) bool]
	applied   atomic.Pointer[func() uint64]
}

// follower is what heartbeats tell about a server.
type follower struct {
	replied wait.Broadcast // fires when the server has replied to one
	failed  atomic.Uint64  // number of heartbeats without a reply
}

func (t *Transport) follower(id raft.ServerID) *follower {
	f, _ := t.followers.LoadOrStore(id, new(follower))
	return f.(*follower)
}

// During calls do while the node is in this term, see Disk.During.
type During func(term uint64, do func()) bool

// NewTransport returns a transport over the node-to-node port, which ends with closing. PassOn must run before Raft
// gets requests.
func NewTransport(conf *raft.NetworkTransportConfig, net *port.Port, during During, closing context.Context) *Transport {
	return &Transport{NetworkTransport: raft.NewNetworkTransportWithConfig(conf), net: net, during: during, closing: closing, rpcs: make(chan raft.RPC), Patience: port.RaftTimeout}
}

// SetLeads tells the transport how to find out whether this node leads in a term. Raft's senders see the end of a
// leadership only after their current call, which may wait long for a follower that is away. Meanwhile their
// heartbeats would go on, and a follower that comes back would believe in a leader that no longer leads, and block
// elections for a while.
func (t *Transport) SetLeads(leads func(term uint64) bool) { t.leads.Store(&leads) }

// SetApplied tells the transport how to find out up to which entry this node has applied the log.
func (t *Transport) SetApplied(applied func() uint64) { t.applied.Store(&applied) }

// over reports whether this node no longer leads in a term.
func (t *Transport) over(term uint64) bool {
	leads := t.leads.Load()
	return leads != nil && !(*leads)(term)
}

// errLeadershipEnded ends what a leader sends after its leadership is over.
var errLeadershipEnded = errors.New("the leadership of this term is over")

// Wake ends the rest of pipelines: this node has stored or applied an entry.
func (t *Transport) Wake() { t.news.Fire() }

// MainLoop returns the channel to Raft's main loop.
func (t *Transport) MainLoop() chan<- raft.RPC { return t.rpcs }

// Received counts the parts of snapshots that arrived: the main loop does nothing else while it receives one.
func (t *Transport) Received() uint64 { return t.received.Load() }

// Consumer implements raft.Transport.
func (t *Transport) Consumer() <-chan raft.RPC { return t.rpcs }

// PassOn passes requests on to the main loop until the node stops.
func (t *Transport) PassOn() {
	for {
		select {
		case rpc := <-t.NetworkTransport.Consumer():
			if install, ok := rpc.Command.(*raft.InstallSnapshotRequest); ok {
				rpc.Reader = snapshotReader{rpc.Reader, t, string(install.ID), install.LastLogIndex}
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

// snapshotReader reads a snapshot as a leader sends it.
type snapshotReader struct {
	io.Reader
	transport *Transport
	leader    string
	index     uint64 // of the snapshot
}

// errOutdatedSnapshot refuses a snapshot. Raft would install it, forget the entries behind it, and panic over the
// next commit.
var errOutdatedSnapshot = errors.New("this node has applied more than the snapshot has")

// Read implements io.Reader. The main loop reads, so nothing is applied meanwhile. A leader keeps sending a snapshot
// to the address of a removed server, where another server may listen by then.
func (r snapshotReader) Read(p []byte) (int, error) {
	hung := time.AfterFunc(r.transport.Patience, func() { r.transport.net.HangUpOn(r.leader) })
	defer hung.Stop()
	if applied := r.transport.applied.Load(); applied != nil && r.index <= (*applied)() {
		_, err := io.Copy(io.Discard, r.Reader) // otherwise the rest would be taken for the next request
		return 0, errors.Join(errOutdatedSnapshot, err)
	}
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.transport.received.Add(1)
	}
	return n, err
}

// SetHeartbeatHandler implements raft.Transport. Raft replies to heartbeats beside its main loop, so that a slow disk
// does not look like a stopped follower. There it may set the term to the heartbeat's, whatever its main loop does at
// that moment: if the loop is starting an election, because the leader was late, the term falls (appendEntries and
// electSelf in raft.go). So only heartbeats of this node's term are handled there, while that stays the term; all
// others go through the main loop.
func (t *Transport) SetHeartbeatHandler(handle func(raft.RPC)) {
	t.NetworkTransport.SetHeartbeatHandler(func(rpc raft.RPC) {
		a, ok := rpc.Command.(*raft.AppendEntriesRequest)
		if ok && t.during(a.Term, func() { handle(rpc) }) {
			return
		}
		select {
		case t.rpcs <- rpc:
		case <-t.closing.Done():
			rpc.Respond(nil, raft.ErrTransportShutdown)
		}
	})
}

const (
	// MaxPool is how many connections to a server are kept for requests that wait for their reply.
	MaxPool = 3
	// silentLimit is how long the failure of one request may be held back. It is bounded because Raft sees only
	// afterwards that the follower was removed.
	silentLimit = time.Minute
	// beatAgain is the pause before a failed heartbeat is sent again, and beatFor how long that goes on within one
	// call of Raft, which sees only afterwards that its leadership is over.
	beatAgain = 50 * time.Millisecond
	beatFor   = 5 * time.Second
)

// AppendEntries implements raft.Transport. After each failure Raft waits longer: up to 10 s before it sends entries
// again (replicateTo in replication.go), half of the heartbeat timeout before it sends another heartbeat. A restarted
// follower would get nothing for that long. So a heartbeat is repeated until the follower replies to one, and entries
// wait for that reply. Then they are sent again at once: every pooled connection may date from before the follower
// stopped.
func (t *Transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	bound(args)
	f := t.follower(id)
	send := func() error {
		if t.over(args.Term) {
			return errLeadershipEnded
		}
		*resp = raft.AppendEntriesResponse{} // left over from a reply that broke off
		return t.NetworkTransport.AppendEntries(id, target, args, resp)
	}
	// Heartbeats are recognized as Raft itself does (handleCommand in net_transport.go).
	if args.PrevLogEntry == 0 && args.PrevLogTerm == 0 && len(args.Entries) == 0 && args.LeaderCommitIndex == 0 {
		return t.beat(f, send)
	}
	replied := f.replied.Wait()
	err := send()
	if err == nil {
		return nil
	}
	t.awaitReply(replied, args.Term)
	for range MaxPool + 1 {
		// A request without a reply in time is not sent again: the follower is there, but slow.
		late, ok := errors.AsType[net.Error](err)
		if err == nil || ok && late.Timeout() || !wait.Closed(replied) || errors.Is(err, errLeadershipEnded) {
			break
		}
		err = send()
	}
	return err
}

// awaitReply waits until a follower has replied to a heartbeat, or the leadership of a term is over, for silentLimit
// at most.
func (t *Transport) awaitReply(replied <-chan struct{}, term uint64) {
	for began := time.Now(); time.Since(began) < silentLimit && !wait.Closed(replied) && !t.over(term) && t.closing.Err() == nil; {
		wait.Pause(t.closing, replied, beatAgain)
	}
}

// beat sends a heartbeat until it has a reply, or beatFor has passed.
func (t *Transport) beat(f *follower, send func() error) error {
	began := time.Now()
	err := send()
	if err != nil {
		f.failed.Add(1)
	}
	for err != nil && !errors.Is(err, errLeadershipEnded) && time.Since(began) < beatFor && t.closing.Err() == nil {
		wait.Pause(t.closing, nil, beatAgain)
		err = send()
	}
	if err == nil {
		f.replied.Fire()
	}
	return err
}

// InstallSnapshot implements raft.Transport. Like a failure to send entries, its failure counts only once the
// follower replies to a heartbeat.
func (t *Transport) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	replied := t.follower(id).replied.Wait()
	err := t.NetworkTransport.InstallSnapshot(id, target, args, resp, data)
	if err != nil {
		t.awaitReply(replied, args.Term)
	}
	return err
}

// bound leaves to the next request the entries for which this one has no room. Raft, which counts entries and not
// bytes, reads from the request afterwards how far the follower has come (updateLastAppended and pipelineSend in
// replication.go).
func bound(args *raft.AppendEntriesRequest) { args.Entries = args.Entries[:fitting(args.Entries)] }

// AppendEntriesPipeline implements raft.Transport.
func (t *Transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	p, err := t.NetworkTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	return t.newPipeline(id, p), nil
}

const (
	// tellAgain is how often a pipeline repeats what the follower was told already. A broken connection is noticed
	// within this time.
	tellAgain = time.Second
	// restAfter is how long after the last request a pipeline rests; all replies have arrived by then. A rest ends
	// after restFor at the latest, because Raft's sender does not notice meanwhile that the leadership is over.
	restAfter = 50 * time.Millisecond
	restFor   = 100 * time.Millisecond
	// askedAgain is the shortest time between two requests that are left out. While leadership is handed over, Raft
	// asks for one after the other until the follower has stored the newest entry (leadershipTransfer in raft.go).
	askedAgain = time.Millisecond
)

// pipeline is a pipeline where no sender waits for longer than pipelineLimit.
//
// Raft sends a request without entries after each test.commit-timeout without any, so that followers learn the commit
// index. The requests of a pipeline arrive in order or end it, and each carries the commit index of its time. So a
// request without entries tells the follower nothing if its commit index was sent before, and is left out: an idle
// cluster would spend most of its time on those. It is still sent after tellAgain, and after a failed heartbeat: a
// restarted follower learns the commit index from it. Some time after the last request, the call of Raft's sender
// returns only when this node has stored or applied an entry: otherwise the sender would ask for the next request 130
// times a second. Leader and follower keep believing in each other through heartbeats, which have another connection.
type pipeline struct {
	raft.AppendPipeline
	transport *Transport
	detach    func() bool // detaches it from the context that closes it
	follower  *follower

	// Owned by Raft's goroutine. Except for news, they describe the request that was sent last.
	commit uint64
	failed uint64 // failed heartbeats by then
	at     time.Time
	news   <-chan struct{} // closed when there is something new since the last call
	out    time.Time       // when the newest request was left out; zero if it was sent
}

func (t *Transport) newPipeline(id raft.ServerID, p raft.AppendPipeline) *pipeline {
	return &pipeline{AppendPipeline: p, transport: t, detach: context.AfterFunc(t.closing, func() { p.Close() }), follower: t.follower(id)}
}

// AppendEntries implements raft.AppendPipeline. A request that is left out has no future: Raft takes replies from the
// consumer (pipelineSend in replication.go).
func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	news := p.news // what has arrived since the last call ends a rest: Raft may not have seen it in this request
	p.news = p.transport.news.Wait()
	now, failed := time.Now(), p.follower.failed.Load()
	if len(args.Entries) == 0 && args.LeaderCommitIndex == p.commit && failed == p.failed && now.Sub(p.at) < tellAgain {
		switch {
		case now.Sub(p.at) >= restAfter:
			wait.Pause(p.transport.closing, news, restFor)
		case now.Sub(p.out) < askedAgain:
			wait.Pause(p.transport.closing, news, askedAgain)
		}
		p.out = time.Now()
		return nil, nil
	}
	p.commit, p.failed, p.at, p.out = args.LeaderCommitIndex, failed, now, time.Time{}
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
