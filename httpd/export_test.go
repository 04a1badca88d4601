package httpd

import (
	"reflect"
	"testing"
	"time"
)

// TookOver reports whether the handler now reads the connection from a client's address itself.
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

// ParseBeat exports parseBeat to the tests.
func ParseBeat(b []byte, prefixes []string) (beat Beat, size int, ok bool) {
	last := new(lastFields)
	beat.plainBeat, size, ok = parseBeat(b, prefixes, last)
	again, sizeAgain, okAgain := parseBeat(b, prefixes, last)
	if sizeAgain != size || okAgain != ok || !reflect.DeepEqual(again, beat.plainBeat) {
		panic("a heartbeat is read otherwise when it comes again")
	}
	return beat, size, ok
}

// Beat exports plainBeat to the tests.
type Beat struct{ plainBeat }

// Name returns the target, and the application and instance in it.
func (b *Beat) Name() (target, app, id string) { return b.target, b.app, b.id }

// Fields returns the values of the fields that matter.
func (b *Beat) Fields() (authorization, token, accept string) {
	return string(b.authorization), string(b.token), string(b.accept)
}

// Layers returns how many wrappers a connection that was given back has, one inside the other.
func (h *Handler) Layers(remote string) (n int) {
	b := h.heartbeats.Load()
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		if c.conn.RemoteAddr().String() != remote {
			continue
		}
		for conn := resumedOf(c.conn); conn != nil; conn = resumedOf(conn.Conn) {
			n++
		}
	}
	return n
}

// CachedAnswers returns the number of responses in the read-only cache.
func (h *Handler) CachedAnswers() int { return h.eureka.KeptResponses() }

// Routes lists the routes as METHOD template.
func (h *Handler) Routes(t *testing.T) []string {
	t.Helper()
	return routesOf(t, h)
}

// Idle returns the number of connections that wait for a request.
func (c *Connections) Idle() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	idle := 0
	for _, conns := range c.from {
		for conn := range conns {
			if since := conn.idleSince.Load(); since != 0 && since <= conn.of.since(time.Now()) {
				idle++
			}
		}
	}
	return idle
}
