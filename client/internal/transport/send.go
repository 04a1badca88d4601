package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/internal/wait"
)

// try makes one try at one server, and remembers how the server fared.
func (c *Cluster) try(ctx context.Context, s *Server, q *Call) (Response, error) {
	sent := time.Now()
	a, err := c.exchange(ctx, s, q)
	if err == nil {
		err = q.insufficient(a)
	}
	c.requests.WithLabelValues(q.operation(), outcomeOf(a.Status, err)).Observe(time.Since(sent).Seconds())
	c.RecordOutcome(ctx, s, q, err)
	if err != nil {
		return Response{}, err
	}
	a.Sent = sent
	return a, nil
}

// RecordOutcome records for later calls how a server fared in a try.
func (c *Cluster) RecordOutcome(ctx context.Context, s *Server, q *Call, err error) {
	refused, isRefusal := errors.AsType[*Refusal](err)
	switch {
	case err == nil:
		c.servers.responded(s)
	case errors.Is(err, ErrClosed), errors.As(err, new(conclusive)), q.interrupted(ctx, c.config.Timeout):
	case errors.Is(err, ErrNeedsRollcall):
		c.servers.unfit(s)
	case isRefusal && q.unavailable(refused):
		c.servers.unavailable(s, retryAfter(refused.RetryAfter))
	default:
		c.servers.failed(s)
	}
}

// interrupted reports whether a try ended for a reason that says nothing about the server: its caller gave up, or had
// less time than the server was entitled to. (A caller that never has much time must still get away from a silent
// server.)
func (q *Call) interrupted(ctx context.Context, timeout time.Duration) bool {
	return errors.Is(ctx.Err(), context.Canceled) || ctx.Err() != nil && q.Patience > timeout
}

// exchange makes a request and reads the response, whatever its status.
func (c *Cluster) exchange(ctx context.Context, s *Server, q *Call) (Response, error) {
	ctx, patience := withPatience(ctx, cmp.Or(q.Patience, c.config.Timeout), c.config.Timeout)
	defer patience.stop()
	connection := &connection{}
	resp, done, err := c.roundTrip(ctx, s, q, connection)
	if err != nil {
		return Response{}, err
	}
	defer done()
	defer resp.Body.Close()
	a, err := c.read(s, resp, patience.reader(resp.Body))
	a.Repeated = q.once != "" && connection.got.Load() > 1
	return a, err
}

// read reads a response, with body in place of its own body.
func (c *Cluster) read(s *Server, resp *http.Response, body io.Reader) (Response, error) {
	text, err := readBounded(body, longestResponse)
	if err != nil {
		return Response{}, fmt.Errorf("read the response of %s: %w", s.URL, err)
	}
	return Response{Server: s.URL, Status: resp.StatusCode, Header: resp.Header, Body: text, refused: c.config.Refused}, nil
}

// OpenStream asks one server for a stream of the type that the call accepts, and returns its body as soon as that
// begins. Only ctx and the end of the client (ErrClosed) cut it off, also while it is read. The try counts in the
// metrics as soon as the response begins. final reports that the error is a refusal, which other servers would
// repeat.
func (c *Cluster) OpenStream(ctx context.Context, s *Server, q *Call) (body io.ReadCloser, final bool, err error) {
	began := time.Now()
	resp, done, err := c.roundTrip(ctx, s, q, &connection{})
	status := 0
	if err == nil {
		status = resp.StatusCode
	}
	c.requests.WithLabelValues(q.operation(), outcomeOf(status, err)).Observe(time.Since(began).Seconds())
	if err != nil {
		return nil, false, err
	}
	if resp.StatusCode == http.StatusOK && q.accepts(resp) {
		return streamBody{resp.Body, done}, false, nil
	}
	defer done()
	defer resp.Body.Close()
	return c.noStream(s, q, resp)
}

// streamBody is the body of a stream; closing it ends its request.
type streamBody struct {
	io.ReadCloser
	done context.CancelFunc
}

// Close implements io.Closer.
func (b streamBody) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}

// accepts reports whether a response has the type that a call accepts. A proxy may have a page for every path that it
// does not know.
func (q *Call) accepts(resp *http.Response) bool {
	given := resp.Header.Get("Content-Type")
	kind, _, _ := mime.ParseMediaType(given)
	return given == "" || kind == q.Accept
}

// longestRefusal bounds how much is read of a response that is not a stream.
const longestRefusal = 1 << 20

// noStream turns a response that is not a stream into an error.
func (c *Cluster) noStream(s *Server, q *Call, resp *http.Response) (_ io.ReadCloser, final bool, err error) {
	a, err := c.read(s, resp, io.LimitReader(resp.Body, longestRefusal))
	if err != nil {
		return nil, false, err
	}
	if err := q.insufficient(a); err != nil {
		return nil, false, err
	}
	refused := a.Refusal()
	if refused == nil {
		return nil, false, fmt.Errorf("%w: %s answers with %s", ErrNeedsRollcall, s.URL, resp.Header.Get("Content-Type"))
	}
	return nil, refused.Status != http.StatusTooManyRequests, refused
}

// roundTrip sends a request to one server, and returns its response as soon as that begins. Call done when the
// response has been read. Only ctx and the end of the client (ErrClosed) cut it off, also while it is read.
func (c *Cluster) roundTrip(
	ctx context.Context, s *Server, q *Call, connection *connection,
) (resp *http.Response, done context.CancelFunc, err error) {
	if c.life.Err() != nil {
		return nil, nil, unsent{fmt.Errorf("%s %s: %w", q.method, s.URL, ErrClosed)}
	}
	ctx, done = wait.Either(ctx, c.life)
	resp, err = c.request(ctx, s, q, connection)
	if err != nil {
		done()
		return nil, nil, err
	}
	resp.Body = cutBody{resp.Body, ctx, c.life}
	return resp, done, nil
}

func (c *Cluster) request(ctx context.Context, s *Server, q *Call, connection *connection) (*http.Response, error) {
	req, err := q.request(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { connection.wanted.Add(1) },
		GotConn: func(httptrace.GotConnInfo) { connection.got.Add(1) },
	}), s)
	if err != nil {
		return nil, conclusive{unsent{err}}
	}
	if err := s.sign(req, c.config.Auth); err != nil {
		return nil, conclusive{unsent{fmt.Errorf("sign a request of %s: %w", s.URL, err)}}
	}
	resp, err := c.http.Do(req)
	if err == nil {
		return resp, nil
	}
	err = withCause(err, ctx, c.life)
	if of, ok := errors.AsType[*url.Error](err); ok && s.socket != "" { // the server's name as users gave it
		err = &url.Error{Op: of.Op, URL: strings.Replace(of.URL, s.own(), s.URL+":", 1), Err: of.Err}
	}
	switch {
	case connection.got.Load() > 0:
		err = possible{err}
	case connection.wanted.Load() > 0:
		err = unsent{err}
	}
	return nil, err
}

// connection counts the connections that a request asked for and got. Without one, nothing was sent; with two,
// net/http has sent the request again. A transport without tracing leaves both at 0.
type connection struct{ wanted, got atomic.Int32 }

// cutBody is a body whose error says why reading was cut off.
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
