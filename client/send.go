package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"
)

// send asks one server, and returns its answer when that begins. done must be called when it was read. ctx
// and the end of the client (ErrClosed) cut it off, also while it is read; nothing else bounds it. It
// counts in the metrics as soon as it begins.
func (c *Client) send(ctx context.Context, s *server, q call) (resp *http.Response, done context.CancelFunc, err error) {
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
func (c *Client) begin(ctx context.Context, s *server, q call) (*http.Response, context.CancelFunc, error) {
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

func (c *Client) roundTrip(ctx context.Context, s *server, q call) (*http.Response, error) {
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
