package consensus

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// inBubble runs a test in virtual time, with a network of its own. It begins in 2027: the formats know no hour before 2026 (ADR 26).
func inBubble(t *testing.T, do func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		around = &network{listeners: map[string]*listener{}}
		time.Sleep(time.Until(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)))
		t.Cleanup(func() { time.Sleep(time.Second) }) // for connections that are being opened, which nobody waits for
		do(t)
	})
}

// around is the network of the present test: no two run at a time.
var around *network

// network joins nodes in memory. A connection holds any number of bytes, so that only its readers wait.
type network struct {
	mu        sync.Mutex
	listeners map[string]*listener
	used      int // addresses and ports
}

// freeAddr is an address at which no node listens.
func freeAddr(t testing.TB) string {
	t.Helper()
	around.mu.Lock()
	defer around.mu.Unlock()
	around.used++
	return fmt.Sprintf("127.0.0.1:%d", 20_000+around.used)
}

// Listen implements world.Network.
func (n *network) Listen(_, address string) (net.Listener, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[address] != nil {
		return nil, syscall.EADDRINUSE
	}
	l := &listener{on: n, at: net.TCPAddrFromAddrPort(at), arrived: make(chan *conn, 1000), closed: make(chan struct{})}
	n.listeners[address] = l
	return l, nil
}

// DialContext implements world.Network.
func (n *network) DialContext(_ context.Context, _, address string) (net.Conn, error) {
	time.Sleep(time.Millisecond)
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.listeners[address]
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	n.used++
	own := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 20_000 + n.used}
	there, back := newPipe(), newPipe()
	l.arrived <- &conn{in: there, out: back, own: l.at, remote: own}
	return &conn{in: back, out: there, own: own, remote: l.at}, nil
}

// listen listens at an address that no node has.
func listen(t *testing.T) net.Listener {
	l := need.Got(around.Listen("tcp", freeAddr(t)))(t)
	t.Cleanup(func() { l.Close() })
	return l
}

type listener struct {
	on      *network
	at      *net.TCPAddr
	arrived chan *conn
	once    sync.Once
	closed  chan struct{}
}

func (l *listener) Addr() net.Addr { return l.at }

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.arrived:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener: connections that nobody has accepted end.
func (l *listener) Close() error {
	l.once.Do(func() {
		l.on.mu.Lock()
		defer l.on.mu.Unlock()
		delete(l.on.listeners, l.at.String())
		close(l.closed)
		for len(l.arrived) > 0 {
			(<-l.arrived).Close()
		}
	})
	return nil
}

// conn is one end of a connection.
type conn struct {
	in, out     *pipe
	own, remote net.Addr
}

func (c *conn) Read(b []byte) (int, error)       { return c.in.read(b) }
func (c *conn) Write(b []byte) (int, error)      { return c.out.write(b) }
func (c *conn) LocalAddr() net.Addr              { return c.own }
func (c *conn) RemoteAddr() net.Addr             { return c.remote }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
func (c *conn) SetDeadline(t time.Time) error    { return c.SetReadDeadline(t) }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.change(func() { c.in.until = t })
	if !t.IsZero() {
		time.AfterFunc(time.Until(t), func() { c.in.change(func() {}) })
	}
	return nil
}

// Close implements net.Conn: the other end reads what was written before, and then the end.
func (c *conn) Close() error {
	c.out.change(func() { c.out.ended = true })
	c.in.change(func() { c.in.deaf = true })
	return nil
}

// pipe is one direction of a connection.
type pipe struct {
	changed     *sync.Cond
	bytes       []byte
	ended, deaf bool // closed by the writer, and by the reader
	until       time.Time
}

func newPipe() *pipe { return &pipe{changed: sync.NewCond(new(sync.Mutex))} }

func (p *pipe) change(do func()) {
	p.changed.L.Lock()
	defer p.changed.L.Unlock()
	do()
	p.changed.Broadcast()
}

func (p *pipe) read(b []byte) (n int, err error) {
	p.changed.L.Lock()
	defer p.changed.L.Unlock()
	for {
		switch {
		case p.deaf:
			return 0, net.ErrClosed
		case len(p.bytes) > 0:
			n = copy(b, p.bytes)
			p.bytes = p.bytes[n:]
			return n, nil
		case p.ended:
			return 0, io.EOF
		case !p.until.IsZero() && !time.Now().Before(p.until):
			return 0, os.ErrDeadlineExceeded
		}
		p.changed.Wait()
	}
}

func (p *pipe) write(b []byte) (n int, err error) {
	p.change(func() {
		if p.ended || p.deaf {
			err = net.ErrClosed
			return
		}
		p.bytes, n = append(p.bytes, b...), len(b)
	})
	return n, err
}
