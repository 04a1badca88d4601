package httpd

import (
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/web"
)

// TookOver says whether the handler reads the connection from a client's address itself now.
func (h *Handler) TookOver(client string) bool {
	b := h.heartbeats.Load()
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		if c.conn.RemoteAddr().String() == client {
			return true
		}
	}
	return false
}

// ParseBeat makes parseBeat known to the tests.
func ParseBeat(b []byte, prefixes []string) (target, app, id string, size int, ok bool) {
	beat, size, ok := parseBeat(b, prefixes)
	return beat.target, beat.app, beat.id, size, ok
}

// Layers is how many connections a taken-over one is wrapped in, one within the other, for having been given
// back.
func (h *Handler) Layers(remote string) (n int) {
	b := h.heartbeats.Load()
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		if c.conn.RemoteAddr().String() != remote {
			continue
		}
		for conn, ok := c.conn.(*resumedConn); ok; conn, ok = conn.Conn.(*resumedConn) {
			n++
		}
	}
	return n
}

// CachedAnswers is the number of responses in the read-only cache.
func (h *Handler) CachedAnswers() int { return h.eureka.KeptResponses() }

// SetPace shortens the times of watches for the tests that cannot run in virtual time.
func (h *Handler) SetPace(gap, quiet, slow, cut time.Duration) {
	h.node.Watches.Pace = web.Pace{Gap: gap, Quiet: quiet, Slow: slow, Cut: cut}
}

// Routes lists the routes as METHOD template.
func (h *Handler) Routes(t *testing.T) []string {
	t.Helper()
	return routesOf(t, h)
}

// Idle is how many connections wait for a request.
func (c *Connections) Idle() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	idle := 0
	for _, conns := range c.from {
		for conn := range conns {
			if since := conn.idleSince.Load(); since != 0 && since <= time.Now().UnixNano() {
				idle++
			}
		}
	}
	return idle
}
