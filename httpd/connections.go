package httpd

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/httpd/web"
)

// Connections bounds the connections of a listener. At the limit, a new connection replaces an idle one: among the
// addresses with an idle connection, the address that holds most connections loses the one that has been idle longest.
// So an address that holds many loses first, a client that waits for a response loses nothing, and a new client, above
// all a probe, is served at once.
type Connections struct {
	began time.Time
	mu    sync.Mutex // guards the fields below; no request takes it
	limit int
	// perAddress is the limit per address; 0 means no limit.
	perAddress int

	from  map[netip.Prefix]map[*countedConn]struct{}
	count int

	closedIdle, refused prometheus.Counter
}

// NewConnections allows limit connections, and perAddress from one address (0: any number), which for IPv6 is a /64.
func NewConnections(limit, perAddress int, metrics prometheus.Registerer) *Connections {
	closed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "rollcall", Subsystem: "http", Name: "connections_closed_total",
		Help: "Connections closed because of limits: idle ones replaced by a new one, and new ones refused because none was idle.",
	}, []string{"what"})
	c := &Connections{
		began: time.Now().Add(-1), limit: limit, perAddress: perAddress, from: map[netip.Prefix]map[*countedConn]struct{}{},
		closedIdle: closed.WithLabelValues("idle"), refused: closed.WithLabelValues("new"),
	}
	open := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "rollcall", Subsystem: "http", Name: "connections", Help: "Connections to the HTTP API.",
	}, func() float64 { return float64(c.Count()) })
	metrics.MustRegister(closed, open)
	return c
}

// SetLimits replaces both limits for connections that come from now on.
func (c *Connections) SetLimits(limit, perAddress int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit, c.perAddress = limit, perAddress
}

// Listener counts what l accepts.
func (c *Connections) Listener(l net.Listener) net.Listener { return &countedListener{l, c} }

// since returns the time in ns since just before connections were first counted, so it is never 0.
func (c *Connections) since(now time.Time) int64 { return int64(now.Sub(c.began)) }

// Count returns the number of connections.
func (c *Connections) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

// State is an http.Server.ConnState hook: it records which connections wait for a request.
func (c *Connections) State(conn net.Conn, state http.ConnState) {
	counted := countedOf(conn)
	if counted == nil {
		return
	}
	switch state {
	case http.StateActive:
		counted.busy()
	case http.StateIdle:
		counted.idle(time.Now())
	}
}

// firstRequest is how long a new connection has for its first request before it counts as idle.
const firstRequest = 250 * time.Millisecond

// admit makes room for a connection and counts it, or returns nil to refuse it.
func (c *Connections) admit(conn net.Conn) *countedConn {
	admitted := &countedConn{Conn: conn, of: c}
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		admitted.from = web.NetworkOf(tcp.AddrPort().Addr()) // machines choose their addresses within it themselves
	}
	now := time.Now()
	admitted.idle(now.Add(firstRequest))
	c.mu.Lock()
	victim, ok := c.room(admitted.from, c.since(now))
	if victim != nil {
		c.removeLocked(victim)
	}
	if ok {
		if c.from[admitted.from] == nil {
			c.from[admitted.from] = map[*countedConn]struct{}{}
		}
		c.from[admitted.from][admitted] = struct{}{}
		c.count++
	}
	c.mu.Unlock()
	if victim != nil {
		c.closedIdle.Inc()
		victim.Conn.Close()
	}
	if !ok {
		c.refused.Inc()
		return nil
	}
	return admitted
}

// room returns the connection that must make way for a new one from an address, or nil and true if there is room
// already.
func (c *Connections) room(from netip.Prefix, now int64) (victim *countedConn, ok bool) {
	switch {
	case c.perAddress > 0 && len(c.from[from]) >= c.perAddress:
		victim, _ = longestIdle(c.from[from], now)
		return victim, victim != nil
	case c.count >= c.limit:
		victim = c.victim(now)
		// While none is idle, waiting readers, which may be as many as the limit, must leave room for writes and
		// probes.
		return victim, victim != nil || c.count < c.limit+c.limit/100+8
	}
	return nil, true
}

