package port

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/store/disk"
)

// The node channel: calls between the nodes of a cluster, by net/rpc over connections that the port shook hands on. A
// call is never passed on to a third node.

// dialTimeout bounds a connection attempt of the node channel, including the handshake.
const dialTimeout = time.Second

// sendTimeout bounds the sending of one request or reply. A node that hangs reads nothing, and what is sent to it
// soon fills the connection. net/rpc would wait for it, whatever the caller's context says, and the next caller would
// wait behind that.
const sendTimeout = 2 * time.Second

// ErrNotSent wraps errors of calls that certainly never reached the remote.
var ErrNotSent = errors.New("not sent")

// ErrUnknownCall wraps errors of calls that the remote does not know because it runs an older program: it certainly
// did nothing.
var ErrUnknownCall = fmt.Errorf("%w: the other node does not know the call", ErrNotSent)

// Calls with a quick reply have a connection of their own: when one of them gets no reply its connection is dropped,
// and that must not cut off writes in flight.
const (
	laneWork  lane = iota // takes as long as the work does
	laneQuick             // has its reply within AttemptLimit, or the node hangs
)

type lane uint8

// quickCalls are the methods of laneQuick.
var quickCalls = map[string]bool{"Node.ReadIndex": true, "Node.Term": true, "Node.Fresh": true}

// Nodes holds one connection per lane to each other node, made when first needed.
type Nodes struct {
	net      *Port
	override map[string]string // node name -> address to dial instead

	mu     sync.Mutex
	closed bool
	lines  map[lineKey]*line
}

type lineKey struct {
	address string
	lane    lane
}

// line is a connection to one address, or the attempt to make one.
type line struct {
	ready    chan struct{} // closed when the other fields are set
	conn     net.Conn
	shortest atomic.Int64 // shortest time of a reply in ns, initially that of the handshake; 0 before that
	replies  atomic.Int64 // number of replies received
	client   *rpc.Client
	err      error
}

// NewNodes returns the other nodes, not connected yet. override has, by node name, addresses to dial instead of the
// advertised ones.
func NewNodes(n *Port, override map[string]string) *Nodes {
	p := &Nodes{net: n, override: override, lines: map[lineKey]*line{}}
	if n != nil { // nil in tests that dial nothing
		n.leave = p.leaveLine
	}
	return p
}

// AddressOf returns the address at which to dial a server.
func (p *Nodes) AddressOf(s raft.Server) string {
	return p.DialAddress(string(s.ID), string(s.Address))
}

// DialAddress returns the address at which to dial a server that advertises the given one.
func (p *Nodes) DialAddress(serverID, address string) string {
	if o, ok := p.override[disk.NodeName(serverID)]; ok {
		return o
	}
	return address
}

// Reach waits until there is a work connection to an address. Its errors wrap ErrNotSent.
func (p *Nodes) Reach(ctx context.Context, address string) error {
	_, err := p.connected(ctx, lineKey{address, laneWork})
	return err
}

func (p *Nodes) connected(ctx context.Context, to lineKey) (*line, error) {
	l := p.line(to)
	address := to.address
	select {
	case <-l.ready:
	case <-ctx.Done():
		return nil, fmt.Errorf("reach %s: %w: %w", address, ErrNotSent, ctx.Err())
	}
	if l.err != nil {
		return nil, fmt.Errorf("reach %s: %w: %w", address, ErrNotSent, l.err)
	}
	return l, nil
}

// Invoke calls a method of the node channel. An error that wraps ErrNotSent means that the remote certainly did not
// get the call; after any other, its outcome is unknown. A quick call ends at the latest AttemptLimit after it has a
// connection.
func Invoke[R any](ctx context.Context, p *Nodes, address, method string, args any) (R, error) {
	var none R
	to := lineKey{address, laneWork}
	if quickCalls[method] {
		to.lane = laneQuick
	}
	l, err := p.connected(ctx, to)
	if err != nil {
		return none, fmt.Errorf("call %s: %w", method, err)
	}
	var late <-chan time.Time
	if to.lane == laneQuick {
		// From now on: nodes far from each other take several round trips to connect.
		t := time.NewTimer(p.AttemptLimit())
		defer t.Stop()
		late = t.C
	}
	began, before := time.Now(), l.replies.Load()
	reply := new(R) // net/rpc may still write into it after we stopped waiting
	c := l.client.Go(method, args, reply, make(chan *rpc.Call, 1))
	select {
	case <-c.Done:
	case <-late:
		if l.replies.Load() == before { // otherwise the node replies, and what hangs is something it waits for
			p.giveUp(to, l)
		}
		return none, fmt.Errorf("call %s at %s: %w", method, address, context.DeadlineExceeded)
	case <-ctx.Done():
		return none, fmt.Errorf("call %s at %s: %w", method, address, ctx.Err())
	}
	if c.Error == nil {
		l.recordTrip(time.Since(began))
		return *reply, nil
	}
	if _, replied := c.Error.(rpc.ServerError); !replied {
		p.drop(to, l)
	} else if c.Error.Error() == unknownCall+method {
		return none, fmt.Errorf("call %s at %s: %w", method, address, ErrUnknownCall)
	}
	return none, fmt.Errorf("call %s at %s: %w", method, address, c.Error)
}

// sender is a connection on which no write takes longer than sendTimeout.
type sender struct{ net.Conn }

