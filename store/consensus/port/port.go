package port

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/internal/certfiles"
	"github.com/seed-20419f34/rollcall/internal/world"
	"github.com/seed-20419f34/rollcall/store"
)

// RaftTimeout bounds one request of Raft to another node.
const RaftTimeout = 10 * time.Second

// Node-to-node connections share one port. The first byte says what the connection carries. Then both sides say their
// names, and neither goes on with a stranger.
const (
	streamRaft byte = 'R' // hashicorp/raft's transport
	streamNode byte = 'N' // calls between nodes, see nodes.go
)

// Port owns the node-to-node port: it listens, shakes hands, and hands connections to Raft or to
// the node channel. It implements raft.StreamLayer.
type Port struct {
	// Set before Serve is called:

	Self      func() Hello                 // returns what this node says of itself
	Known     func(serverID string) uint64 // returns the newest start of a server that this node knows of, or 0
	Outdated  func(error)                  // called when this node must not go on
	ServeNode func(net.Conn, Hello)        // owns the connection
	Closing   context.Context              // ends when the node stops; Raft's connections end with it
	Life      time.Duration                // bounds the life of a connection whose certificates have changed; one hour

	world     *world.World
	listener  net.Listener
	advertise addr
	tls       *tls.Config       // nil for plain connections
	files     *certfiles.Source // files of tls
	leave     func(net.Conn)    // ends a connection for calls between nodes cleanly; see retire
	log       *slog.Logger
	admission *admission
	raftConns chan net.Conn
	closing   sync.Once
	done      chan struct{} // closed by Close
	fenced    atomic.Bool
	wg        sync.WaitGroup

	mu      sync.Mutex
	conns   map[net.Conn]*openConn
	differs map[string]bool // servers that skip other log entries than this one
}

// openConn is what the port knows of an open connection.
type openConn struct {
	from    string // id of the server that dialled it, for a Raft connection
	dialled byte   // what this node dialled it for; 0 if another node dialled it
}

// Go runs do in a goroutine that Wait waits for.
func (n *Port) Go(do func()) { n.wg.Go(do) }

type addr string

func (addr) Network() string  { return "tcp" }
func (a addr) String() string { return string(a) }

// Listen opens the port. Its exported fields must be set before Serve is called.
func Listen(w *world.World, listen, advertise string, files store.TLSFiles, log *slog.Logger) (*Port, error) {
	n := &Port{
		Known: func(string) uint64 { return 0 }, Outdated: func(error) {}, Closing: context.Background(),
		world: w, advertise: addr(advertise), log: log, admission: newAdmission(),
		raftConns: make(chan net.Conn), done: make(chan struct{}), conns: map[net.Conn]*openConn{}, differs: map[string]bool{}, Life: time.Hour,
	}
	if files != (store.TLSFiles{}) {
		var err error
		if n.files, err = files.Open(log); err != nil {
			return nil, err
		}
		n.files.Changed = n.retire
		n.tls = n.files.Mutual()
	}
	l, err := w.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("cluster.addr: %w", err)
	}
	n.listener = l
	if advertise == "" {
		n.advertise = addr(l.Addr().String())
	}
	return n, nil
}

// Metrics returns the metrics of the certificate, if there is one.
func (n *Port) Metrics() []prometheus.Collector {
	if n.files == nil {
		return nil
	}
	return []prometheus.Collector{certfiles.ExpiryGauge("cluster", n.files)}
}

// Serve accepts connections until Close.
func (n *Port) Serve() {
	if n.files != nil {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		n.wg.Go(func() { n.files.Run(ctx) })
	}
	for {
		conn, err := n.listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				n.log.Warn("node-to-node port: accept failed", "err", err)
			}
			select {
			case <-n.done:
				return
			case <-time.After(50 * time.Millisecond): // most likely out of file descriptors
				continue
			}
		}
		n.wg.Go(func() { n.accept(conn) })
	}
}

func (n *Port) accept(accepted net.Conn) {
	from := newCaller(accepted)
	handedOn := false
	defer func() {
		if !handedOn {
			n.admission.remove(from)
		}
	}()
	var conn net.Conn = from
	if n.tls != nil {
		conn = tls.Server(from, n.tls)
	}
	if !n.track(conn, 0) {
		conn.Close()
		return
	}
	if !n.admission.startHandshake(from, time.Now()) {
		n.park(conn)
		return
	}
	kind, remote, err := n.welcome(conn)
	if err == nil && !n.admission.finishHandshake(from, remote.ServerID, remote.Cluster != "" && remote.Cluster == n.Self().Cluster) {
		err = errNoRoom
	}
	if err != nil {
		n.log.Debug("node-to-node port: connection refused", "remote", conn.RemoteAddr().String(), "err", err)
		if from.ousted.Load() {
			n.park(conn)
			return
		}
		n.drop(conn)
		return
	}
	switch kind {
	case streamNode:
		n.ServeNode(conn, remote)
		n.drop(conn)
	case streamRaft:
		n.name(conn, remote.ServerID)
		select {
		case n.raftConns <- n.wrap(conn, kind, from):
			handedOn = true
		case <-n.done:
			n.drop(conn)
		}
	}
}

