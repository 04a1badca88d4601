// Package unixsocket listens on and dials sockets in the file system, by paths of any length: the operating system takes 108
// bytes at most.
package unixsocket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// maxPath is how long a path the operating system takes.
const maxPath = 100

// Listen binds a socket that its owner alone may use. What lies there is removed: the caller knows that no process listens on it.
func Listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	short, done, err := shorten(path)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // it would remove the short path
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return &listener{l, path}, nil
}

// listener removes its socket when it is closed.
type listener struct {
	net.Listener
	path string
}

// Close implements net.Listener.
func (l *listener) Close() error { return errors.Join(l.Listener.Close(), os.Remove(l.path)) }

// Dial connects to a socket.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	short, done, err := shorten(path)
	if err != nil {
		return nil, err
	}
	defer done()
	var d net.Dialer
	return d.DialContext(ctx, "unix", short)
}

// shorten is a path that is short enough, until done is called: by way of the open directory.
func shorten(path string) (short string, done func(), err error) {
	if len(path) <= maxPath {
		return path, func() {}, nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), func() { dir.Close() }, nil
}
