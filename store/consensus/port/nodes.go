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

// The node channel: calls between the nodes of a cluster, by net/rpc over connections that the port
// shook hands on. A call is never passed on to a third node.

// dialTimeout bounds a connection attempt of the node channel, handshake included.
const dialTimeout = time.Second

// sendTimeout bounds the sending of one request or reply. A node that stands still reads nothing, and
// what is sent to it soon fills the connection; net/rpc would wait for it to go on, whatever the caller's
// context says, and the next caller would wait behind that.
const sendTimeout = 2 * time.Second

// ErrNotSent wraps errors of calls that certainly never reached the remote.
var ErrNotSent = errors.New("not sent")

// ErrUnknownCall wraps errors of calls that the remote, which runs an older program, does not know: it certainly did nothing.
var ErrUnknownCall = fmt.Errorf("%w: the other node does not know the call", ErrNotSent)

// Calls with a quick reply have a connection of their own: when one of them stays without a
// reply its connection is given up, and that must not cut off writes that are on their way.
const (
	laneWork  lane = iota // takes as long as the work does
	laneQuick             // has its reply within AttemptLimit, or the node hangs
)

type lane uint8

// quickCalls are the methods of laneQuick.
var quickCalls = map[string]bool{"Node.ReadIndex": true, "Node.Term": true, "Node.Fresh": true}

// Nodes holds one connection for each lane to each other node, made when first needed.
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
	ready    chan struct{} // closed when the others are set
	conn     net.Conn
	shortest atomic.Int64 // shortest time that a reply took, ns; at first that of the handshake; 0: none yet
	replies  atomic.Int64 // how many replies came
	client   *rpc.Client
	err      error
}

// NewNodes returns the other nodes, to none of which there is a connection yet; override has, by node name, addresses to dial
// instead of the advertised ones.
func NewNodes(n *Port, override map[string]string) *Nodes {
	p := &Nodes{net: n, override: override, lines: map[lineKey]*line{}}
	if n != nil { // as in tests that dial nothing
		n.leave = p.leaveLine
	}
	return p
}

// AddressOf is where to dial a server.
func (p *Nodes) AddressOf(s raft.Server) string {
	return p.DialAddress(string(s.ID), string(s.Address))
}

// DialAddress is where to dial a server that advertises an address.
func (p *Nodes) DialAddress(serverID, address string) string {
	if o, ok := p.override[disk.NodeName(serverID)]; ok {
		return o
	}
	return address
}

// Reach waits until there is a connection for work to an address. Its errors wrap ErrNotSent.
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

// Invoke calls a method of the node channel. An error that wraps ErrNotSent means that the remote
// certainly did not get it; after any other its outcome is unknown. A quick call ends AttemptLimit after there is
// a connection, at the latest.
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
		if l.replies.Load() == before { // else the node replies, and something that it waits for does not
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

// line returns the connection to an address, dialling it if there is none.
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

// drop drops a connection that failed, so that the next call dials anew.
func (p *Nodes) drop(to lineKey, l *line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lines[to] == l {
		delete(p.lines, to)
	}
	l.client.Close()
}

// giveUp hangs up a connection on which nothing is heard.
func (p *Nodes) giveUp(to lineKey, l *line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lines[to] == l { // else that was done already
		delete(p.lines, to)
		l.hangUp()
	}
}

// HangUp drops the connection for work to a node that does not reply: calls that wait on it end, and a node
// that comes back is not kept waiting behind what it missed. What was not sent yet never is.
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
	default: // still dialling; it has a time limit of its own
	}
}

// recordTrip records how long a reply took.
func (l *line) recordTrip(took time.Duration) {
	l.replies.Add(1)
	if int64(took) < l.shortest.Load() {
		l.shortest.Store(int64(took)) // of two at a time the longer one may win: it is nearly as short
	}
}

// roundTrip is the time that a message to the most distant node and its reply take, as far as nodes
// are connected.
func (p *Nodes) roundTrip() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var longest int64
	for to, l := range p.lines {
		trip := l.shortest.Load()
		if other := p.lines[lineKey{to.address, laneWork + laneQuick - to.lane}]; other != nil && other.shortest.Load() > 0 {
			trip = min(trip, other.shortest.Load())
		}
		longest = max(longest, trip)
	}
	return time.Duration(longest)
}

const (
	// quickAttempt bounds a quick call between nodes in one place, so that a node that hangs does not
	// use up the time of all that wait.
	quickAttempt = 300 * time.Millisecond
	// attemptTrips is how many round trips a quick call takes at most: one to the leader, one that the
	// leader waits for an earlier round, and one of the leader to the voters.
	attemptTrips = 3
	// maxAttempt bounds a quick call in the end.
	maxAttempt = 2 * time.Second
)

// AttemptLimit bounds a quick call from the moment that there is a connection.
func (p *Nodes) AttemptLimit() time.Duration {
	return min(maxAttempt, quickAttempt+attemptTrips*p.roundTrip())
}

// Stretch returns d, and in proportion to AttemptLimit more where the nodes are far from each other.
func (p *Nodes) Stretch(d time.Duration) time.Duration { return d * p.AttemptLimit() / quickAttempt }

// hangUp closes a connection at once. Closed in the ordinary way, the kernel would go on to deliver
// what was written, for minutes if need be.
func (l *line) hangUp() {
	if l.client == nil {
		return // there is none
	}
	if tcp := tcpOf(l.conn); tcp != nil {
		tcp.SetLinger(0) // an error means that it is closed already
	}
	l.client.Close()
}

// tcpOf is the TCP connection below a connection of the node-to-node port; nil: there is none.
func tcpOf(conn net.Conn) *net.TCPConn {
	if tracked, ok := conn.(*trackedConn); ok {
		conn = tracked.Conn
	}
	if encrypted, ok := conn.(*tls.Conn); ok {
		conn = encrypted.NetConn()
	}
	tcp, _ := conn.(*net.TCPConn)
	return tcp
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

// AskAll calls do for every address at once and returns when all have ended.
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

// Reply is what one node has replied to AskAll.
type Reply[T any] struct {
	Address string
	Value   T
	Err     error
}

// OtherNodeError means that another node than the one that was called replies at its address: its successor, or
// one that took the address over.
type OtherNodeError struct{ Asked, Replied, Address string }

func (e *OtherNodeError) Error() string {
	return fmt.Sprintf("at %s node %s answers instead of %s", e.Address, e.Replied, e.Asked)
}
