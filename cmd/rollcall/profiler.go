package main

import (
	"net/http"
	"net/http/pprof"

	"github.com/seed-20419f34/rollcall/httpd"
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
	server.WriteTimeout = 0 // a profile takes as long as it is asked to
	n.listeners = append(n.listeners, listener{key: "pprof.addr", Listener: l, server: server})
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
