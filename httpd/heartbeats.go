package httpd

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// Clients send heartbeats over connections that carry little else, and net/http spends more on each than the registry
// does. So the second heartbeat in a row makes the handler take its connection over: from then on plain heartbeats are
// read here and served by the usual code; anything that is not plainly a heartbeat is left unread and given back to
// net/http with the connection. Only requests that both would understand alike are ever read here; docs/adr/0007 has
// the reasons and the figures.

// heartbeats holds the connections that the handler has taken over.
type heartbeats struct {
	returned chan net.Conn // connections on their way back to net/http
	stopped  chan struct{} // closed when no more connections go back
	closing  atomic.Bool

	mu    sync.Mutex // guards conns; no heartbeat takes it
	conns map[*beatConn]struct{}
	ended sync.WaitGroup
}

// Idle and write time limits of a connection, and how old they may get before they are set again: setting them costs
// as much as a heartbeat.
const (
	beatTimeout = 90 * time.Second
	beatRefresh = 5 * time.Second
	// beatLastLook is how long shutdown waits on each idle connection for a heartbeat that is on its way.
	beatLastLook = 20 * time.Millisecond
)

// worthTakingOver is how many heartbeats make up for taking a connection over and giving it back. A connection that
// was given back carries other requests between its heartbeats, or heartbeats that only net/http understands, and
// would go back and forth.
const worthTakingOver = 64

// beatsInARow is the context key for a connection's counter of heartbeats; an odd connection has no counter.
type beatsInARow struct{}

// Serve serves on l until server is shut down or closed, as server.Serve does, or as server.ServeTLS does if server
// has a TLSConfig, and lets the handler take over connections for heartbeats. Call it once.
func (h *Handler) Serve(server *http.Server, l net.Listener) error {
	b := &heartbeats{returned: make(chan net.Conn), stopped: make(chan struct{}), conns: map[*beatConn]struct{}{}}
	h.heartbeats.Store(b)
	if server.TLSConfig != nil {
		l = tls.NewListener(l, server.TLSConfig) // server.ServeTLS would repeat the handshake on returned connections
	}
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		ctx = registry.OnLine(ctx)
		if counted := countedOf(conn); counted != nil {
			ctx = web.WithGatherer(ctx, counted)
		}
		resumed := resumedOf(conn)
		if resumed == nil {
			return context.WithValue(web.WithLife(ctx, conn), beatsInARow{}, new(int))
		}
		ctx = resumed.life.With(ctx)
		if resumed.odd {
			return ctx
		}
		return context.WithValue(ctx, beatsInARow{}, new(int))
	}
	server.RegisterOnShutdown(b.stop)
	server.RegisterOnShutdown(h.EndWatches)
	served := make(chan error, 1)
	go func() { served <- server.Serve(&returnedListener{l, b}) }()
	err := server.Serve(l)
	b.stop()
	<-served // ends now, because no connection is returned any more
	return err
}

// Shutdown waits until the heartbeats under way on taken-over connections, which http.Server.Shutdown does not know,
// have their responses. It cuts none off; its error is the context's.
func (h *Handler) Shutdown(ctx context.Context) error {
	b := h.heartbeats.Load()
	if b == nil {
		return nil
	}
	b.stop()
	done := make(chan struct{})
	go func() { // ends with the last connection; Close can force that
		b.ended.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// EndWatches ends all watches and refuses new ones: http.Server.Shutdown would wait for them. Serve
// calls it at shutdown; where Serve is not used, register it with http.Server.RegisterOnShutdown.
func (h *Handler) EndWatches() { h.node.Watches.EndAll() }

// Close cuts off taken-over connections, which http.Server.Close does not know.
func (h *Handler) Close() {
	b := h.heartbeats.Load()
	if b == nil {
		return
	}
	b.stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		c.conn.Close()
	}
}

// stop ends idle connections after a last look, and the others after their response.
func (b *heartbeats) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closing.CompareAndSwap(false, true) {
		return
	}
	close(b.stopped)
	for c := range b.conns {
		if c.idle.Load() {
			_ = c.conn.SetReadDeadline(time.Unix(1, 0)) // wakes the connection; a closed one needs no waking
		}
	}
}

// add records a connection, or returns false if the server is shutting down.
func (b *heartbeats) add(c *beatConn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closing.Load() {
		return false
	}
	b.conns[c] = struct{}{}
	b.ended.Add(1)
	return true
}

// remove forgets a connection. Unless it is closed, net/http gets it back with the bytes read but not consumed, and
// keeps it if it is odd.
func (b *heartbeats) remove(c *beatConn, back, odd bool) {
	b.mu.Lock()
	delete(b.conns, c)
	b.mu.Unlock()
	defer b.ended.Done()
	if !back || c.conn.SetDeadline(time.Time{}) != nil {
		c.conn.Close()
		return
	}
	conn := c.conn
	if before := resumedOf(conn); before != nil && len(before.ahead) == 0 {
		conn = before.Conn // or each round trip would add a layer
	}
	select {
	case b.returned <- resume(conn, c.ahead(), odd, web.LifeOf(c.r.Context())):
	case <-b.stopped:
		c.conn.Close()
	}
}

// returnedListener hands connections back to net/http.
type returnedListener struct {
	net.Listener // on which the connections came
	b            *heartbeats
}

