package localcluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Direction is one of the two ways through a proxied connection.
type Direction int

// Directions, seen from the side that dials.
const (
	There Direction = iota
	Back
)

// Proxy is a TCP proxy in front of one address. Each direction can be cut on its own: then bytes vanish without a
// reset, as in a network that drops packets.
type Proxy struct {
	Target   string
	listener net.Listener
	pumps    sync.WaitGroup
	carried  [2]atomic.Int64 // bytes

	closing context.Context // ends when the proxy stops
	close   context.CancelFunc

	mu    sync.Mutex
	cut   [2]bool           // by direction
	held  chan struct{}     // closed when bytes may pass again; nil if they may
	conns map[net.Conn]bool // both ends of every pair
}

// StartProxy starts a proxy for target. The caller stops it.
func StartProxy(target string) (*Proxy, error) {
	port, err := ClaimPort()
	if err != nil {
		return nil, fmt.Errorf("proxy for %s: %w", target, err)
	}
	l, err := net.Listen("tcp", Address(port))
	if err != nil {
		return nil, fmt.Errorf("proxy for %s: %w", target, err)
	}
	p := &Proxy{Target: target, listener: l, conns: make(map[net.Conn]bool)}
	p.closing, p.close = context.WithCancel(context.Background())
	p.pumps.Go(p.accept)
	return p, nil
}

// Stop closes everything and waits for it.
func (p *Proxy) Stop() {
	p.listener.Close()
	p.Release()
	p.mu.Lock()
	p.close()
	p.closeConns()
	p.mu.Unlock()
	p.pumps.Wait()
}

// Addr returns where to dial instead of the target.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Carried returns how many bytes have passed in a direction.
func (p *Proxy) Carried(d Direction) int64 { return p.carried[d].Load() }

// Cut makes the bytes of the directions vanish, on current and future connections. No direction means both.
func (p *Proxy) Cut(directions ...Direction) {
	if len(directions) == 0 {
		directions = []Direction{There, Back}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range directions {
		p.cut[d] = true
	}
}

// Heal ends a cut, if there is one. Connections from before are closed: their streams may have holes.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut != [2]bool{} {
		p.cut = [2]bool{}
		p.closeConns()
	}
}

// Hold holds back the bytes of both directions, on current and future connections, like a network that drops packets
// until the kernels send them again.
func (p *Proxy) Hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held == nil {
		p.held = make(chan struct{})
	}
}

// Release delivers what was held back, even on connections that their sender has closed since.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		close(p.held)
		p.held = nil
	}
}

// closeConns closes all connections; the caller holds mu.
func (p *Proxy) closeConns() {
	for conn := range p.conns {
		conn.Close()
	}
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return // stopped
		}
		p.pumps.Go(func() { p.serve(conn) })
	}
}

// serve joins a dialled connection with a new one to the target. An unreachable target looks like a connection that
// was closed at once.
func (p *Proxy) serve(near net.Conn) {
	defer near.Close()
	var d net.Dialer
	far, err := d.DialContext(p.closing, "tcp", p.Target) // a stopped process may keep it waiting
	if err != nil {
		return
	}
	defer far.Close()
	if !p.track(near, far) {
		return
	}
	defer p.untrack(near, far)
	var back sync.WaitGroup
	back.Go(func() { p.pump(near, far, Back) })
	p.pump(far, near, There)
	back.Wait()
}

// track remembers connections that must be closed, and reports whether the proxy still runs.
func (p *Proxy) track(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		p.conns[conn] = true
	}
	return p.closing.Err() == nil
}

// untrack forgets connections that have been closed.
func (p *Proxy) untrack(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		delete(p.conns, conn)
	}
}

// pump copies until either side is closed, and then closes both.
func (p *Proxy) pump(to, from net.Conn, d Direction) {
	defer to.Close()
	defer from.Close()
	io.Copy(sieve{p, to, d}, from) // any error is an end of the connection
}

// sieve writes to a connection unless the direction is cut.
type sieve struct {
	p  *Proxy
	to net.Conn
	d  Direction
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
	n, err := s.to.Write(b)
	s.p.carried[s.d].Add(int64(n))
	return n, err
}

// Links are the proxies between nodes, by the node that connects and the one it connects to; nil if a node is reached
// directly.
type Links [][]*Proxy

// StartLinks starts a proxy for each pair of nodes that between chooses. It returns the started proxies even after an
// error. The caller stops them.
func StartLinks(nodes []*Node, between func(from, to *Node) bool) (Links, error) {
	links := make(Links, len(nodes))
	for i, from := range nodes {
		links[i] = make([]*Proxy, len(nodes))
		for j, to := range nodes {
			if i == j || !between(from, to) {
				continue
			}
			target := to.HTTP
			if from.Datacenter == to.Datacenter && from.Mode == CP {
				target = to.Cluster
			}
			proxy, err := StartProxy(target)
			if err != nil {
				return links, err
			}
			links[i][j] = proxy
		}
	}
	return links, nil
}

// Introduce introduces all nodes to each, at the addresses of their proxies if they have any.
func (l Links) Introduce(nodes []*Node) {
	for i, n := range nodes {
		all := slices.Clone(nodes)
		var dial []string
		for j, proxy := range l[i] {
			if proxy == nil {
				continue
			}
			seen := *nodes[j]
			if proxy.Target == seen.Cluster {
				seen.Cluster = proxy.Addr()
				dial = append(dial, seen.Name+"="+proxy.Addr())
			} else {
				seen.HTTP = proxy.Addr()
			}
			all[j] = &seen
		}
		n.Introduce(all)
		if len(dial) > 0 {
			n.Settings["test.dial"] = strings.Join(dial, ",")
		}
	}
}

// Each calls do for every proxy.
func (l Links) Each(do func(from, to int, p *Proxy)) {
	for from, row := range l {
		for to, proxy := range row {
			if proxy != nil {
				do(from, to, proxy)
			}
		}
	}
}

// Cut cuts all links in both directions.
func (l Links) Cut() { l.Each(func(_, _ int, p *Proxy) { p.Cut() }) }

// Heal ends all cuts.
func (l Links) Heal() { l.Each(func(_, _ int, p *Proxy) { p.Heal() }) }

// Stop stops all proxies.
func (l Links) Stop() { l.Each(func(_, _ int, p *Proxy) { p.Stop() }) }

// Sent returns how many bytes a node has sent to others through proxies, requests and responses.
func (l Links) Sent(node int) int64 {
	var n int64
	l.Each(func(from, to int, p *Proxy) {
		if from == node {
			n += p.Carried(There)
		}
		if to == node {
			n += p.Carried(Back)
		}
	})
	return n
}
