package load

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
	"slices"
	"strconv"
	"syscall"
	"time"
)

const (
	fewBytes  = 4 << 10  // the buffer of a connection: enough for most responses
	manyBytes = 64 << 10 // one read of a long body that is dropped
)

var (
	// errNotSent says that a request was not sent completely, so that no server can have acted on it.
	errNotSent = errors.New("the request was not sent")

	errShortWrite = errors.New("it does not fit into the connection's send buffer")
	errNotHTTP    = errors.New("not an HTTP/1.1 answer")
	errNoLength   = errors.New("the answer has no Content-Length, and is not chunked")
	errSurplus    = errors.New("more bytes than the answer has")
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
	into     []byte // where to read to
	n        int    // bytes read
	err      error
	open     bool // what peek found
	response response
}

// Dial opens a connection whose every exchange fails after deadline, unless SetDeadline changes that.
func Dial(addr string, deadline time.Time) (*Conn, error) {
	return dialContext(context.Background(), addr, deadline)
}

// dialContext is Dial, abandoned when ctx ends. The connection does not depend on ctx.
func dialContext(ctx context.Context, addr string, deadline time.Time) (*Conn, error) {
	conn, err := (&net.Dialer{Deadline: deadline}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &Conn{net: conn.(*net.TCPConn)}
	c.response.in = bufio.NewReaderSize((*answers)(c), fewBytes)
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
// it is when the server announces that it closes it (Idle); unless the error is errNotSent, the server may have acted
// on the request.
func (c *Conn) Exchange(request []byte) (status int, err error) {
	c.request = request
	if err := c.response.read(c.KeepBody); err != nil {
		return 0, err
	}
	return c.response.status, nil
}

// Size returns the size in bytes of the newest response's body.
func (c *Conn) Size() int64 { return c.response.size }

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
	var one [1]byte
	_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	c.open = errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR)
}

// answers is a connection as its reader sees it: the first read of an exchange also writes the request.
type answers Conn

// Read implements io.Reader.
func (a *answers) Read(p []byte) (int, error) {
	a.into, a.n, a.err = p, 0, nil
	if err := a.raw.Read(a.step); err != nil {
		return 0, err
	}
	return a.n, a.err
}

// advance writes the request, or reads. Returning false waits until there is something to read. Writing here, after the
// wait was armed, saves the read that would find nothing yet: a third of the system calls.
func (c *Conn) advance(fd uintptr) (done bool) {
	if c.request != nil {
		c.err = writeOnce(int(fd), c.request)
		c.request = nil
		return c.err != nil
	}
	for {
		n, err := syscall.Read(int(fd), c.into)
		switch {
		case err == syscall.EAGAIN:
			return false
		case err == syscall.EINTR:
			continue
		case err != nil:
			c.err = fmt.Errorf("read: %w", err)
		case n == 0:
			c.err = io.ErrUnexpectedEOF
		default:
			c.n = n
		}
		return true
	}
}

// writeOnce writes a request, which is far smaller than the send buffer of an idle connection.
func writeOnce(fd int, request []byte) error {
	for {
		n, err := syscall.Write(fd, request)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return fmt.Errorf("%w: %w", errNotSent, err)
		case n < len(request):
			return fmt.Errorf("%w: %w", errNotSent, errShortWrite)
		}
		return nil
	}
}

// response is an HTTP/1.1 answer. Its body is dropped unless it is to be kept. It knows what the measured servers send:
// a status line, a header with a Content-Length, a body; or a chunked body, as in Tomcat's errors.
type response struct {
	in      *bufio.Reader
	status  int
	length  int  // Content-Length; -1 if there is none
	chunked bool // which goes before a length
	closes  bool // the server closes the connection after the response
	size    int64
	text    []byte // the body, if it is kept
	drop    []byte // takes a long body that is not
}

// read reads a response to its end.
func (r *response) read(keep bool) (err error) {
	r.text = r.text[:0]
	if err = r.readHead(); err != nil {
		return err
	}
	switch {
	case r.status == http.StatusNoContent, r.status == http.StatusNotModified:
		r.size = 0
	case r.chunked:
		err = r.readChunked(keep)
	case r.length < 0:
		err = errNoLength
	default:
		r.size = int64(r.length)
		err = r.readBody(keep)
	}
	if err == nil && r.in.Buffered() > 0 {
		err = errSurplus
	}
	return err
}

// readHead reads the status line, and the fields of the header that matter here. It compares lines by hand, because
// almost all responses have only a line or two.
func (r *response) readHead() error {
	line, err := r.line()
	if err != nil {
		return err
	}
	code, ok := bytes.CutPrefix(line, []byte("HTTP/1.1 "))
	code, _, _ = bytes.Cut(code, []byte(" "))
	if r.status, err = strconv.Atoi(string(code)); err != nil || !ok {
		return errNotHTTP
	}
	r.length, r.chunked, r.closes = -1, false, false
	for {
		if line, err = r.line(); err != nil || len(line) == 0 {
			return err
		}
		if value, ok := field(line, "content-length:"); ok {
			if r.length, err = strconv.Atoi(string(value)); err != nil || r.length < 0 {
				return fmt.Errorf("Content-Length %q is not a number of bytes", value)
			}
		} else if value, ok := field(line, "transfer-encoding:"); ok {
			r.chunked = bytes.EqualFold(value, []byte("chunked"))
		} else if value, ok := field(line, "connection:"); ok {
			r.closes = bytes.EqualFold(value, []byte("close"))
		}
	}
}

// line returns the next line, without its end.
func (r *response) line() ([]byte, error) {
	line, err := r.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, errNotHTTP
	}
	return bytes.TrimRight(line, "\r\n"), err
}

// field returns the value of a line that has a name, which ends with a colon.
func field(line []byte, name string) (value []byte, ok bool) {
	if len(line) < len(name) || !bytes.EqualFold(line[:len(name)], []byte(name)) {
		return nil, false
	}
	return bytes.TrimSpace(line[len(name):]), true
}

// readBody reads a body of a known length. A long one does not go through the buffer: it takes few reads.
func (r *response) readBody(keep bool) (err error) {
	switch {
	case keep:
		r.text = slices.Grow(r.text, r.length)[:r.length]
		_, err = io.ReadFull(r.in, r.text)
		return err
	case r.length <= fewBytes:
		_, err = r.in.Discard(r.length)
		return err
	case r.drop == nil:
		r.drop = make([]byte, manyBytes)
	}
	for n, left := 0, r.length; left > 0 && err == nil; left -= n {
		n, err = r.in.Read(r.drop[:min(left, manyBytes)])
	}
	return err
}

// readChunked reads a chunked body (RFC 9112, 7.1), and the trailer, which ends with an empty line.
func (r *response) readChunked(keep bool) error {
	body, err := io.ReadAll(httputil.NewChunkedReader(r.in))
	if err != nil {
		return fmt.Errorf("chunked body: %w", err)
	}
	r.size = int64(len(body))
	if keep {
		r.text = append(r.text, body...)
	}
	for {
		if line, err := r.line(); err != nil || len(line) == 0 {
			return err
		}
	}
}
