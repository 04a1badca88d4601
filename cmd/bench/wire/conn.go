// Package wire speaks HTTP/1.1 by hand over keep-alive connections, and sleeps until something is due. It exists
// because loads share their cores with the servers that they measure: net/http's client costs more than those do. It
// reads what the measured servers send, and refuses everything else.
package wire

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"syscall"
	"time"
)

// The buffer for one read: at first enough for most responses, and once it was filled, so large that a full document
// takes few reads.
const (
	fewBytes  = 4 << 10
	manyBytes = 64 << 10
)

// Conn is a keep-alive connection that has at most one request under way. One goroutine uses it, except for
// SetDeadline and Close.
type Conn struct {
	// KeepBody makes Body return what answers carried. It costs a copy.
	KeepBody bool

	net  *net.TCPConn
	raw  syscall.RawConn
	step func(fd uintptr) bool // c.advance, bound once: binding it for each request would allocate
	look func(fd uintptr)      // c.peek, bound once likewise

	request  []byte // not yet written
	buf      []byte
	response responseReader
	err      error
	open     bool // what peek found
}

// Dial opens a connection whose every exchange fails after deadline, unless SetDeadline changes that.
func Dial(addr string, deadline time.Time) (*Conn, error) {
	return DialContext(context.Background(), addr, deadline)
}

