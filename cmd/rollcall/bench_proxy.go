package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// benchProxy is a TCP proxy before a node. Cut, it makes bytes vanish in both directions without a
// reset, as a network does that drops packets.
type benchProxy struct {
	target   string
	listener net.Listener
	pumps    sync.WaitGroup
	cut      atomic.Bool
	there    atomic.Int64 // bytes that it has carried to the target
	back     atomic.Int64 // and from it

	closing context.Context // ends when the proxy stops
	close   context.CancelFunc

	mu    sync.Mutex
	conns map[net.Conn]bool // both ends of every pair
}

// startProxy starts a proxy before target. The caller stops it.
func startProxy(target string) (*benchProxy, error) {
	l, err := net.Listen("tcp", localhost(0))
	if err != nil {
		return nil, fmt.Errorf("proxy before %s: %w", target, err)
	}
	p := &benchProxy{target: target, listener: l, conns: make(map[net.Conn]bool)}
	p.closing, p.close = context.WithCancel(context.Background())
	p.pumps.Go(p.accept)
	return p, nil
}

func (p *benchProxy) addr() string { return p.listener.Addr().String() }

// heal lets bytes pass again. Connections from before are closed: their streams have holes.
func (p *benchProxy) heal() {
	p.cut.Store(false)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeAll()
}

// stop closes everything and waits for it.
func (p *benchProxy) stop() {
	p.listener.Close()
	p.mu.Lock()
	p.close()
	p.closeAll()
	p.mu.Unlock()
	p.pumps.Wait()
}

// closeAll closes all connections; p.mu is held.
func (p *benchProxy) closeAll() {
	for conn := range p.conns {
		conn.Close()
	}
}

func (p *benchProxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return // stopped
		}
		p.pumps.Go(func() { p.serve(conn) })
	}
}

// serve joins a connection with a new one to the target, which if it cannot be reached looks like one
// that closes at once.
func (p *benchProxy) serve(near net.Conn) {
	defer near.Close()
	var d net.Dialer
	far, err := d.DialContext(p.closing, "tcp", p.target) // a stopped process may let it wait
	if err != nil {
		return
	}
	defer far.Close()
	if !p.own(near, far) {
		return
	}
	defer p.disown(near, far)
	var back sync.WaitGroup
	back.Go(func() { p.pump(near, far, &p.back) })
	p.pump(far, near, &p.there)
	back.Wait()
}

// own remembers connections to be closed, and says whether they may be used.
func (p *benchProxy) own(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		p.conns[conn] = true
	}
	return p.closing.Err() == nil
}

func (p *benchProxy) disown(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		delete(p.conns, conn)
	}
}

// pump copies until either side is closed, and then closes both.
func (p *benchProxy) pump(to, from net.Conn, carried *atomic.Int64) {
	defer to.Close()
	defer from.Close()
	_, _ = io.Copy(sieve{to, &p.cut, carried}, from) // any error is an end of the connection
}

// sieve writes unless the link is cut.
type sieve struct {
	to      io.Writer
	cut     *atomic.Bool
	carried *atomic.Int64
}

// Write drops what a cut link would carry and says that it was written.
func (s sieve) Write(b []byte) (int, error) {
	if s.cut.Load() {
		return len(b), nil
	}
	n, err := s.to.Write(b)
	s.carried.Add(int64(n))
	return n, err
}
