package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"path/filepath"

	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/unixsocket"
)

// openProfiler binds the profiler's port, if one is set.
func (n *node) openProfiler(addr string) error {
	if addr == "" {
		return nil
	}
	l, err := listen("pprof.addr", addr)
	if err != nil {
		return err
	}
	server := httpd.NewServer(addr, profiles(), n.log)
	server.WriteTimeout = 0 // a profile takes as long as its request says
	n.listeners = append(n.listeners, listener{key: "pprof.addr", Listener: l, server: server})
	return nil
}

// openAdmin binds the socket in the data directory, which this node has for itself.
func (n *node) openAdmin(dir string, h *httpd.Handler) error {
	l, err := unixsocket.Listen(filepath.Join(dir, httpd.AdminSocket))
	if err != nil {
		return fmt.Errorf("data.dir: cannot listen on %s: %w", filepath.Join(dir, httpd.AdminSocket), err)
	}
	n.listeners = append(n.listeners, listener{key: "data.dir", Listener: l, server: httpd.NewAdminServer(h, n.log)})
	return nil
}

func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// listener is a bound port and the server behind it.
type listener struct {
	key string // the setting that names its address
	net.Listener
	server  *http.Server
	handler *httpd.Handler // takes over connections for heartbeats; nil: none are
}

func (l listener) shutdown(ctx context.Context) error {
	err := l.server.Shutdown(ctx)
	if l.handler != nil {
		err = errors.Join(err, l.handler.Shutdown(ctx))
	}
	return err
}

// listen binds an address. A port that is taken is the most frequent reason of a failed start, so the error names the
// key to change.
func listen(key, addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot listen on %s: %w", key, addr, err)
	}
	return l, nil
}

// serve returns nil after the server was shut down.
func (l listener) serve() error {
	var err error
	switch {
	case l.handler != nil:
		err = l.handler.Serve(l.server, l.Listener)
	case l.server.TLSConfig != nil:
		err = l.server.ServeTLS(l.Listener, "", "")
	default:
		err = l.server.Serve(l.Listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("%s: %w", l.key, err)
}
