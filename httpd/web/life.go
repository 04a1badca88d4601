package web

import (
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"time"
)

// Connections over TLS have a limited life, and with them ends the trust in certificates that were replaced since: the
// first response after two thirds of it, or a bit more, is the last on its connection, and a stream ends then. The
// rest is left for calls that wait, up to ten minutes or a bit more. Each connection has its own limit, so that not
// all clients come back at once.

// lifeOf is the key of a connection's Life in its context.
type lifeOf struct{}

// Life is a connection's beginning and its share of the time.
type Life struct {
	begun time.Time
	share float64 // of the time limit, after which it ends
}

// WithLife is an http.Server.ConnContext that remembers when a connection began.
func WithLife(ctx context.Context, _ net.Conn) context.Context {
	return Life{time.Now(), (2 + rand.Float64()*0.45) / 3}.With(ctx)
}

// With returns the context of a connection that continues a life.
func (l Life) With(ctx context.Context) context.Context { return context.WithValue(ctx, lifeOf{}, l) }

// LifeOf returns the life of a context's connection, or the zero value if none was begun.
func LifeOf(ctx context.Context) Life {
	l, _ := ctx.Value(lifeOf{}).(Life)
	return l
}

// ends returns when a request's connection ends, or zero for never.
func (n *Node) ends(r *http.Request) time.Time {
	if r.TLS == nil {
		return time.Time{}
	}
	l := LifeOf(r.Context())
	if l == (Life{}) {
		return time.Time{}
	}
	return l.begun.Add(time.Duration(l.share * float64(n.ConnectionLife)))
}

// WhileItLasts returns a context for a stream that also ends with its connection's life.
func (n *Node) WhileItLasts(ctx context.Context, r *http.Request) (context.Context, context.CancelFunc) {
	ends := n.ends(r)
	if ends.IsZero() {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(time.Until(ends), cancel)
	return ctx, func() { timer.Stop(); cancel() }
}

// IsLast reports whether the response to a request must be the last on its connection.
func (n *Node) IsLast(r *http.Request) bool {
	if n.Draining.Load() {
		return true
	}
	ends := n.ends(r)
	return !ends.IsZero() && !time.Now().Before(ends)
}
