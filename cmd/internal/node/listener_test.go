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
	for path, want := range map[string]int{
		"": http.StatusOK, "goroutine?debug=2": http.StatusOK, "heap?gc=1": http.StatusOK, "profile?seconds=0.01": http.StatusOK,
		"trace?seconds=0.01": http.StatusOK, "none": http.StatusNotFound,
	} {
		expect.Equal(t, status("http://"+l.Addr().String()+"/debug/pprof/"+path), want, "status of %q", path)
	}
	l.server.Close()
	expect.OK(t, <-served)
}
