package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestNodeEndsItsWatches(t *testing.T) {
	for _, takeover := range []bool{true, false} {
		c := oneNode(t)
		c.HTTP.HeartbeatTakeover = takeover
		n := opened(t, c)
		n.limits.drain = time.Hour // if a watch kept the node up, the test would time out
		stop := started(t, n)
		url := readyURL(t, n)
		resp := need.Got(http.Get(url + "/v1/rollcall/watch"))(t)
		expect.OKf(t, stop(), "takeover %v: run", takeover)
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
	response := requested(n, arrived)
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
	expect.Equal(t, <-response, 0, "the response is")
}

func TestShutdownEndsBeforeServiceManagersKillTheProcess(t *testing.T) {
	l := defaultShutdownLimits()
	total := l.handover + l.linger + l.drain + l.store + l.late
	expect.That(t, total < localcluster.StopWithin, "a shutdown may take %v, dev kills after %v", total, localcluster.StopWithin)
}

func TestRunWithReturnsThoughWorkBesideAFailedStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken, never := errors.New("disk broke"), make(chan bool)
		began := time.Now()
		err := runWith(t.Context(),
			func(context.Context) error { return broken },
			func(context.Context) { <-never })
		expect.That(t, errors.Is(err, broken) && time.Since(began) == besideLimit,
			"ended after %v with %v, want the store's error after %v", time.Since(began), err, besideLimit)
		close(never)
	})
}

func registerProbed(t *testing.T, api, url string) (checks string) {
	t.Helper()
	_, port, _ := strings.Cut(strings.TrimPrefix(url, "http://"), ":")
	body := fmt.Sprintf(`{"Name":"web","Address":"127.0.0.1","Port":%s,"Check":{"HTTP":%q,"Interval":"1s"}}`, port, url)
	responds(t, http.MethodPut, api+"/v1/agent/service/register", body, http.StatusOK, "")
	return api + "/v1/health/checks/web"
}

func TestLeaderProbesServicesUnlessProbesAreOff(t *testing.T) {
	for _, probes := range []bool{true, false} {
		t.Run(fmt.Sprint(probes), func(t *testing.T) {
			service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			defer service.Close()
			c := oneNode(t)
			c.Checks.Probes = probes
			api := serving(t, c)
			checks := registerProbed(t, api, service.URL)
			if !probes {
				expect.That(t, !strings.Contains(responds(t, "GET", api+"/metrics", "", http.StatusOK, ""), "rollcall_probe_"), "there is a prober")
				return
			}
			await(t, "the check passes", func() bool {
				return strings.Contains(responds(t, "GET", checks, "", http.StatusOK, ""), `"Status":"passing"`)
			})
		})
	}
}

func TestStoreIsOpenedWithTheSettingsOfLeases(t *testing.T) {
	c := oneNode(t)
	c.Store.Settings.Threshold = 123_456
	expect.Equal(t, setup{Config: c}.storeConfig().Settings, c.Leases(), "got")
}

// manager is the socket of a service manager that expects a sign of life every 600 ms.
type manager struct {
	t *testing.T
	*net.UnixConn
}

