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

// pipelineLimit is how long the handing over of one request may take: longer than a reply may, after
// which the connection is given up anyway.
const pipelineLimit = port.RaftTimeout + time.Second

// Transport is hashicorp/raft's, whose pipelines end by themselves where they would hang. When a follower
// refuses a request, raft stops to read the replies of the pipeline; a sender that waits at that moment to
// hand over its next request then waits for ever, with the follower left behind and the node unable to
// stop (pipelineDecode in raft's replication.go, AppendEntries in net_transport.go).
//
// It also passes on to Raft's main loop what other nodes ask, so that this node can ask as well (loop.go), has
// entries sent to a follower as soon as the follower replies to heartbeats again, leaves out requests that tell a follower
// nothing (see pipeline), and lets only the main loop change the term. The main loop takes the snapshot of a leader as it comes, and meanwhile neither votes nor looks
// for another leader: from one that hangs in the middle it would wait for the rest without end.
type Transport struct {
	*raft.NetworkTransport
	net       *port.Port
	Patience  time.Duration // with a leader that sends nothing more of a snapshot
	during    During
	closing   context.Context // ends when the node stops
	rpcs      chan raft.RPC   // to the main loop
	followers sync.Map        // *follower by raft.ServerID
	received  atomic.Uint64   // parts of snapshots of leaders
	news      wait.Broadcast  // fires when there may be something to tell followers
	leads     atomic.Pointer[func(term uint64) bool]
	applied   atomic.Pointer[func() uint64]
}

// follower is what is known of a server by the heartbeats that it is sent.
type follower struct {
	replied wait.Broadcast // fires when the server replied to one
	failed  atomic.Uint64  // how many it did not reply to
}

func (t *Transport) follower(id raft.ServerID) *follower {
	f, _ := t.followers.LoadOrStore(id, new(follower))
	return f.(*follower)
}

// During calls do while this is the node's term, see Disk.During.
type During func(term uint64, do func()) bool

// NewTransport returns a transport over the node-to-node port, which ends with closing. PassOn must run before Raft gets requests.
func NewTransport(conf *raft.NetworkTransportConfig, net *port.Port, during During, closing context.Context) *Transport {
	return &Transport{NetworkTransport: raft.NewNetworkTransportWithConfig(conf), net: net, during: during, closing: closing, rpcs: make(chan raft.RPC), Patience: port.RaftTimeout}
}

// SetLeads gives the transport a way to know whether this node leads in a term. Raft's senders see the end of a leadership only
// after the call that they are in, which may wait long for a follower that is away. Their heartbeats would go on meanwhile, and a
// follower that comes back would believe in a leader that is none, and let nobody be elected for a while.
func (t *Transport) SetLeads(leads func(term uint64) bool) { t.leads.Store(&leads) }

// SetApplied gives the transport a way to know up to which entry this node has applied the log.
func (t *Transport) SetApplied(applied func() uint64) { t.applied.Store(&applied) }

// over says that this node does not lead in a term any more.
func (t *Transport) over(term uint64) bool {
	leads := t.leads.Load()
	return leads != nil && !(*leads)(term)
}

// errOver ends what a leader sends whose leadership is over.
var errOver = errors.New("the leadership of this term is over")

// Wake ends the rest of pipelines: this node has stored or applied an entry.
func (t *Transport) Wake() { t.news.Fire() }

// MainLoop is the way to Raft's main loop.
func (t *Transport) MainLoop() chan<- raft.RPC { return t.rpcs }

// Received counts the parts of snapshots that came: the main loop does nothing else while it takes one.
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

// snapshotReader reads what a leader sends of a snapshot.
type snapshotReader struct {
	io.Reader
	transport *Transport
	leader    string
	index     uint64 // of the snapshot
}

// errPast refuses a snapshot. Raft would install it, forget the entries behind it, and panic over the next commit.
var errPast = errors.New("this node has applied more than the snapshot has")

// Read implements io.Reader. The main loop reads, so nothing is applied meanwhile. A leader keeps sending a snapshot to the address
// of a server that was removed, where another server may listen by then.
func (r snapshotReader) Read(p []byte) (int, error) {
	hung := time.AfterFunc(r.transport.Patience, func() { r.transport.net.HangUpOn(r.leader) })
	defer hung.Stop()
	if applied := r.transport.applied.Load(); applied != nil && r.index <= (*applied)() {
		_, err := io.Copy(io.Discard, r.Reader) // or the rest would be taken for the next request
		return 0, errors.Join(errPast, err)
	}
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.transport.received.Add(1)
	}
	return n, err
}

// SetHeartbeatHandler implements raft.Transport. Raft replies to heartbeats beside its main loop, so that a slow disk
// does not look like a follower that has stopped, and there it may set the term to the heartbeat's, whatever its main
// loop does at that moment: if that begins an election, because the leader was late, the term falls (appendEntries and
// electSelf in raft.go). So only heartbeats of this node's term are handled there, while it stays the term; all others
// go through the main loop.
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
	// beatAgain is when a heartbeat that failed is sent again, and beatFor how long that goes on within one call of Raft,
	// which sees only afterwards that its leadership is over.
	beatAgain = 50 * time.Millisecond
	beatFor   = 5 * time.Second
)

