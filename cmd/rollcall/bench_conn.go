package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

// benchReadBytes is the room for one read: large enough that a full document takes few of them.
const benchReadBytes = 64 << 10

// benchConn is a keep-alive connection that has at most one request under way. It exists because the
// load shares its cores with the servers that it measures: net/http's client costs more than they do.
type benchConn struct {
	net  *net.TCPConn
	raw  syscall.RawConn
	step func(fd uintptr) bool // c.advance, bound once: binding it for each request would allocate

	request []byte // not yet written
	buf     []byte
	answer  answerReader
	err     error
}

// dialBench opens a connection whose every exchange fails after deadline.
func dialBench(addr string, deadline time.Time) (*benchConn, error) {
	conn, err := net.DialTimeout("tcp", addr, time.Until(deadline))
	if err != nil {
		return nil, err
	}
	c := &benchConn{net: conn.(*net.TCPConn), buf: make([]byte, benchReadBytes)}
	c.step = c.advance
	if c.raw, err = c.net.SyscallConn(); err == nil {
		err = c.net.SetDeadline(deadline)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

func (c *benchConn) close() { c.net.Close() }

// exchange sends a whole request and returns the status of its answer. After an error the connection
// is of no more use.
func (c *benchConn) exchange(request []byte) (status int, err error) {
	c.request, c.err = request, nil
	c.answer.reset()
	if err := c.raw.Read(c.step); err != nil {
		return 0, err
	}
	return c.answer.status, c.err
}

// advance writes the request, and then reads until the answer is whole. Reporting false waits until
// there is more to read. Writing here, after the wait was armed, spares the read that would find
// nothing yet: a third of the system calls.
func (c *benchConn) advance(fd uintptr) (done bool) {
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
		whole, err := c.answer.feed(c.buf[:n])
		if whole || err != nil {
			c.err = err
			return true
		}
	}
}

var errShortWrite = errors.New("the request does not fit into the connection's send buffer")

// writeOnce writes a request, which is far smaller than the send buffer of an idle connection.
func writeOnce(fd int, request []byte) error {
	for {
		n, err := syscall.Write(fd, request)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return fmt.Errorf("write: %w", err)
		case n < len(request):
			return errShortWrite
		}
		return nil
	}
}
