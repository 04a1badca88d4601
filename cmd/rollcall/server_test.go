package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"

	"github.com/seed-20419f34/rollcall/cmd/cli"
	"github.com/seed-20419f34/rollcall/cmd/localcluster"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store/consensus"
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
		expect.That(t, len(matches) == 0, "%s taken: the data directory was made", tc.key)
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

func TestAStoreThatFailedIsNotKeptByWhatHangsBesideIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken, never := errors.New("disk broke"), make(chan bool)
		began := time.Now()
		err := together(t.Context(),
			func(context.Context) error { return broken },
			func(context.Context) { <-never })
		expect.That(t, errors.Is(err, broken) && time.Since(began) == besideLimit,
			"ended after %v with %v, want the store's error after %v", time.Since(began), err, besideLimit)
		close(never)
	})
}

func TestAFailedStartLeavesNothingOpen(t *testing.T) {
	tests := []struct {
		name  string
		wrong func(*Config)
		want  string
	}{
		{"behind the store", func(c *Config) { c.HTTPD.Reads = "nonsense" }, "reads.eureka"},
		{"beside the store", func(c *Config) { c.Replication.TLS.CA = "missing.pem" }, "replication.tls.ca"},
	}
	for _, tt := range tests {
		for _, mode := range []string{modeCP, modeAP} {
			t.Run(tt.name+" in mode "+mode, func(t *testing.T) {
				right := oneNode(t)
				right.Mode = mode
				wrong := *right
				tt.wrong(&wrong)
				need.ErrorSays(t, expect.Err(openNode(&wrong, quiet)), tt.want, "got")
				n, err := openNode(right, quiet)
				need.OKf(t, err, "the next start")
				n.closePorts()
				expect.OK(t, abandon(n.runStore))
			})
		}
	}
}

// removing is a store that answers every removal alike.
type removing struct{ err error }

func (r removing) RemoveMember(context.Context, string) error { return r.err }

func TestFailedRemovalsAreGivenInTheTermsOfTheAPI(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error // of the store
		want error // as httpd knows it
	}{
		{name: "unknown node", err: consensus.ErrUnknownMember, want: httpd.ErrUnknownMember},
		{name: "refused", err: consensus.ErrMembership, want: httpd.ErrMembership},
		{name: "no leader", err: registry.ErrNoLeader, want: registry.ErrNoLeader},
		{name: "unknown outcome", err: registry.ErrUnknownOutcome, want: registry.ErrUnknownOutcome},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cause := fmt.Errorf("remove node \"n1\": %w: a reason", tc.err)
			got := members{removing{cause}}.Remove(t.Context(), "n1")
			expect.That(t, errors.Is(got, tc.want) && got.Error() == cause.Error(), "got %v, want %v in the words %q", got, tc.want, cause)
		})
	}
	expect.OKf(t, (members{removing{}}).Remove(t.Context(), "n1"), "a removal that succeeded")
}

func TestANodesIndexIsThatOfItsAnswers(t *testing.T) {
	n := consensus.NodeStatus{ID: "n1", HTTP: "a", Cluster: "b", Role: "leader", Applied: 9, Index: 7, Reachable: true}
	want := api.NodeStatus{ID: "n1", HTTP: "a", Cluster: "b", Role: "leader", Applied: 9, Index: "c0ffee-7"}
	expect.Equal(t, nodeStatus("c0ffee", n), want, "got")
	got := nodeStatus("c0ffee", consensus.NodeStatus{ID: "n1", Role: "unreachable"})
	expect.That(t, got.Index == "", "a node that did not answer is at %q, want no index", got.Index)
}