var errNoRoom = errors.New("too many connections")

// park keeps a connection that is not served open for a while.
func (n *Port) park(conn net.Conn) {
	if !n.admission.park() {
		n.drop(conn)
		return
	}
	time.AfterFunc(parkedFor+rand.N(parkedFor), func() {
		n.admission.mu.Lock()
		n.admission.parked--
		n.admission.mu.Unlock()
		n.drop(conn)
	})
}

// dial opens a connection and shakes hands.
func (n *Port) dial(kind byte, address string, timeout time.Duration) (net.Conn, Hello, error) {
	if n.fenced.Load() {
		return nil, Hello{}, errFenced
	}
	ctx, cancel := context.WithTimeout(n.Closing, timeout)
	defer cancel()
	plain, err := n.world.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, Hello{}, err
	}
	defer context.AfterFunc(n.Closing, func() { plain.Close() })() // the other end may never say its name
	conn := plain
	if n.tls != nil {
		conn = tls.Client(plain, n.tls)
	}
	remote, err := n.greet(conn, kind, timeout)
	if err == nil && !n.track(conn, kind) {
		err = net.ErrClosed
	}
	if err != nil {
		conn.Close()
		return nil, remote, fmt.Errorf("handshake with %s: %w", address, err)
	}
	return n.wrap(conn, kind, nil), remote, nil
}

// wrap makes a tracked connection one of Raft or of the node channel. When Raft stops, it waits for its requests:
// half a minute for a node that hangs, and forever for the rest of a snapshot if the leader hangs while sending it.
// So its connections end first.
func (n *Port) wrap(conn net.Conn, kind byte, from *caller) *trackedConn {
	c := &trackedConn{Conn: conn, n: n, from: from}
	if kind == streamRaft {
		c.detach = context.AfterFunc(n.Closing, func() { n.drop(conn) })
	}
	return c
}

var errFenced = errors.New("this node has stopped talking, because it must not go on")

// Fence ends all Raft traffic of this node, for good: the others elect a new leader, even if this process cannot exit
// because it is stuck in the kernel.
func (n *Port) Fence() {
	n.fenced.Store(true)
	n.closeConns()
}

// track remembers an open connection, so that the port closes it in the end. It returns false if the port is closed
// or fenced already.
func (n *Port) track(conn net.Conn, dialled byte) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.done:
		return false
	default:
	}
	if n.fenced.Load() {
		return false
	}
	n.conns[conn] = &openConn{dialled: dialled}
	return true
}

// name records which server has dialled a connection, as long as it is open.
func (n *Port) name(conn net.Conn, serverID string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c, open := n.conns[conn]; open {
		c.from = serverID
	}
}

// HangUpOn closes the Raft connections that a server has dialled.
func (n *Port) HangUpOn(serverID string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for conn, c := range n.conns {
		if c.from == serverID {
			conn.Close()
		}
	}
}

func (n *Port) drop(conn net.Conn) {
	conn.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, conn)
}

func (n *Port) closeConns() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for conn := range n.conns {
		conn.Close()
	}
	clear(n.conns)
}

// Accept implements net.Listener for Raft.
func (n *Port) Accept() (net.Conn, error) {
	select {
	case conn := <-n.raftConns:
		return conn, nil
	case <-n.done:
		return nil, net.ErrClosed
	}
}

// Dial implements raft.StreamLayer.
func (n *Port) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	if timeout <= 0 {
		timeout = handshakeTimeout
	}
	conn, _, err := n.dial(streamRaft, string(address), timeout)
	return conn, err
}

// Addr implements net.Listener. It returns the address that other nodes use.
func (n *Port) Addr() net.Addr { return n.advertise }

// Close implements net.Listener. It may be called more than once.
func (n *Port) Close() (err error) {
	n.closing.Do(func() {
		n.mu.Lock()
		close(n.done)
		n.mu.Unlock()
		err = n.listener.Close()
		n.closeConns()
	})
	return err
}

// Wait returns when every goroutine of a closed port has ended.
func (n *Port) Wait() { n.wg.Wait() }

// trackedConn tells the port when it is closed, and refuses to write once the node is fenced.
type trackedConn struct {
	net.Conn
	n      *Port
	from   *caller     // nil if this node dialled
	detach func() bool // detaches it from the end of the node; nil if it was never attached
}

// Write implements net.Conn.
func (c *trackedConn) Write(b []byte) (int, error) {
	if c.n.fenced.Load() {
		return 0, errFenced
	}
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *trackedConn) Close() error {
	if c.detach != nil {
		c.detach()
	}
	c.n.drop(c.Conn)
	if c.from != nil {
		c.n.admission.remove(c.from)
	}
	return nil
}