// DialContext is Dial, abandoned when ctx ends. The connection does not depend on ctx.
func DialContext(ctx context.Context, addr string, deadline time.Time) (*Conn, error) {
	conn, err := (&net.Dialer{Deadline: deadline}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &Conn{net: conn.(*net.TCPConn), buf: make([]byte, fewBytes)}
	c.step, c.look = c.advance, c.peek
	if c.raw, err = c.net.SyscallConn(); err == nil {
		err = c.net.SetDeadline(deadline)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// Close closes the connection. An exchange under way fails.
func (c *Conn) Close() error { return c.net.Close() }

// SetDeadline makes the exchange under way, and the next ones, fail from then on (os.ErrDeadlineExceeded). An answer
// may still come to what was sent, so the connection is unusable after that.
func (c *Conn) SetDeadline(t time.Time) error { return c.net.SetReadDeadline(t) }

// Exchange sends a whole request and returns the status of its response. After an error the connection is unusable, as
// it is when the server announces that it closes it (Idle); unless the error is ErrNotSent, the server may have acted
// on the request.
func (c *Conn) Exchange(request []byte) (status int, err error) {
	c.request, c.err = request, nil
	c.response.reset(c.KeepBody)
	if err := c.raw.Read(c.step); err != nil {
		return 0, err
	}
	return c.response.status, c.err
}

// Size returns the size in bytes of the newest response's body.
func (c *Conn) Size() int64 { return c.response.body }

// Body returns the body of the newest response, if KeepBody was set. It is valid until the next exchange.
func (c *Conn) Body() []byte { return c.response.text }

// Idle reports whether the connection is as it must be between two exchanges: open, with nothing to read, and not
// about to be closed, as the newest response may have said. So a server that has ended, or takes no further requests
// on this connection, is noticed before a request is sent to it in vain. It costs a system call.
func (c *Conn) Idle() bool {
	return !c.response.closes && c.raw.Control(c.look) == nil && c.open
}

// Closing reports whether the newest response said that the server closes the connection after it.
func (c *Conn) Closing() bool { return c.response.closes }

// peek looks for what must not come between two exchanges: an end, an error, surplus bytes.
func (c *Conn) peek(fd uintptr) {
	_, _, err := syscall.Recvfrom(int(fd), c.buf[:1], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	c.open = errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR)
}

// advance writes the request, and then reads until the response is complete. Returning false waits until there is more
// to read. Writing here, after the wait was armed, saves the read that would find nothing yet: a third of the system
// calls.
func (c *Conn) advance(fd uintptr) (done bool) {
	if c.request != nil {
		c.err = writeOnce(int(fd), c.request)
		c.request = nil
		return c.err != nil
	}
	for {
		n, err := syscall.Read(int(fd), c.buf)
		switch {
		case err == syscall.EAGAIN:
			return false
		case err == syscall.EINTR:
			continue
		case err != nil:
			c.err = fmt.Errorf("read: %w", err)
			return true
		case n == 0:
			c.err = io.ErrUnexpectedEOF
			return true
		}
		whole, err := c.response.read(c.buf[:n])
		if n == fewBytes && len(c.buf) == fewBytes {
			c.buf = make([]byte, manyBytes)
		}
		if whole || err != nil {
			c.err = err
			return true
		}
	}
}

// ErrNotSent says that a request was not sent completely, so that no server can have acted on it.
var ErrNotSent = errors.New("the request was not sent")

var errShortWrite = errors.New("it does not fit into the connection's send buffer")

// writeOnce writes a request, which is far smaller than the send buffer of an idle connection.
func writeOnce(fd int, request []byte) error {
	for {
		n, err := syscall.Write(fd, request)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return fmt.Errorf("%w: %w", ErrNotSent, err)
		case n < len(request):
			return fmt.Errorf("%w: %w", ErrNotSent, errShortWrite)
		}
		return nil
	}
}

// maxHead bounds a response's status line and header.
const maxHead = 16 << 10

var (
	errNotHTTP  = errors.New("not an HTTP/1.1 answer")
	errNoLength = errors.New("the answer has no Content-Length, and is not chunked")
	errSurplus  = errors.New("more bytes than the answer has")
)

// responseReader reads an HTTP/1.1 answer in pieces as they arrive, and drops the body unless it is to be kept. It
// knows what the measured servers send: a status line, a header with a Content-Length, a body; or a chunked body, as
// in Tomcat's errors.
type responseReader struct {
	status  int
	body    int64  // size of the body: known at the end of a chunked one, otherwise once head is false
	missing int64  // bytes of the body that have not arrived, unless it is chunked
	head    bool   // the header is not complete
	closes  bool   // the server closes the connection after the response
	kept    []byte // the start of a header that came in pieces
	keep    bool   // keep the body
	text    []byte // the body so far, if it is kept
	chunked bool
	raw     []byte // a chunked body so far
}

func (r *responseReader) reset(keep bool) {
	*r = responseReader{head: true, kept: r.kept[:0], keep: keep, text: r.text[:0], raw: r.raw[:0]}
}

// read takes the next bytes and reports whether the response is complete.
func (r *responseReader) read(b []byte) (whole bool, err error) {
	if r.head {
		if b, err = r.readHead(b); err != nil || r.head {
			return false, err
		}
	}
	if r.chunked {
		var body []byte
		r.raw = append(r.raw, b...)
		if body, whole, err = readChunked(r.raw); whole {
			r.body = int64(len(body))
			r.keepText(body)
		}
		return whole, err
	}
	if r.missing -= int64(len(b)); r.missing < 0 {
		return false, errSurplus
	}
	r.keepText(b)
	return r.missing == 0, nil
}

func (r *responseReader) keepText(b []byte) {
	if r.keep {
		r.text = append(r.text, b...)
	}
}

// readHead returns what follows the header, if that is complete.
func (r *responseReader) readHead(b []byte) (rest []byte, err error) {
	if len(r.kept) > 0 {
		r.kept = append(r.kept, b...)
		b = r.kept
	}
	head, rest, complete := bytes.Cut(b, []byte("\r\n\r\n"))
	if !complete {
		if len(b) > maxHead {
			return nil, errNotHTTP
		}
		if len(r.kept) == 0 {
			r.kept = append(r.kept, b...)
		}
		return nil, nil
	}
	r.head = false
	return rest, r.parseHead(head)
}

// statusLine is where the status ends, as in "HTTP/1.1 204".
const statusLine = len("HTTP/1.1 ") + 3

func (r *responseReader) parseHead(head []byte) (err error) {
	if len(head) < statusLine || !bytes.HasPrefix(head, []byte("HTTP/1.1 ")) {
		return errNotHTTP
	}
	if r.status, err = strconv.Atoi(string(head[statusLine-3 : statusLine])); err != nil {
		return errNotHTTP
	}
	length := r.parseFields(head)
	switch {
	case r.status == http.StatusNoContent || r.status == http.StatusNotModified:
		r.chunked = false
		return nil
	case r.chunked:
		return nil
	case length == nil:
		return errNoLength
	}
	if r.body, err = strconv.ParseInt(string(length), 10, 64); err != nil || r.body < 0 {
		return fmt.Errorf("Content-Length %q is not a number of bytes", length)
	}
	r.missing = r.body
	return nil
}

// parseFields reads the header's fields that matter here, and returns the Content-Length, or nil. It compares lines by
// hand, because almost all responses have only a line or two.
func (r *responseReader) parseFields(head []byte) (length []byte) {
	for len(head) > 0 {
		var line []byte
		line, head, _ = bytes.Cut(head, []byte("\r\n"))
		if value, ok := field(line, "content-length:"); ok {
			length = value
		} else if value, ok := field(line, "transfer-encoding:"); ok {
			r.chunked = bytes.EqualFold(value, []byte("chunked"))
		} else if value, ok := field(line, "connection:"); ok {
			r.closes = bytes.EqualFold(value, []byte("close"))
		}
	}
	return length
}

// field returns the value of a line that has a name, which ends with a colon.
func field(line []byte, name string) (value []byte, ok bool) {
	if len(line) < len(name) || !bytes.EqualFold(line[:len(name)], []byte(name)) {
		return nil, false
	}
	return bytes.TrimSpace(line[len(name):]), true
}

// Pause waits, and returns false if ctx ended first.
func Pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

var errChunk = errors.New("not a chunked body")

// readChunked reads a chunked body (RFC 9112, 7.1) from as much of it as has come, and reports whether that is all of
// it. It reads a long body only when it may have ended, not again with every piece that comes.
func readChunked(raw []byte) (body []byte, whole bool, err error) {
	if len(raw) > fewBytes && !bytes.HasSuffix(raw, []byte("\r\n\r\n")) {
		return nil, false, nil
	}
	r := bufio.NewReader(bytes.NewReader(raw))
	body, err = io.ReadAll(httputil.NewChunkedReader(r))
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), err == nil && len(raw) == 0:
		return nil, false, nil
	case err != nil:
		return nil, false, errChunk
	}
	for { // the trailer ends with an empty line
		line, err := r.ReadBytes('\n')
		switch {
		case err != nil:
			return nil, false, nil
		case len(bytes.TrimSpace(line)) == 0:
			if r.Buffered() > 0 {
				return nil, false, errSurplus
			}
			return body, true, nil
		}
	}
}