func newManager(t *testing.T) manager {
	t.Helper()
	dir := need.Got(os.MkdirTemp("", "notify"))(t) // with a short name, as sockets need
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	conn := need.Got(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"}))(t)
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "600000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	return manager{t, conn}
}

// next returns the next message, or "" after a time without one.
func (m manager) next(within time.Duration) string {
	m.t.Helper()
	need.OK(m.t, m.SetReadDeadline(time.Now().Add(within)))
	b := make([]byte, 4096)
	count, err := m.Read(b)
	if os.IsTimeout(err) {
		return ""
	}
	need.OK(m.t, err)
	return string(b[:count])
}

const sign = "WATCHDOG=1"

// until returns the messages up to the first one with a text, without signs of life unless that is what it waits for.
func (m manager) until(text string) (messages []string) {
	m.t.Helper()
	for {
		message := m.next(30 * time.Second)
		need.That(m.t, message != "", "no message with %q came after %q", text, messages)
		if message != sign || text == sign {
			messages = append(messages, message)
		}
		if strings.Contains(message, text) {
			return messages
		}
	}
}

func managed(t *testing.T, mode string) *config.Config {
	t.Helper()
	c := oneNode(t)
	c.Mode, c.HTTP.Addr = mode, localcluster.Address(need.Got(localcluster.ClaimPorts(1))(t)[0])
	if mode == config.AP {
		c.HTTPD.Reads = "stale"
	}
	need.OK(t, c.Validate())
	return c
}

func TestServiceManagerHearsOfReadinessReloadsAndTheEnd(t *testing.T) {
	for _, mode := range config.Modes {
		t.Run(mode, func(t *testing.T) {
			m, c := newManager(t), managed(t, mode)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			level, hangups := NewLogLevel("info"), make(chan os.Signal)
			go func() {
				ended <- Run(ctx, Options{Config: c, Hangups: hangups, Load: func() (config.Loaded, error) { return config.Loaded{Config: c}, nil },
					Version: "test", Log: quiet, Level: level, Metrics: NewLogQueue(os.Stderr).Dropped})
			}()
			for _, message := range m.until("READY=1") {
				expect.That(t, strings.HasPrefix(message, "STATUS=") || strings.HasPrefix(message, "READY=1\nSTATUS=ready"), "before it was ready came %q", message)
			}
			expect.Equal(t, status("http://"+c.HTTP.Addr+"/readyz"), http.StatusOK, "after READY /readyz is")
			m.until(sign)

			hangups <- syscall.SIGHUP
			reload := m.until("READY=1")
			expect.That(t, len(reload) == 2 && strings.HasPrefix(reload[0], "RELOADING=1\nMONOTONIC_USEC=") && reload[1] == "READY=1", "a reload is %q", reload)

			cancel()
			expect.OKf(t, <-ended, "run")
			expect.Slice(t, m.until("STOPPING=1"), []string{"STOPPING=1\nEXTEND_TIMEOUT_USEC=19000000\nSTATUS=not ready: the node is shutting down"}, "at the end")
			for {
				message := m.next(10 * time.Millisecond)
				if message == "" {
					break
				}
				expect.Equal(t, message, sign, "after the end came")
			}
		})
	}
}

func TestServiceManagerHearsNoReadyOfANodeThatWaitsForOthers(t *testing.T) {
	m, c := newManager(t), managed(t, config.CP)
	c.Store.BootstrapExpect, c.Store.Join = 2, []string{localcluster.Address(need.Got(localcluster.ClaimPorts(1))(t)[0])}
	n := opened(t, c)
	stop := started(t, n)
	before := append(m.until("STATUS=not ready: "), m.until(sign)...)
	for range 5 {
		before = append(before, m.until(sign)...)
	}
	expect.That(t, !strings.Contains(strings.Join(before, "\n"), "READY="), "before it was ready came %q", before)
	expect.OKf(t, stop(), "run")
}

// A disk whose writes take 3 s hangs for the service manager, but not yet for the node.
func TestServiceManagerHearsNoSignOfLifeWhileTheStoreHangs(t *testing.T) {
	for _, mode := range config.Modes {
		t.Run(mode, func(t *testing.T) {
			m, c := newManager(t), managed(t, mode)
			n := opened(t, c)
			stop := started(t, n)
			m.until("READY=1")
			m.until(sign)
			slow := *c
			slow.Store.Test.SyncDelay = 3 * time.Second
			n.apply(&slow)
			written := make(chan error, 1)
			go func() {
				resp, err := http.Post("http://"+c.HTTP.Addr+"/eureka/apps/A", "application/json", strings.NewReader(instance("a")))
				if err == nil {
					resp.Body.Close()
				}
				written <- err
			}()
			await(t, "signs of life end while the store hangs", func() bool { return m.next(1500*time.Millisecond) == "" })
			n.apply(c)
			m.until(sign)
			expect.OKf(t, <-written, "register")
			expect.OKf(t, stop(), "run")
		})
	}
}

func TestNodeWithoutAServiceManagerTellsNothing(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	n := notifier{log: quiet} // a check of the node, or a sign of life, would panic
	n.run(t.Context())
}