// AppendEntries implements raft.Transport. After each failure Raft waits longer: up to 10 s before it sends entries again
// (replicateTo in replication.go), half of the heartbeat timeout before it sends another heartbeat. A follower that has started anew would get nothing
// for so long. So a heartbeat is sent again and again until the follower replies to one, and entries wait for that reply.
// Then they are sent again at once: each of the connections that are kept may be one of before the follower's end.
func (t *Transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	bound(args)
	f := t.follower(id)
	send := func() error {
		if t.over(args.Term) {
			return errOver
		}
		*resp = raft.AppendEntriesResponse{} // a reply that broke off
		return t.NetworkTransport.AppendEntries(id, target, args, resp)
	}
	if isHeartbeat(args) {
		return t.beat(f, send)
	}
	replied := f.replied.Wait()
	err := send()
	if err == nil {
		return nil
	}
	t.awaitReply(replied, args.Term)
	for range MaxPool + 1 {
		if err == nil || late(err) || !closed(replied) || errors.Is(err, errOver) {
			break
		}
		err = send()
	}
	return err
}

// awaitReply waits until a follower has replied to a heartbeat, or the leadership of a term is over, for silentLimit at most.
func (t *Transport) awaitReply(replied <-chan struct{}, term uint64) {
	for began := time.Now(); time.Since(began) < silentLimit && !closed(replied) && !t.over(term) && t.closing.Err() == nil; {
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
	for err != nil && !errors.Is(err, errOver) && time.Since(began) < beatFor && t.closing.Err() == nil {
		wait.Pause(t.closing, nil, beatAgain)
		err = send()
	}
	if err == nil {
		f.replied.Fire()
	}
	return err
}

// InstallSnapshot implements raft.Transport. A failure counts, as one to send entries does, when the follower replies to a heartbeat.
func (t *Transport) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	replied := t.follower(id).replied.Wait()
	err := t.NetworkTransport.InstallSnapshot(id, target, args, resp, data)
	if err != nil {
		t.awaitReply(replied, args.Term)
	}
	return err
}

// late says that a request had no reply in time: the follower is there, and slow.
func late(err error) bool {
	var of net.Error
	return errors.As(err, &of) && of.Timeout()
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
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
func (t *Transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	p, err := t.NetworkTransport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, err
	}
	return t.newPipeline(id, p), nil
}

const (
	// tellAgain is how often a pipeline sends what the follower was told already: at least so often it is noticed that the
	// connection is broken.
	tellAgain = time.Second
	// restAfter is how long after the last request a pipeline rests, which all replies have come to by then. A rest ends after
	// restFor at the latest, because Raft's sender does not see meanwhile that the leadership is over.
	restAfter = 50 * time.Millisecond
	restFor   = 100 * time.Millisecond
	// askedAgain is the least time between two requests that are left out. While leadership is handed over, Raft asks for one after
	// the other until the follower has stored the newest entry (leadershipTransfer in raft.go).
	askedAgain = time.Millisecond
)

// pipeline is a pipeline in which no sender waits for longer than pipelineLimit.
//
// Raft sends a request without entries after each test.commit-timeout in which there were none, so that followers learn
// the commit index. The requests of a pipeline arrive in their order or end it, and each carries the commit index of its time. So a
// request without entries tells the follower nothing if its commit index was sent before, and is left out: an idle cluster would
// spend most of its time on those. It is sent nevertheless after tellAgain, and after a heartbeat that failed: a follower that has
// started anew learns the commit index from it. Some time after the last request Raft's sender does not even get a return at once, but
// when this node has stored or applied an entry: it would ask for the next one 130 times a second. The contact that leader and follower need to believe in each other is that of the
// heartbeats, which have another connection.
type pipeline struct {
	raft.AppendPipeline
	transport *Transport
	detach    func() bool // from the context that closes it
	follower  *follower

	// Raft's goroutine owns the following. They are of the request that was sent last, but for news.
	commit uint64
	failed uint64 // heartbeats, by then
	at     time.Time
	news   <-chan struct{} // closed when there is something new since the last call
	out    time.Time       // when the newest request was left out; zero: it was sent
}

func (t *Transport) newPipeline(id raft.ServerID, p raft.AppendPipeline) *pipeline {
	return &pipeline{AppendPipeline: p, transport: t, detach: context.AfterFunc(t.closing, func() { p.Close() }), follower: t.follower(id)}
}

// AppendEntries implements raft.AppendPipeline. There is no future of a request that is left out: Raft takes what is replied from
// the consumer (pipelineSend in replication.go).
func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	news := p.news // what has come since the last call ends a rest: Raft may not have seen it in this request
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
