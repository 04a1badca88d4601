package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Link is what happens to bytes on their way from one host to another, in this direction.
type Link struct {
	Latency time.Duration
	Jitter  time.Duration // bytes take up to this much longer
	Lossy   bool          // one packet of five is lost, and sent again after a pause that doubles
	Cut     bool          // bytes wait until the link is healed; nothing is reset
}

// takes returns how long bytes are in transit.
func (l Link) takes() time.Duration {
	took := l.Latency
	if l.Jitter > 0 {
		took += rand.N(l.Jitter)
	}
	for again := resend; l.Lossy && again < time.Minute && rand.IntN(5) == 0; again *= 2 {
		took += again
	}
	return took
}

// network joins hosts. A connection keeps the order of its bytes, and holds back a writer whose reader is window
// bytes behind. No call waits while it holds mu, or virtual time would stand still.
type network struct {
	usual Link // for links that are not in links

	mu        sync.Mutex
	listeners map[string]*listener // by address
	links     map[[2]string]Link   // by the addresses of the two hosts
	streams   map[*stream]struct{}
	down      map[string]bool // hosts without power: nobody there says that a port is closed
	over      bool            // the run has ended: nobody opens a connection any more
	ports     int             // handed out to connections so far
}

func newNetwork(usual Link) *network {
	return &network{usual: usual, listeners: map[string]*listener{}, links: map[[2]string]Link{}, streams: map[*stream]struct{}{}, down: map[string]bool{}}
}

// window is how many bytes a connection holds in one direction.
const window = 1 << 20

// host is the network as one process has it.
type host struct {
	*network
	ip   string
	dead *bool // the process was killed: nothing comes from it any more, and nothing reaches it; mu guards it
}

func (n *network) host(ip string) host { return host{n, ip, new(bool)} }

// set changes the link from one host to another, in this direction.
func (n *network) set(from, to string, change func(*Link)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.link(from, to)
	change(&l)
	n.links[[2]string{from, to}] = l
	n.wake()
}

// heal restores all links to the usual one.
func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.links)
	n.wake()
}

// close makes connections that are being opened fail, and waits for that: net/http goes on opening them after those
// that asked for them have left.
func (n *network) close() {
	n.mu.Lock()
	n.over = true
	n.mu.Unlock()
	time.Sleep(time.Second)
}

// kill cuts a process off for good. The kernel of its machine resets its connections, unless the machine has lost its
// power.
func (n *network) kill(h host, power bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	*h.dead = true
	for address, l := range n.listeners {
		if l.host.dead == h.dead {
			delete(n.listeners, address)
		}
	}
	n.down[h.ip] = power
	if !power {
		n.resetDead()
	}
	n.wake()
}

// leave ends the connections of a process that has exited on its own: its machine resets them.
func (n *network) leave(h host) {
	n.mu.Lock()
	defer n.mu.Unlock()
	*h.dead = true
	n.resetDead()
	n.wake()
}

// boot ends connections of dead processes: a machine that has booted knows none of them.
func (n *network) boot(ip string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.down, ip)
	n.resetDead()
}

// reset resets the connections between two hosts.
func (n *network) reset(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for s := range n.streams {
		if s.from.ip == a && s.to.ip == b || s.from.ip == b && s.to.ip == a {
			s.fail(syscall.ECONNRESET)
		}
	}
}

// resetDead resets the connections of dead processes. The caller holds mu.
func (n *network) resetDead() {
	for s := range n.streams {
		if (*s.from.dead || *s.to.dead) && !n.down[s.from.ip] && !n.down[s.to.ip] {
			s.fail(syscall.ECONNRESET)
		}
	}
}

// wake makes all streams look again. The caller holds mu.
func (n *network) wake() {
	for s := range n.streams {
		s.changed.Broadcast()
	}
}

// link returns the link between hosts. The caller holds mu.
func (n *network) link(from, to string) Link {
	if l, ok := n.links[[2]string{from, to}]; ok {
		return l
	}
	if from == to {
		return Link{}
	}
	return n.usual
}

// Listen implements world.Network.
func (h host) Listen(kind, address string) (net.Listener, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if kind == "unix" {
		address = h.ip + address
	}
	refuse := func(err error) error {
		return &net.OpError{Op: "listen", Net: kind, Addr: addr{kind, address}, Err: err}
	}
	switch _, taken := h.listeners[address]; {
	case *h.dead:
		return nil, refuse(syscall.ENETDOWN)
	case taken:
		return nil, refuse(syscall.EADDRINUSE)
	}
	l := &listener{host: h, addr: addr{kind, address}, arrived: make(chan *conn, backlog), closed: make(chan struct{})}
	h.listeners[address] = l
	return l, nil
}