// Write implements net.Conn.
func (s sender) Write(b []byte) (int, error) {
	if err := s.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return 0, err
	}
	return s.Conn.Write(b)
}

// line returns the connection to an address, and dials if necessary.
func (p *Nodes) line(to lineKey) *line {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l, ok := p.lines[to]; ok {
		return l
	}
	l := &line{ready: make(chan struct{})}
	if p.closed {
		l.err = errors.New("shutting down")
		close(l.ready)
		return l
	}
	p.lines[to] = l
	go p.connect(to, l) // ends within dialTimeout
	return l
}

func (p *Nodes) connect(to lineKey, l *line) {
	began := time.Now()
	conn, _, err := p.net.dial(streamNode, to.address, dialTimeout)
	p.mu.Lock()
	defer p.mu.Unlock()
	defer close(l.ready)
	switch {
	case err != nil:
		l.err = err
	case p.closed:
		conn.Close()
		l.err = errors.New("shutting down")
	default:
		l.shortest.Store(int64(time.Since(began)))
		l.conn, l.client = conn, rpc.NewClient(sender{conn})
		return
	}
	delete(p.lines, to) // the next call tries again
}

// drop removes a failed connection, so that the next call dials anew.
func (p *Nodes) drop(to lineKey, l *line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lines[to] == l {
		delete(p.lines, to)
	}
	l.client.Close()
}

// giveUp hangs up a silent connection.
func (p *Nodes) giveUp(to lineKey, l *line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lines[to] == l { // otherwise that was done already
		delete(p.lines, to)
		l.hangUp()
	}
}

// HangUp drops the work connection to a node that does not reply: calls that wait on it end, and when the node comes
// back it is not kept busy with calls that it missed. What was not sent yet never is.
func (p *Nodes) HangUp(address string) {
	to := lineKey{address, laneWork}
	p.mu.Lock()
	defer p.mu.Unlock()
	l, ok := p.lines[to]
	if !ok {
		return
	}
	select {
	case <-l.ready:
		delete(p.lines, to)
		l.hangUp()
	default: // still dialling, with a time limit of its own
	}
}

// recordTrip records how long a reply took.
func (l *line) recordTrip(took time.Duration) {
	l.replies.Add(1)
	if int64(took) < l.shortest.Load() {
		l.shortest.Store(int64(took)) // if two race, the longer one may win: it is nearly as short
	}
}

const (
	// quickAttempt bounds a quick call between nodes within one site, so that a node that hangs does not use up the
	// time of everyone who waits.
	quickAttempt = 300 * time.Millisecond
	// attemptTrips is the most round trips that a quick call takes: one to the leader, one that the leader waits for
	// an earlier round, and one from the leader to the voters.
	attemptTrips = 3
	// maxAttempt bounds a quick call, however far apart the nodes are.
	maxAttempt = 2 * time.Second
)

// AttemptLimit bounds a quick call, counted from when it has a connection.
func (p *Nodes) AttemptLimit() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var longest int64 // round-trip time to the most distant of the connected nodes
	for to, l := range p.lines {
		trip := l.shortest.Load()
		if other := p.lines[lineKey{to.address, laneWork + laneQuick - to.lane}]; other != nil && other.shortest.Load() > 0 {
			trip = min(trip, other.shortest.Load())
		}
		longest = max(longest, trip)
	}
	return min(maxAttempt, quickAttempt+attemptTrips*time.Duration(longest))
}

// Stretch returns d, lengthened in proportion to AttemptLimit where the nodes are far apart.
func (p *Nodes) Stretch(d time.Duration) time.Duration { return d * p.AttemptLimit() / quickAttempt }

// hangUp closes a connection at once. After an ordinary close, the kernel would go on delivering what was written,
// for minutes if need be.
func (l *line) hangUp() {
	if l.client == nil {
		return // not a TCP connection
	}
	conn := l.conn
	if tracked, ok := conn.(*trackedConn); ok {
		conn = tracked.Conn
	}
	if encrypted, ok := conn.(*tls.Conn); ok {
		conn = encrypted.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0) // fails only if it is closed already
	}
	l.client.Close()
}

// Close hangs up all connections; calls that wait on them end.
func (p *Nodes) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, l := range p.lines {
		select {
		case <-l.ready:
			l.hangUp()
		default: // connect sees closed
		}
	}
	clear(p.lines)
}

// AskAll calls do for every address at once and returns when all calls have ended.
func AskAll[T any](ctx context.Context, addresses []string, limit time.Duration, do func(context.Context, string) (T, error)) []Reply[T] {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	replies := make(chan Reply[T], len(addresses))
	for _, address := range addresses {
		go func() {
			v, err := do(ctx, address)
			replies <- Reply[T]{Address: address, Value: v, Err: err}
		}()
	}
	all := make([]Reply[T], 0, len(addresses))
	for range addresses {
		all = append(all, <-replies)
	}
	return all
}

// Reply is one node's reply to AskAll.
type Reply[T any] struct {
	Address string
	Value   T
	Err     error
}

// OtherNodeError means that a node other than the one called replies at its address: its successor, or one that took
// the address over.
type OtherNodeError struct{ Asked, Replied, Address string }

func (e *OtherNodeError) Error() string {
	return fmt.Sprintf("at %s node %s answers instead of %s", e.Address, e.Replied, e.Asked)
}