// Accept implements net.Listener.
func (l *returnedListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.b.returned:
		return conn, nil
	case <-l.b.stopped:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It does nothing: this listener ends with the other one.
func (l *returnedListener) Close() error { return nil }

// takeOver serves further heartbeats on the connection of r, if r is at least the second in a row and the connection
// can be taken over. The caller has already responded on w.
func (h *Handler) takeOver(w http.ResponseWriter, r *http.Request, status int) bool {
	b := h.heartbeats.Load()
	if b == nil || h.node.IsLast(r) || r.ProtoMajor != 1 || r.ProtoMinor != 1 || r.Close || r.ContentLength != 0 || status != http.StatusOK {
		return false
	}
	count, ok := r.Context().Value(beatsInARow{}).(*int)
	if !ok {
		return false
	}
	if *count++; *count < 2 {
		return false
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return false
	}
	c := newBeatConn(h, b, conn, buffered.Reader, r)
	c.w.header, c.w.status = w.Header(), status
	if !b.add(c) {
		c.w.header.Set("Connection", "close")
		c.write()
		conn.Close()
		return true
	}
	c.serve()
	return true
}

// beatConn is a taken-over connection.
type beatConn struct {
	h       *Handler
	b       *heartbeats
	conn    net.Conn
	host    string // host that the client asked for, and that net/http's side of the handler accepted
	in      *bufio.Reader
	r       *http.Request // reused for each heartbeat
	w       bareWriter
	out     []byte
	set     time.Time // when the time limits were set
	idle    atomic.Bool
	account *countedConn // nil if connections are not counted
	last    bool         // the response under way is the last one

	fields                       lastFields
	authorization, token, accept []byte // of the last heartbeat; r has them as well
	standing                     web.Standing
}

// newBeatConn returns a connection whose latest request was r.
func newBeatConn(h *Handler, b *heartbeats, conn net.Conn, in *bufio.Reader, r *http.Request) *beatConn {
	next := &http.Request{
		Method: http.MethodPut, URL: &url.URL{}, Header: http.Header{}, Body: http.NoBody, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		RemoteAddr: r.RemoteAddr, TLS: r.TLS,
	}
	return &beatConn{h: h, b: b, conn: conn, host: r.Host, in: in, r: next.WithContext(r.Context()), w: bareWriter{header: http.Header{}}, account: countedOf(conn)}
}

// serve sends the response to the heartbeat that net/http read, and then serves the ones that follow.
func (c *beatConn) serve() {
	back := false
	served := 0
	defer func() { c.b.remove(c, back, served < worthTakingOver) }()
	for ; c.write() && !c.last; served++ {
		if !c.wait() {
			return
		}
		if !c.heartbeat() {
			back = true
			return
		}
	}
}

// heartbeat serves the request in the buffer. It returns false, and leaves it unread, if it is not plainly a
// heartbeat.
func (c *beatConn) heartbeat() bool {
	beat, size, ok := parseBeat(c.ahead(), c.h.appsPrefixes, &c.fields)
	if !ok || string(beat.host) != c.host {
		return false
	}
	c.identify(&beat.beatFields)
	c.r.URL.Path, c.r.URL.RawQuery, c.r.RequestURI = beat.path, beat.query, beat.target
	clear(c.w.header)
	c.w.status, c.w.body = 0, c.w.body[:0]
	if c.last = c.h.node.IsLast(c.r) || c.b.closing.Load(); c.last {
		c.w.header.Set("Connection", "close")
	}
	c.h.beat(&c.w, c.r, beat.app, beat.id, &c.standing)
	_, _ = c.in.Discard(size) // cannot fail: the bytes are buffered
	return true
}

// identify gives the request the heartbeat's credential and accepted format. The connection's standing holds while
// these stay the same.
func (c *beatConn) identify(f *beatFields) {
	if bytes.Equal(f.authorization, c.authorization) && bytes.Equal(f.token, c.token) && bytes.Equal(f.accept, c.accept) {
		return
	}
	c.standing = web.Standing{}
	c.authorization, c.token, c.accept = bytes.Clone(f.authorization), bytes.Clone(f.token), bytes.Clone(f.accept)
	clear(c.r.Header)
	if len(c.authorization) > 0 {
		c.r.Header["Authorization"] = []string{string(c.authorization)}
	}
	if len(c.token) > 0 {
		c.r.Header["X-Consul-Token"] = []string{string(c.token)}
	}
	if len(c.accept) > 0 {
		c.r.Header["Accept"] = []string{string(c.accept)}
	}
}

// wait returns true when bytes arrived, or false when the connection has ended.
func (c *beatConn) wait() bool {
	if c.in.Buffered() > 0 {
		return true
	}
	now := time.Now()
	if now.Sub(c.set) > beatRefresh {
		c.set = now
		if err := c.conn.SetDeadline(now.Add(beatTimeout)); err != nil {
			return false
		}
	}
	if c.account != nil {
		c.account.idle(now)
		defer c.account.busy()
	}
	// Either this mark or the shutdown's is second, and the second one sees the first.
	c.idle.Store(true)
	defer c.idle.Store(false)
	if !c.b.closing.Load() {
		if _, err := c.in.Peek(1); err == nil {
			return true
		}
		if !c.b.closing.Load() {
			return false
		}
	}
	// Shutdown serves a heartbeat that is already on its way on an idle connection. A connection that times out at this
	// moment ends here, too.
	if err := c.conn.SetReadDeadline(time.Now().Add(beatLastLook)); err != nil {
		return false
	}
	_, err := c.in.Peek(1)
	return err == nil
}

func (c *beatConn) ahead() []byte {
	ahead, _ := c.in.Peek(c.in.Buffered())
	return ahead
}

// write sends the response in w, or returns false when the connection has ended.
func (c *beatConn) write() bool {
	c.out = c.w.appendTo(c.out[:0])
	_, err := c.conn.Write(c.out)
	return err == nil
}
