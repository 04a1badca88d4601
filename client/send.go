package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// send asks one server, and returns its answer when that begins. done must be called when it was read. ctx
// and the end of the client (ErrClosed) cut it off, also while it is read; nothing else bounds it. It
// counts in the metrics as soon as it begins.
func (c *Client) send(ctx context.Context, s *server, q *call) (resp *http.Response, done context.CancelFunc, err error) {
	began := time.Now()
	resp, done, err = c.begin(ctx, s, q)
	status := 0
	if err == nil {
		status = resp.StatusCode
	}
	c.metrics.request(q.operation(), outcomeOf(status, err), time.Since(began))
	return resp, done, err
}

// begin is send that counts nowhere.
func (c *Client) begin(ctx context.Context, s *server, q *call) (*http.Response, context.CancelFunc, error) {
	if c.life.Err() != nil {
		return nil, nil, unsent{fmt.Errorf("%s %s: %w", q.method, s.url, ErrClosed)}
	}
	ctx, done := c.alive(ctx)
	resp, err := c.roundTrip(ctx, s, q)
	if err != nil {
		done()
		return nil, nil, err
	}
	resp.Body = cutBody{resp.Body, ctx, c.life}
	return resp, done, nil
}

// alive is ctx until the client is closed.
func (c *Client) alive(ctx context.Context) (context.Context, context.CancelFunc) {
	return either(ctx, c.life)
}

func (c *Client) roundTrip(ctx context.Context, s *server, q *call) (*http.Response, error) {
	connection := &connection{}
	req, err := q.request(httptrace.WithClientTrace(ctx, connection.trace()), s)
	if err != nil {
		return nil, conclusive{unsent{err}}
	}
	if err := s.sign(req, c.auth); err != nil {
		return nil, conclusive{unsent{fmt.Errorf("sign a request of %s: %w", s.url, err)}}
	}
	resp, err := c.http.Do(req)
	if err == nil {
		return resp, nil
	}
	err = withCause(err, ctx, c.life)
	if connection.missing() {
		err = unsent{err}
	}
	return nil, err
}

// withCause puts the reason why a call was cut off in the place of how that showed: the first of the
// contexts that has ended. (A client's life ends before its connections do, and its calls a bit later.)
func withCause(err error, of ...context.Context) error {
	for _, ctx := range of {
		if cause := context.Cause(ctx); cause != nil {
			return becauseOf(cause, err)
		}
	}
	return err
}

func becauseOf(cause, err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return &url.Error{Op: of.Op, URL: of.URL, Err: cause}
	}
	return cause
}

// connection observes whether a request had one: without, nothing was sent. A transport that tells
// nothing leaves it open.
type connection struct{ wanted, got atomic.Bool }

func (c *connection) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) { c.wanted.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { c.got.Store(true) },
	}
}

func (c *connection) missing() bool { return c.wanted.Load() && !c.got.Load() }

// cutBody says why reading an answer was cut off.
type cutBody struct {
	io.ReadCloser
	ctx, life context.Context
}

// Read implements io.Reader.
func (b cutBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = withCause(err, b.ctx, b.life)
	}
	return n, err
}

// unsent is an error of a call that no server has seen.
type unsent struct{ error }

// Unwrap returns what was wrong.
func (u unsent) Unwrap() error { return u.error }

// conclusive is an error that no other server would change.
type conclusive struct{ error }

// Unwrap returns what was wrong.
func (s conclusive) Unwrap() error { return s.error }

// Of the client's own transport. Upstream keeps 50 connections per host, each for 45 s.
const (
	idlePerHost = 64
	idleTimeout = 45 * time.Second
	// An HTTP/2 connection that carries nothing for pingAfter is asked whether it still leads anywhere;
	// otherwise all calls would go on over one that was cut silently, until TCP notices.
	pingAfter   = 15 * time.Second
	pingTimeout = 5 * time.Second
)

// httpClient is the one that Config asks for, and what to do with it at the end: a given one stays as it
// is, because others may use it.
func (c Config) httpClient() (client *http.Client, end func()) {
	if c.HTTPClient != nil {
		return c.HTTPClient, func() {}
	}
	transport := c.transport()
	dials := newDials(transport.DialContext)
	transport.DialContext = dials.connect
	own := &http.Client{
		Transport: transport,
		// A redirect would repeat a write where nobody asked for it; it is an answer like others.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return own, func() {
		own.CloseIdleConnections()
		dials.close()
	}
}

func (c Config) transport() *http.Transport {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	if standard, ok := http.DefaultTransport.(*http.Transport); ok { // a program may have put its own there
		t = standard.Clone()
	}
	if c.TLS != nil {
		t.TLSClientConfig = c.TLS.Clone()
	}
	t.MaxIdleConns = 0 // of all hosts together: as many as they are worth one by one
	t.MaxIdleConnsPerHost = idlePerHost
	t.IdleConnTimeout = idleTimeout
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
	return t
}

// patience bounds one try at one server: the time until its answer begins, each pause within the answer,
// and the whole, so that an answer that trickles for ever ends as well.
type patience struct {
	pause time.Duration
	end   context.CancelCauseFunc
	next  *time.Timer // ends the try unless something comes before
	whole *time.Timer
}

// wholeAnswer is how many pauses an answer may take altogether.
const wholeAnswer = 10

// withPatience bounds ctx. stop must be called.
func withPatience(ctx context.Context, first, pause time.Duration) (context.Context, *patience) {
	ctx, end := context.WithCancelCause(ctx)
	p := &patience{pause: pause, end: end}
	p.next = time.AfterFunc(first, func() { end(silence{"no answer", first}) })
	p.whole = time.AfterFunc(first+wholeAnswer*pause, func() { end(silence{"no whole answer", first + wholeAnswer*pause}) })
	return ctx, p
}

func (p *patience) stop() {
	p.next.Stop()
	p.whole.Stop()
	p.end(nil)
}

// reader is the answer, from its beginning on.
func (p *patience) reader(body io.Reader) io.Reader {
	p.next.Stop()
	p.next = time.AfterFunc(p.pause, func() { p.end(silence{"nothing more of the answer", p.pause}) })
	return patientReader{body, p}
}

type patientReader struct {
	io.Reader
	patience *patience
}

// Read implements io.Reader.
func (r patientReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.patience.next.Reset(r.patience.pause)
	return n, err
}

// silence is a context.DeadlineExceeded that says of what.
type silence struct {
	of    string
	after time.Duration
}

// Error says what did not come, and for how long.
func (s silence) Error() string { return fmt.Sprintf("%s within %v", s.of, s.after) }

// Is says that it is a timeout.
func (s silence) Is(target error) bool { return target == context.DeadlineExceeded }

// refused says that trying again would bring the same answer.
func refused(err error) bool {
	if errors.Is(err, ErrClosed) || errors.Is(err, ErrNeedsRollcall) {
		return true
	}
	var status *StatusError
	if !errors.As(err, &status) {
		return false
	}
	return status.Status >= 400 && status.Status < 500 && status.Status != http.StatusTooManyRequests
}

// wait returns false if ctx ended before d had passed.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// either returns ctx with a second reason to end: that of other.
func either(ctx, other context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}

// await waits until done is closed. The error says what was waited for, and why ctx ended before.
func await(ctx context.Context, done <-chan struct{}, what string, args ...any) error {
	select {
	case <-done:
	case <-ctx.Done():
		if !isClosed(done) {
			return annotate(context.Cause(ctx), what, args)
		}
	}
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

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