func TestAReloadTakesOverWhatCanChangeAndNothingElse(t *testing.T) {
	before := *defaultConfig()
	limited, slow := before, before
	slow.Store.Test.SyncDelay = time.Second
	limited.HTTPD.RateLimit = httpd.RateLimit{Enabled: true, BurstSize: 1, FetchRate: 2, FullFetchRate: 3, ThrottleStandard: true, Privileged: []string{"a"}}
	other := before
	other.LogLevel, other.Store.EvictionInterval = "debug", 7
	for _, tc := range []struct {
		name string
		load func() (settings, error)
		want []Config // as applied
		says []string
	}{
		{name: "the limiter", load: func() (settings, error) { return settings{Config: &limited}, nil },
			want: []Config{limited},
			says: []string{"level=INFO", "rate-limiter.burst-size"}},
		{name: "the disk's delay", load: func() (settings, error) { return settings{Config: &slow}, nil },
			want: []Config{slow},
			says: []string{"level=INFO", "changed=[test.sync-delay]"}},
		{name: "something else", load: func() (settings, error) { return settings{Config: &other}, nil },
			want: []Config{before},
			says: []string{"level=WARN", "need a restart", "[eviction.interval log.level]"}},
		{name: "a mistake", load: func() (settings, error) { return settings{Config: &limited}, errors.New("c.yaml:1: no") },
			says: []string{"level=ERROR", "the old ones hold", "c.yaml:1: no"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var said bytes.Buffer
			var applied []Config
			r := reloader{load: tc.load, apply: func(c *Config) { applied = append(applied, *c) }, running: before, log: slog.New(slog.NewTextHandler(&said, nil))}
			r.reload()
			expect.Deep(t, applied, tc.want, "applied")
			for _, want := range tc.says {
				expect.That(t, strings.Contains(said.String(), want), "it says %q, want %q in it", &said, want)
			}
		})
	}
}

func TestAReloadComparesWithTheOneBefore(t *testing.T) {
	c := *defaultConfig()
	c.HTTPD.RateLimit.BurstSize = 5
	var said bytes.Buffer
	r := reloader{load: func() (settings, error) { return settings{Config: &c}, nil }, apply: func(*Config) {}, running: *defaultConfig(), log: slog.New(slog.NewTextHandler(&said, nil))}
	r.reload()
	said.Reset()
	r.reload()
	expect.That(t, strings.Contains(said.String(), "changed=[]"), "a second reload says %q, want that nothing has changed", &said)
}

func TestASignalReachesTheReloader(t *testing.T) {
	hup, stop := hangups()
	defer stop()
	reloaded := make(chan bool)
	r := reloader{load: func() (settings, error) { close(reloaded); return settings{}, errors.New("stop here") }, log: quiet}
	go r.run(t.Context(), hup)
	need.OK(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	<-reloaded
}

// refuses says whether many fetches of the whole registry in a row are too many.
func refuses(url string) bool {
	for range 20 {
		if status(url+"/eureka/apps") == http.StatusServiceUnavailable {
			return true
		}
	}
	return false
}

func TestTheRateLimiterIsTurnedOnAndOffWhileTheNodeRuns(t *testing.T) {
	c := oneNode(t)
	n := need.Got(openNode(c, quiet))(t)
	file := filepath.Join(t.TempDir(), "rollcall.yaml")
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	addConfigFlags(flags)
	need.OK(t, flags.Parse([]string{"--config", file, "--data-dir", c.Store.DataDir}))
	r := reloader{load: func() (settings, error) { return loadSettings(fromProcess(flags)) }, apply: n.apply, running: *c, log: quiet}
	hup := make(chan os.Signal)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.during(ctx, hup, n.run) }()
	url := "http://" + n.listeners[0].Addr().String()
	awaitReady(t, url)
	const few = "rate-limiter: {enabled: true, burst-size: 1, registry-fetch-average-rate: 1, full-fetch-average-rate: 1}"
	for _, step := range []struct {
		name, file string
		refuses    bool
	}{
		{name: "off", file: ""},
		{name: "on", file: few, refuses: true},
		{name: "a mistake changes nothing", file: "rate-limiter: {enabled: perhaps}", refuses: true},
		{name: "off again", file: "rate-limiter: {enabled: false}"},
	} {
		// The second reload of the step before may read now: it must not find half a file.
		next := file + ".next"
		need.OK(t, errors.Join(os.WriteFile(next, []byte(step.file), 0o600), os.Rename(next, file)))
		hup <- syscall.SIGHUP
		hup <- syscall.SIGHUP // is taken when the first one has taken effect
		expect.Equal(t, refuses(url), step.refuses, "%s: fetches are refused:", step.name)
	}
	cancel()
	expect.OK(t, <-ended)
}