// backlog is how many connections wait to be accepted.
const backlog = 4096

// DialContext implements world.Network. It takes a round trip, and waits if a link is cut or the other host has no
// power.
func (h host) DialContext(ctx context.Context, kind, address string) (net.Conn, error) {
	ip, _, err := net.SplitHostPort(address)
	if kind == "unix" {
		ip, address, err = h.ip, h.ip+address, nil
	}
	if err == nil {
		err = h.pass(ctx, h.ip, ip)
	}
	var c *conn
	if err == nil {
		c, err = h.connect(kind, ip, address)
	}
	if back := h.pass(ctx, ip, h.ip); err == nil {
		err = back
	}
	if err != nil {
		if c != nil {
			c.reset()
		}
		return nil, &net.OpError{Op: "dial", Net: kind, Addr: addr{kind, address}, Err: err}
	}
	return c, nil
}

// connect hands a connection to the listener at an address.
func (h host) connect(kind, ip, address string) (*conn, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.listeners[address]
	if l == nil || len(l.arrived) == backlog {
		return nil, syscall.ECONNREFUSED
	}
	h.ports++
	own := tcpAddr(addr{kind, fmt.Sprintf("%s:%d", h.ip, 10_000+h.ports)})
	there, back := h.newStream(h, l.host), h.newStream(l.host, h)
	at := tcpAddr(l.addr)
	l.arrived <- &conn{in: there, out: back, own: at, remote: own}
	return &conn{in: back, out: there, own: own, remote: at}, nil
}

// pass waits as long as a packet takes from one host to another.
func (h host) pass(ctx context.Context, from, to string) error {
	changed := sync.NewCond(&h.mu)
	wake := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		changed.Broadcast()
	}
	defer context.AfterFunc(ctx, wake)()
	h.mu.Lock()
	defer h.mu.Unlock()
	at := time.Now().Add(h.link(from, to).takes())
	for {
		switch l := h.link(from, to); {
		case ctx.Err() != nil:
			return ctx.Err()
		case *h.dead, h.over:
			return syscall.ENETDOWN
		case !l.Cut && !h.down[from] && !h.down[to] && passed(at):
			return nil
		}
		wait := min(time.Until(at), resend)
		if wait <= 0 { // a healed link is noticed a moment later, by a packet that is sent again
			wait = resend
		}
		timer := time.AfterFunc(wait, wake)
		changed.Wait()
		timer.Stop()
	}
}

// resend is the pause before a packet that opens a connection is sent again.
const resend = 100 * time.Millisecond

type addr struct{ network, address string }

func (a addr) Network() string { return a.network }
func (a addr) String() string  { return a.address }

// tcpAddr returns an address in package net's form for TCP: a node counts connections by it.
func tcpAddr(a addr) net.Addr {
	host, port, err := net.SplitHostPort(a.address)
	number, notNumber := strconv.Atoi(port)
	if err != nil || notNumber != nil {
		return a // of a unix socket
	}
	return &net.TCPAddr{IP: net.ParseIP(host), Port: number}
}

type listener struct {
	host    host
	addr    addr
	arrived chan *conn
	closed  chan struct{}
	once    sync.Once
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.arrived:
		return c, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "accept", Net: l.addr.network, Addr: l.addr, Err: net.ErrClosed}
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.host.mu.Lock()
		defer l.host.mu.Unlock()
		if l.host.listeners[l.addr.address] == l {
			delete(l.host.listeners, l.addr.address)
		}
	})
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.addr }

// conn is one end of a connection.
type conn struct {
	in, out     *stream
	own, remote net.Addr
}

// newStream makes one direction of a connection. The caller holds mu.
func (n *network) newStream(from, to host) *stream {
	s := &stream{network: n, from: from, to: to, changed: sync.NewCond(&n.mu)}
	n.streams[s] = struct{}{}
	return s
}

func (c *conn) Read(b []byte) (int, error)         { return c.in.read(b) }
func (c *conn) Write(b []byte) (int, error)        { return c.out.write(b) }
func (c *conn) LocalAddr() net.Addr                { return c.own }
func (c *conn) RemoteAddr() net.Addr               { return c.remote }
func (c *conn) SetReadDeadline(t time.Time) error  { return c.in.setDeadline(&c.in.readBy, t) }
func (c *conn) SetWriteDeadline(t time.Time) error { return c.out.setDeadline(&c.out.writeBy, t) }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// CloseWrite ends what this end sends.
func (c *conn) CloseWrite() error {
	c.out.closeWrite()
	return nil
}

