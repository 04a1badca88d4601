package transport

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/internal/wait"
	"github.com/seed-20419f34/rollcall/internal/world"
)

// For the client's own transport. Upstream keeps 50 connections per host, each for 45 s.
const (
	idlePerHost = 64
	idleTimeout = 45 * time.Second
	// An HTTP/2 connection that carries nothing for pingAfter is pinged. Otherwise all calls would continue to use
	// one that was cut silently, until TCP notices.
	pingAfter   = 15 * time.Second
	pingTimeout = 5 * time.Second
)

// httpClient returns the client that Config asks for, and what to do with it at the end. A given one is left alone,
// because other parts of the program may use it.
func (c Config) httpClient() (client *http.Client, end func()) {
	if c.HTTPClient != nil {
		client := c.HTTPClient
		if c.Auth != nil && client.CheckRedirect == nil {
			still := *client
			still.CheckRedirect = noRedirect // net/http would show the credential to another port of the host
			client = &still
		}
		return client, func() {}
	}
	transport := c.transport()
	dials := newDials(transport.DialContext)
	transport.DialContext = dials.connect
	own := &http.Client{Transport: transport, CheckRedirect: noRedirect}
	return own, func() {
		own.CloseIdleConnections()
		dials.close()
	}
}

// noRedirect makes a redirect a response like others: following it would repeat a write, and show a credential, at a
// server that the client was not given.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func (c Config) transport() *http.Transport {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	if standard, ok := http.DefaultTransport.(*http.Transport); ok { // a program may have put its own there
		t = standard.Clone()
	}
	if c.TLS != nil {
		t.TLSClientConfig = c.TLS.Clone()
	}
	if proxy := t.Proxy; proxy != nil {
		t.Proxy = func(r *http.Request) (*url.URL, error) {
			if socketOf(r.URL.Host) != "" {
				return nil, nil
			}
			return proxy(r)
		}
	}
	t.MaxIdleConns = 0 // for all hosts together: as many as the per-host limits allow
	t.MaxIdleConnsPerHost = idlePerHost
	t.IdleConnTimeout = idleTimeout
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
	return t
}

// dials makes the connections of the client's own transport, and ends them all with the client. A transport alone
// lets a connection attempt continue for others when its call has ended, and closes only idle connections.
type dials struct {
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	life   context.Context
	cancel context.CancelCauseFunc

	mu   sync.Mutex
	open map[*dialed]struct{}
}

// dialed is a connection that ends with the client.
type dialed struct {
	net.Conn
	of *dials
}

// dialTimeout bounds one connection attempt.
const dialTimeout = 30 * time.Second

// newDials uses dial, or a net.Dialer if it is nil.
func newDials(dial func(ctx context.Context, network, address string) (net.Conn, error)) *dials {
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	d := &dials{dial: dial, open: make(map[*dialed]struct{})}
	d.life, d.cancel = context.WithCancelCause(context.Background())
	return d
}

// connect is an http.Transport's DialContext.
func (d *dials) connect(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, done := wait.Either(ctx, d.life)
	defer done()
	dial := d.dial
	if host, _, err := net.SplitHostPort(address); err == nil && socketOf(host) != "" { // the host stands for a socket
		dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return world.DialUnix(ctx, socketOf(host)) }
	}
	conn, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &dialed{conn, d}
	d.mu.Lock()
	open := d.open != nil
	if open {
		d.open[c] = struct{}{}
	}
	d.mu.Unlock()
	if !open {
		conn.Close()
		return nil, ErrClosed
	}
	return c, nil
}

// Close implements net.Conn.
func (c *dialed) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// close ends all connections, and prevents new ones.
func (d *dials) close() {
	d.cancel(ErrClosed)
	d.mu.Lock()
	all := d.open
	d.open = nil
	d.mu.Unlock()
	for c := range all {
		c.Conn.Close()
	}
}
