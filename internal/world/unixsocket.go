package world

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// maxPath is the longest path that is used unchanged; the operating system takes at most 108 bytes.
const maxPath = 100

// ListenUnix binds a socket that only its owner may use. It removes whatever is at the path: the caller knows that no
// process listens there.
func ListenUnix(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	short, done, err := shortPath(path)
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
	return &unixListener{l, path}, nil
}

// unixListener removes its socket when it is closed.
type unixListener struct {
	net.Listener
	path string
}

// Close implements net.Listener.
func (l *unixListener) Close() error { return errors.Join(l.Listener.Close(), os.Remove(l.path)) }

// DialUnix connects to a socket.
func DialUnix(ctx context.Context, path string) (net.Conn, error) {
	short, done, err := shortPath(path)
	if err != nil {
		return nil, err
	}
	defer done()
	var d net.Dialer
	return d.DialContext(ctx, "unix", short)
}

// shortPath returns a short enough path, by way of the open directory, which is valid until done is called.
func shortPath(path string) (short string, done func(), err error) {
	if len(path) <= maxPath {
		return path, func() {}, nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), func() { dir.Close() }, nil
}