// Close implements net.Conn. The other end reads what was written before, and then the end.
func (c *conn) Close() error {
	c.out.closeWrite()
	c.in.closeRead()
	return nil
}

// reset ends the connection for both ends at once.
func (c *conn) reset() {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	c.in.fail(syscall.ECONNRESET)
	c.out.fail(syscall.ECONNRESET)
}

// stream is one direction of a connection. The network's mu guards it.
type stream struct {
	*network
	from, to host

	changed         *sync.Cond
	segments        []segment
	size            int
	last            time.Time // when the newest segment arrives
	ended           bool      // the writer has closed it
	deaf            bool      // the reader has closed it
	err             error     // for both ends
	readBy, writeBy time.Time
}

// waits reports whether nothing arrives at present. The caller holds mu.
func (s *stream) waits() bool {
	return s.link(s.from.ip, s.to.ip).Cut || *s.from.dead || *s.to.dead
}

type segment struct {
	b  []byte
	at time.Time
}

func (s *stream) wakeUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed.Broadcast()
}

// wait waits for a change, or for the first of the times that are not zero. The caller holds mu.
func (s *stream) wait(times ...time.Time) {
	var first time.Time
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	if !first.IsZero() {
		defer time.AfterFunc(time.Until(first), s.wakeUp).Stop()
	}
	s.changed.Wait()
}

func passed(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

func (s *stream) read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		waits := s.waits()
		switch {
		case s.deaf:
			return 0, net.ErrClosed
		case s.err != nil:
			return 0, &net.OpError{Op: "read", Net: "tcp", Err: s.err}
		case *s.to.dead:
			return 0, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ENETDOWN}
		case passed(s.readBy):
			return 0, &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
		case !waits && len(s.segments) > 0 && passed(s.segments[0].at):
			first := &s.segments[0]
			n := copy(b, first.b)
			if first.b = first.b[n:]; len(first.b) == 0 {
				s.segments = s.segments[1:]
			}
			s.size -= n
			s.changed.Broadcast()
			return n, nil
		case !waits && len(s.segments) == 0 && s.ended && passed(s.last):
			return 0, io.EOF
		}
		var next time.Time
		if !waits && len(s.segments) > 0 {
			next = s.segments[0].at
		} else if !waits && s.ended {
			next = s.last
		}
		s.wait(next, s.readBy)
	}
}

func (s *stream) write(b []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.ended:
			return n, net.ErrClosed
		case s.err != nil:
			return n, &net.OpError{Op: "write", Net: "tcp", Err: s.err}
		case *s.from.dead:
			return n, &net.OpError{Op: "write", Net: "tcp", Err: syscall.ENETDOWN}
		case s.deaf && !s.waits():
			return n, &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
		case passed(s.writeBy):
			return n, &net.OpError{Op: "write", Net: "tcp", Err: os.ErrDeadlineExceeded}
		case len(b) == 0:
			return n, nil
		case s.size < window:
			part := b[:min(len(b), window-s.size)]
			s.push(append([]byte(nil), part...))
			n, b = n+len(part), b[len(part):]
			continue
		}
		s.wait(s.writeBy)
	}
}

// push sends bytes on their way. The caller holds mu.
func (s *stream) push(b []byte) {
	at := time.Now().Add(s.link(s.from.ip, s.to.ip).takes())
	if at.Before(s.last) {
		at = s.last
	}
	s.last = at
	s.segments, s.size = append(s.segments, segment{b, at}), s.size+len(b)
	s.changed.Broadcast()
}

func (s *stream) closeWrite() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.ended = true
		if at := time.Now().Add(s.link(s.from.ip, s.to.ip).Latency); at.After(s.last) {
			s.last = at
		}
	}
	s.forget()
	s.changed.Broadcast()
}

func (s *stream) closeRead() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf, s.segments, s.size = true, nil, 0
	s.forget()
	s.changed.Broadcast()
}

// fail ends a stream for both ends. The caller holds mu.
func (s *stream) fail(err error) {
	if s.err == nil {
		s.err = err
	}
	delete(s.streams, s)
	s.changed.Broadcast()
}

// forget forgets a stream that both ends have closed. The caller holds mu.
func (s *stream) forget() {
	if s.ended && s.deaf {
		delete(s.streams, s)
	}
}

func (s *stream) setDeadline(at *time.Time, t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	*at = t
	s.changed.Broadcast()
	return nil
}