// victim returns the longest idle connection of the address that holds most connections, among addresses with an idle
// one.
func (c *Connections) victim(now int64) *countedConn {
	var victim *countedConn
	var most int
	var longest int64
	for _, conns := range c.from {
		if len(conns) < most {
			continue
		}
		idle, since := longestIdle(conns, now)
		if idle != nil && (len(conns) > most || since < longest) {
			victim, most, longest = idle, len(conns), since
		}
	}
	return victim
}

func longestIdle(conns map[*countedConn]struct{}, now int64) (longest *countedConn, since int64) {
	for c := range conns {
		if s := c.idleSince.Load(); s != 0 && s <= now && (longest == nil || s < since) {
			longest, since = c, s
		}
	}
	return longest, since
}

func (c *Connections) remove(conn *countedConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removeLocked(conn)
}

func (c *Connections) removeLocked(conn *countedConn) {
	conns := c.from[conn.from]
	if _, counted := conns[conn]; !counted {
		return
	}
	c.count--
	if delete(conns, conn); len(conns) == 0 {
		delete(c.from, conn.from)
	}
}

type countedListener struct {
	net.Listener
	of *Connections
}

// Accept implements net.Listener.
func (l *countedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if counted := l.of.admit(conn); counted != nil {
			return counted, nil
		}
		conn.Close()
	}
}

// countedConn is a connection counted by Connections.
type countedConn struct {
	net.Conn
	of        *Connections
	from      netip.Prefix
	idleSince atomic.Int64 // Connections.since at the start of its idleness; 0 while a request is under way
	gathered  *[]byte      // collects what is sent in one piece; nil if everything is sent at once
}

// gatherings holds empty *[]byte buffers for countedConn.
var gatherings = sync.Pool{New: func() any { return new([]byte) }}

// Gather implements web.Gatherer.
func (c *countedConn) Gather() { c.gathered = gatherings.Get().(*[]byte) }

// Send implements web.Gatherer.
func (c *countedConn) Send() {
	b := c.gathered
	c.gathered = nil
	if _, err := c.Conn.Write(*b); err != nil {
		c.Close() // net/http believes that it was sent
	}
	*b = (*b)[:0]
	gatherings.Put(b)
}

// Write implements net.Conn.
func (c *countedConn) Write(b []byte) (int, error) {
	if c.gathered == nil {
		return c.Conn.Write(b)
	}
	*c.gathered = append(*c.gathered, b...)
	return len(b), nil
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.of.remove(c)
	return c.Conn.Close()
}

func (c *countedConn) busy()              { c.idleSince.Store(0) }
func (c *countedConn) idle(now time.Time) { c.idleSince.Store(c.of.since(now)) }

// countedOf returns the counted connection underneath, or nil.
func countedOf(conn net.Conn) *countedConn {
	for {
		switch c := conn.(type) {
		case *countedConn:
			return c
		case *resumedConn:
			conn = c.Conn
		case *resumedTLS:
			conn = c.Conn
		case *tls.Conn:
			conn = c.NetConn()
		default:
			return nil
		}
	}
}

// resumedConn is a connection some of whose bytes were read ahead.
type resumedConn struct {
	net.Conn
	ahead []byte
	odd   bool // must not be taken over again
	life  web.Life
}

// resumedTLS is a resumedConn over TLS: net/http asks it for the state that handlers find in a request.
type resumedTLS struct {
	*resumedConn
	over *tls.Conn
}

// ConnectionState returns the state of the TLS connection.
func (c *resumedTLS) ConnectionState() tls.ConnectionState { return c.over.ConnectionState() }

// resume returns a connection that first reads the bytes read ahead.
func resume(conn net.Conn, ahead []byte, odd bool, life web.Life) net.Conn {
	c := &resumedConn{Conn: conn, ahead: ahead, odd: odd, life: life}
	switch over := conn.(type) {
	case *tls.Conn:
		return &resumedTLS{c, over}
	case *resumedTLS:
		return &resumedTLS{c, over.over}
	}
	return c
}

// resumedOf returns the resumed connection, or nil if it was not resumed.
func resumedOf(conn net.Conn) *resumedConn {
	switch c := conn.(type) {
	case *resumedConn:
		return c
	case *resumedTLS:
		return c.resumedConn
	}
	return nil
}

// Read implements net.Conn.
func (c *resumedConn) Read(p []byte) (int, error) {
	if len(c.ahead) > 0 {
		n := copy(p, c.ahead)
		c.ahead = c.ahead[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}
