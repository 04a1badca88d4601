package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"strconv"
	"time"

	"github.com/seed-20419f34/rollcall/httpd"
)

// openProfiler binds the profiler's port, if one is set.
func (n *node) openProfiler(addr string) error {
	if addr == "" {
		return nil
	}
	l, err := n.listen("pprof.addr", addr)
	if err != nil {
		return err
	}
	server := httpd.NewServer(addr, profiles(), n.log)
	server.WriteTimeout = 0 // a profile takes as long as its request says
	n.listeners = append(n.listeners, listener{key: "pprof.addr", Listener: l, server: server})
	return nil
}

// openAdmin binds the socket in the data directory, which belongs to this node alone.
func (n *node) openAdmin(dir string, h *httpd.Handler) error {
	l, err := n.world.Listen("unix", filepath.Join(dir, httpd.AdminSocket))
	if err != nil {
		return fmt.Errorf("data.dir: cannot listen on %s: %w", filepath.Join(dir, httpd.AdminSocket), err)
	}
	n.listeners = append(n.listeners, listener{key: "data.dir", Listener: l, server: httpd.NewAdminServer(h, n.log)})
	return nil
}

// profiles serves the runtime's profiles with the paths and parameters of net/http/pprof, which would add 0.1 MB to
// the binary: name?debug=1, heap?gc=1, profile?seconds=30 and trace?seconds=1.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/profile", during(30, pprof.StartCPUProfile, pprof.StopCPUProfile))
	mux.HandleFunc("/debug/pprof/trace", during(1, trace.Start, trace.Stop))
	mux.HandleFunc("/debug/pprof/{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "profile\ntrace")
		for _, p := range pprof.Profiles() {
			fmt.Fprintln(w, p.Name(), p.Count())
		}
	})
	mux.HandleFunc("/debug/pprof/{name}", func(w http.ResponseWriter, r *http.Request) {
		p := pprof.Lookup(r.PathValue("name"))
		if p == nil {
			http.NotFound(w, r)
			return
		}
		if r.FormValue("gc") != "" {
			runtime.GC()
		}
		debug, _ := strconv.Atoi(r.FormValue("debug"))
		p.WriteTo(w, debug)
	})
	return mux
}

// during serves what is recorded between start and stop, for the usual number of seconds unless the request names
// another.
func during(usual float64, start func(io.Writer) error, stop func()) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		seconds, err := strconv.ParseFloat(r.FormValue("seconds"), 64)
		if err != nil || seconds <= 0 {
			seconds = usual
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		if err := start(w); err != nil { // another one runs
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		defer stop()
		select {
		case <-time.After(time.Duration(seconds * float64(time.Second))):
		case <-r.Context().Done():
		}
	}
}

// listener is a bound port and the server behind it.
type listener struct {
	key string // the setting that names its address
	net.Listener
	server  *http.Server
	handler *httpd.Handler // takes over connections for heartbeats; may be nil
}

func (l listener) shutdown(ctx context.Context) error {
	err := l.server.Shutdown(ctx)
	if l.handler != nil {
		err = errors.Join(err, l.handler.Shutdown(ctx))
	}
	return err
}

// listen binds an address. A port that is in use is the most frequent reason for a failed start, so the error names
// the key to change.
func (n *node) listen(key, addr string) (net.Listener, error) {
	l, err := n.world.Listen("tcp", addr)
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
