package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/cli"
	"github.com/seed-20419f34/rollcall/cmd/localcluster"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// oneNode is a node that founds a cluster by itself.
func oneNode(t *testing.T) *Config {
	t.Helper()
	c := defaultConfig()
	c.NodeName = "n1"
	c.Store.DataDir = filepath.Join(t.TempDir(), "data")
	c.HTTP.Addr, c.Store.ClusterAddr = "127.0.0.1:0", "127.0.0.1:0"
	c.Store.HeartbeatTimeout, c.Store.ElectionTimeout, c.Store.LeaseTimeout = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	need.OK(t, c.Validate())
	return c
}

var quiet = slog.New(slog.DiscardHandler)

// started runs a node until the returned function is called, which gives its result.
func started(t *testing.T, n *node) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

func status(url string) int {
	resp, err := http.Get(url)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// awaitReady waits until a node may serve.
func awaitReady(t *testing.T, url string) {
	t.Helper()
	deadline := time.After(30 * time.Second) // it takes some 100 ms
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for status(url+"/readyz") != http.StatusOK {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("the node is not ready")
		}
	}
}

func TestANodeServesUntilItIsToldToStop(t *testing.T) {
	n := need.Got(openNode(oneNode(t), quiet))(t)
	stop := started(t, n)
	url := "http://" + n.listeners[0].Addr().String()
	awaitReady(t, url)
	err := stop()
	expect.That(t, err == nil, "run: %v, want nil after a stop", err)
	expect.Equal(t, status(url+"/healthz"), 0, "it still answers:")
}

func TestATakenPortIsNamedWithItsKeyBeforeTheDataIsTouched(t *testing.T) {
	taken := need.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	for _, tc := range []struct {
		key string
		set func(c *Config, addr string)
	}{
		{"http.addr", func(c *Config, addr string) { c.HTTP.Addr = addr }},
		{"cluster.addr", func(c *Config, addr string) { c.Store.ClusterAddr = addr }},
		{"pprof.addr", func(c *Config, addr string) { c.PProfAddr = addr }},
	} {
		c := oneNode(t)
		tc.set(c, taken.Addr().String())
		_, err := openNode(c, quiet)
		expect.That(t, err != nil && strings.Contains(err.Error(), tc.key) && strings.Contains(err.Error(), taken.Addr().String()),
			"%s taken: %v, want key and address in it", tc.key, err)
		matches, _ := filepath.Glob(c.Store.DataDir)
		expect.That(t, len(matches) <= 0, "%s taken: the data directory was made", tc.key)
	}
}

func TestWatchesEndWithTheNode(t *testing.T) {
	for _, takeover := range []bool{true, false} {
		c := oneNode(t)
		c.HTTP.HeartbeatTakeover = takeover
		n := need.Got(openNode(c, quiet))(t)
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
		log: quiet, runStore: store, draining: new(atomic.Bool), limits: defaultShutdownLimits(),
		listeners: []listener{{key: "http.addr", Listener: l, server: &http.Server{Handler: h}}},
	}
}

func TestAStoreThatMustNotGoOnClosesTheListenersAndIsFatal(t *testing.T) {
	broken := errors.New("disk broke")
	n := fakeNode(t, func(context.Context) error { return broken }, nil)
	err := n.run(t.Context())
	expect.That(t, errors.Is(err, broken) && cli.ExitCode(io.Discard, "rollcall", err) == cli.ExitFatal,
		"run: %v, want the store's error as a fatal one", err)
	expect.Equal(t, status("http://"+n.listeners[0].Addr().String()), 0, "it still answers:")
}

func TestAListenerThatFailsEndsTheNode(t *testing.T) {
	n := fakeNode(t, func(ctx context.Context) error { <-ctx.Done(); return nil }, nil)
	n.listeners[0].Close()
	err := n.run(t.Context())
	expect.That(t, err != nil && strings.Contains(err.Error(), "http.addr"), "run: %v, want an error that names http.addr", err)
}

func TestRequestsUnderWayAreAnsweredByAStoreThatStillRuns(t *testing.T) {
	arrived, stopping := make(chan bool), make(chan bool)
	var storeRuns atomic.Bool
	storeRuns.Store(true)
	var n *node
	n = fakeNode(t,
		func(ctx context.Context) error {
			<-ctx.Done()
			storeRuns.Store(false)
			return nil
		},
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(arrived)
			<-stopping
			if !storeRuns.Load() || !n.draining.Load() {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}))
	stop := started(t, n)
	answer := make(chan int, 1)
	go func() { answer <- status("http://" + n.listeners[0].Addr().String()) }()
	<-arrived
	n.listeners[0].server.RegisterOnShutdown(func() { close(stopping) })
	expect.OKf(t, stop(), "run")
	expect.Equal(t, <-answer, http.StatusOK, "the request was answered with")
}

// asked sends a request to a node, waits until its handler has it, and returns where the answer's
// status will be, 0 if the connection is cut.
func asked(n *node, arrived <-chan bool) <-chan int {
	answer := make(chan int, 1)
	go func() { answer <- status("http://" + n.listeners[0].Addr().String()) }()
	<-arrived
	return answer
}

func TestARequestThatWaitsForTheStoreIsAnsweredWhenTheStoreEnds(t *testing.T) {
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
	n.limits.drain, n.limits.answer = time.Millisecond, 10*time.Second // the latter ends with the answer
	stop := started(t, n)
	answer := asked(n, arrived)
	expect.OKf(t, stop(), "run")
	expect.Equal(t, <-answer, http.StatusServiceUnavailable, "the request was answered with")
}

func TestNothingThatHangsKeepsANodeFromEnding(t *testing.T) {
	arrived, never := make(chan bool), make(chan bool)
	n := fakeNode(t,
		func(context.Context) error { <-never; return nil },
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(arrived); <-never }))
	t.Cleanup(func() { close(never) })
	n.limits = shutdownLimits{drain: time.Millisecond, store: time.Millisecond, answer: time.Millisecond}
	stop := started(t, n)
	answer := asked(n, arrived)
	err := stop()
	expect.That(t, err != nil && strings.Contains(err.Error(), "store did not close"), "run: %v, want an error that names the store", err)
	got := <-answer
	expect.That(t, got == 0, "the request was answered with %d, want a cut connection", got)
}

func TestAShutdownEndsBeforeServiceManagersLosePatience(t *testing.T) {
	l := defaultShutdownLimits()
	total := l.drain + l.store + l.answer
	expect.That(t, total < localcluster.StopWithin, "a shutdown may take %v, dev kills after %v", total, localcluster.StopWithin)
}

func TestProfilesHaveAListenerOfTheirOwn(t *testing.T) {
	n := &node{log: quiet}
	need.OK(t, n.openProfiler("127.0.0.1:0"))
	l := n.listeners[0]
	served := make(chan error, 1)
	go func() { served <- l.serve() }()
	expect.Equal(t, status("http://"+l.Addr().String()+"/debug/pprof/"), http.StatusOK, "answered")
	l.server.Close()
	expect.OK(t, <-served)
}
