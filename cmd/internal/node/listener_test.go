package node

import (
	"net/http"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestProfilerHasAListenerOfItsOwn(t *testing.T) {
	n := &node{log: quiet}
	need.OK(t, n.openProfiler("127.0.0.1:0"))
	l := n.listeners[0]
	served := make(chan error, 1)
	go func() { served <- l.serve() }()
	expect.Equal(t, status("http://"+l.Addr().String()+"/debug/pprof/"), http.StatusOK, "status")
	l.server.Close()
	expect.OK(t, <-served)
}
