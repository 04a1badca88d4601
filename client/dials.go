package client

import (
	"context"
	"net"
	"sync"
	"time"
)

// dials makes the connections of the client's own transport, and ends them all with the client: a
// transport lets an attempt to connect go on for others when its call has ended, and closes only what is
// idle.
type dials struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	life context.Context
	end  context.CancelCauseFunc

	mu   sync.Mutex
	open map[*dialed]struct{}
}

// dialed is a connection that is ended with the client.
type dialed struct {
	net.Conn
	of *dials
}

// dialTimeout is how long one attempt to connect may go on.
const dialTimeout = 30 * time.Second

// newDials uses dial; nil: a net.Dialer.
func newDials(dial func(ctx context.Context, network, address string) (net.Conn, error)) *dials {
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	d := &dials{dial: dial, open: make(map[*dialed]struct{})}
	d.life, d.end = context.WithCancelCause(context.Background())
	return d
}

// connect is an http.Transport's DialContext.
func (d *dials) connect(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, done := either(ctx, d.life)
	defer done()
	conn, err := d.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &dialed{conn, d}
	if !d.add(c) {
		conn.Close()
		return nil, ErrClosed
	}
	return c, nil
}

func (d *dials) add(c *dialed) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		return false
	}
	d.open[c] = struct{}{}
	return true
}

// Close implements net.Conn.
func (c *dialed) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// close ends all connections, and lets no other begin.
func (d *dials) close() {
	d.end(ErrClosed)
	d.mu.Lock()
	all := d.open
	d.open = nil
	d.mu.Unlock()
	for c := range all {
		c.Conn.Close()
	}
}
