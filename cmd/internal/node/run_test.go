package node

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/cmd/internal/logging"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestNodeServesUntilItIsStopped(t *testing.T) {
	n := need.Got(open(Options{Config: oneNode(t), Version: "test", Log: quiet, Level: logging.NewLevel("info")}))(t)
	stop := started(t, n)
	url := "http://" + n.listeners[0].Addr().String()
	awaitReady(t, url)
	err := stop()
	expect.That(t, err == nil, "run: %v, want nil after a stop", err)
	expect.Equal(t, status(url+"/healthz"), 0, "it still responds:")
}

func TestNodeEndsItsWatches(t *testing.T) {
	for _, takeover := range []bool{true, false} {
		c := oneNode(t)
		c.HTTP.HeartbeatTakeover = takeover
		n := need.Got(open(Options{Config: c, Version: "test", Log: quiet, Level: logging.NewLevel("info")}))(t)
		n.limits.drain = 20 * time.Second // it takes milliseconds
		stop := started(t, n)
		url := "http://" + n.listeners[0].Addr().String()
		awaitReady(t, url)
		resp := need.Got(http.Get(url + "/v1/rollcall/watch"))(t)
		start := time.Now()
		expect.OKf(t, stop(), "run")
		took := time.Since(start)
		expect.That(t, took <= n.limits.drain, "takeover %v: the watch kept the node up for %v", takeover, took)
		expect.OKf(t, expect.Err(io.ReadAll(resp.Body)), "takeover %v: the watch was cut off", takeover)
		resp.Body.Close()
	}
}

// fakeNode is a node around a handler, with a store that the test plays.
func fakeNode(t *testing.T, store func(context.Context) error, h http.Handler) *node {
	t.Helper()
	l := need.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
	return &node{
		log: quiet, runStore: store, handOver: func() {}, limits: defaultShutdownLimits(),
		listeners: []listener{{key: "http.addr", Listener: l, server: &http.Server{Handler: h}}},
	}
}

func TestNodeClosesItsListenersAndFailsWhenTheStoreMustNotGoOn(t *testing.T) {
	broken := errors.New("disk broke")
	n := fakeNode(t, func(context.Context) error { return broken }, nil)
	err := n.run(t.Context())
	expect.That(t, errors.Is(err, broken) && cli.ExitCode(io.Discard, "rollcall", err) == cli.ExitFatal,
		"run: %v, want the store's error as a fatal one", err)
	expect.Equal(t, status("http://"+n.listeners[0].Addr().String()), 0, "it still responds:")
}

func TestNodeEndsWhenAListenerFails(t *testing.T) {
	n := fakeNode(t, func(ctx context.Context) error { <-ctx.Done(); return nil }, nil)
	n.listeners[0].Close()
	err := n.run(t.Context())
	expect.That(t, err != nil && strings.Contains(err.Error(), "http.addr"), "run: %v, want an error that names http.addr", err)
}

func TestShutdownCompletesRequestsWhileTheStoreStillRuns(t *testing.T) {
	arrived, stopping := make(chan bool), make(chan bool)
	var storeRuns atomic.Bool
	storeRuns.Store(true)
	n := fakeNode(t,
		func(ctx context.Context) error {
			<-ctx.Done()
			storeRuns.Store(false)
			return nil
		},
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(arrived)
			<-stopping
			if !storeRuns.Load() {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}))
	stop := started(t, n)
	response := make(chan int, 1)
	go func() { response <- status("http://" + n.listeners[0].Addr().String()) }()
	<-arrived
	n.listeners[0].server.RegisterOnShutdown(func() { close(stopping) })
	expect.OKf(t, stop(), "run")
	expect.Equal(t, <-response, http.StatusOK, "the response is")
}

// requested sends a request to a node, waits until its handler has it, and returns a channel for the status of the
// response, 0 if the connection is cut.
func requested(n *node, arrived <-chan bool) <-chan int {
	response := make(chan int, 1)
	go func() { response <- status("http://" + n.listeners[0].Addr().String()) }()
	<-arrived
	return response
}

func TestShutdownCompletesRequestsThatWaitForTheEndOfTheStore(t *testing.T) {
	arrived, ended := make(chan bool), make(chan bool)
	n := fakeNode(t,
		func(ctx context.Context) error {
			<-ctx.Done()
			close(ended)
			return nil
		},
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(arrived)
			<-ended
			w.WriteHeader(http.StatusServiceUnavailable)
		}))
	n.limits.drain, n.limits.late = time.Millisecond, 10*time.Second // the second ends with the response
	stop := started(t, n)
	response := requested(n, arrived)
	expect.OKf(t, stop(), "run")
	expect.Equal(t, <-response, http.StatusServiceUnavailable, "the response is")
}

func TestShutdownEndsThoughAStoreAndARequestHang(t *testing.T) {
	arrived, never := make(chan bool), make(chan bool)
	n := fakeNode(t,
		func(context.Context) error { <-never; return nil },
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(arrived); <-never }))
	t.Cleanup(func() { close(never) })
	n.limits = shutdownLimits{drain: time.Millisecond, store: time.Millisecond, late: time.Millisecond}
	stop := started(t, n)
	response := requested(n, arrived)
	err := stop()
	expect.That(t, err != nil && strings.Contains(err.Error(), "store did not close"), "run: %v, want an error that names the store", err)
	got := <-response
	expect.That(t, got == 0, "the response is %d, want a cut connection", got)
}

func TestShutdownEndsBeforeServiceManagersKillTheProcess(t *testing.T) {
	l := defaultShutdownLimits()
	total := l.handover + l.linger + l.drain + l.store + l.late
	expect.That(t, total < localcluster.StopWithin, "a shutdown may take %v, dev kills after %v", total, localcluster.StopWithin)
}
