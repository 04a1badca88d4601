package web

import (
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"time"
)

// Connections over TLS end by themselves within a time, and with them the trust in certificates that were exchanged since they
// were made: a response after two thirds of it, or a bit more, is the last one of its connection, and a stream ends then. What
// waits, for ten minutes or a bit more, has the rest. Each has a time of its own, so that not all clients come back at once.

// lifeOf is the key of a connection's Life in its context.
type lifeOf struct{}

// Life is that of a connection.
type Life struct {
	begun time.Time
	share float64 // of the time, after which it ends
}

// WithLife is a http.Server.ConnContext that remembers when a connection began.
func WithLife(ctx context.Context, _ net.Conn) context.Context {
	return Life{time.Now(), (2 + rand.Float64()*0.45) / 3}.With(ctx)
}

// With is the context of a connection that goes on with a life.
func (l Life) With(ctx context.Context) context.Context { return context.WithValue(ctx, lifeOf{}, l) }

// LifeOf is the life of the connection of a context; the zero value: none was begun.
func LifeOf(ctx context.Context) Life {
	l, _ := ctx.Value(lifeOf{}).(Life)
	return l
}

// ends is when the connection of a request ends by itself; zero: never.
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

// WhileItLasts is a context of a stream, which ends with the life of its connection, too.
func (n *Node) WhileItLasts(ctx context.Context, r *http.Request) (context.Context, context.CancelFunc) {
	ends := n.ends(r)
	if ends.IsZero() {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(time.Until(ends), cancel)
	return ctx, func() { timer.Stop(); cancel() }
}

// IsLast says that the response to a request is to be the last one of its connection.
func (n *Node) IsLast(r *http.Request) bool {
	if n.Draining.Load() {
		return true
	}
	ends := n.ends(r)
	return !ends.IsZero() && !time.Now().Before(ends)
}
