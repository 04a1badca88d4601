package integration

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Direction is one of the two ways through a proxied connection.
type Direction int

// The directions, seen from the side that dials.
const (
	There Direction = iota
	Back
)

// Proxy is a TCP proxy in front of one address. Each direction can be cut on its own: then bytes
// vanish without a reset, as in a network that drops packets.
type Proxy struct {
	target   string
	listener net.Listener
	pumps    sync.WaitGroup

	mu    sync.Mutex
	cut   [2]bool
	delay time.Duration     // of every byte, one way
	held  chan struct{}     // closed when bytes may pass again; nil: they may
	conns map[net.Conn]bool // both ends of every pair
}

// NewProxy starts a proxy for target; it ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", FreeAddr(t))
	if err != nil {
		t.Fatalf("proxy for %s: %v", target, err)
	}
	p := &Proxy{target: target, listener: l, conns: map[net.Conn]bool{}}
	p.pumps.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.Release()
		p.closeAll()
		p.pumps.Wait()
	})
	return p
}

// Addr is where to dial instead of the target.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut makes the bytes of the directions vanish, on present and future connections.
func (p *Proxy) Cut(directions ...Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range directions {
		p.cut[d] = true
	}
}

// Heal lets bytes pass again. Connections from before are closed: their streams may have holes.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = [2]bool{}
	p.closeAllLocked()
}

// Hold keeps the bytes of both directions back, on present and future connections, as a network does
// that drops packets which the kernels send again.
func (p *Proxy) Hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held == nil {
		p.held = make(chan struct{})
	}
}

// Release delivers what was held back, also of connections that their sender has closed since.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		close(p.held)
		p.held = nil
	}
}

func (p *Proxy) closeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeAllLocked()
}

func (p *Proxy) closeAllLocked() {
	for conn := range p.conns {
		conn.Close()
	}
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return // the test has ended
		}
		p.pumps.Go(func() { p.serve(conn) })
	}
}

// serve joins a dialled connection with a new one to the target. An unreachable target looks like a
// connection that was closed at once.
func (p *Proxy) serve(conn net.Conn) {
	target, err := net.Dial("tcp", p.target)
	if err != nil {
		conn.Close()
		return
	}
	p.own(conn, target)
	defer p.disown(conn, target)
	var back sync.WaitGroup
	back.Go(func() { p.pump(conn, target, Back) })
	p.pump(target, conn, There)
	back.Wait()
}

func (p *Proxy) own(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		p.conns[conn] = true
	}
}

func (p *Proxy) disown(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		conn.Close()
		delete(p.conns, conn)
	}
}

// pump copies until either side is closed, and then closes both.
func (p *Proxy) pump(dst, src net.Conn, d Direction) {
	defer dst.Close()
	defer src.Close()
	p.mu.Lock()
	delay := p.delay
	p.mu.Unlock()
	var to io.Writer = sieve{p, dst, d}
	if delay > 0 {
		far := newFarWriter(to, delay)
		defer far.end()
		to = far
	}
	_, _ = io.Copy(to, src) // any error is an end of the connection
}

// farWriter writes what it is given a while later, as a long way does.
type farWriter struct {
	delay time.Duration
	way   chan parcel
	done  chan struct{}
}

type parcel struct {
	due time.Time
	b   []byte
}

func newFarWriter(to io.Writer, delay time.Duration) *farWriter {
	w := &farWriter{delay: delay, way: make(chan parcel, 1024), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for p := range w.way {
			time.Sleep(time.Until(p.due))
			to.Write(p.b) // an error shows on the connection
		}
	}()
	return w
}

// Write implements io.Writer.
func (w *farWriter) Write(b []byte) (int, error) {
	w.way <- parcel{time.Now().Add(w.delay), bytes.Clone(b)}
	return len(b), nil
}

// end waits until everything has arrived.
func (w *farWriter) end() {
	close(w.way)
	<-w.done
}

// Delay makes the bytes of future connections take so much longer, each way.
func (p *Proxy) Delay(by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = by
}

// sieve writes to a connection unless the direction is cut.
type sieve struct {
	p   *Proxy
	dst net.Conn
	d   Direction
}

// Write drops what a cut direction would carry and says it was written.
func (s sieve) Write(b []byte) (int, error) {
	s.p.mu.Lock()
	cut, held := s.p.cut[s.d], s.p.held
	s.p.mu.Unlock()
	if held != nil {
		<-held
	}
	if cut {
		return len(b), nil
	}
	return s.dst.Write(b)
}
