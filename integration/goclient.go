package integration

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/client/balance"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// The lease of a Service, short so that tests need not wait for long, but long enough for a machine that hangs for
// some seconds, and how long it and a Caller wait for one server, in proportion.
const (
	serviceInterval = time.Second
	serviceDuration = 10 * time.Second
	serviceTimeout  = time.Second
)

// goClient returns a client of this project that talks to servers, as patiently as other clients of the tests unless
// config says otherwise. It ends with the test.
func goClient(t testing.TB, config client.Config) *client.Client {
	t.Helper()
	config.Timeout = cmp.Or(config.Timeout, CallLimit)
	config.Log = slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelInfo}))
	c, err := client.New(config)
	need.OK(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), CallLimit)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Logf("close the client: %v", err)
		}
	})
	return c
}

// testLog writes to a test's log.
type testLog struct{ t testing.TB }

// Write implements io.Writer.
func (l testLog) Write(text []byte) (int, error) {
	l.t.Log(strings.TrimSuffix(string(text), "\n"))
	return len(text), nil
}

// urls returns the base URLs of nodes.
func urls(nodes ...*Node) []string {
	var all []string
	for _, n := range nodes {
		all = append(all, n.URL())
	}
	return all
}

// Service is an HTTP server of the test, which registers itself as an application through the Go client.
type Service struct {
	*client.Registration
	key registry.Key
}

// StartService starts a service whose client has a configuration, and waits until it is registered. It responds to
// every call with its id.
func StartService(t testing.TB, app string, config client.Config) *Service {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, app) }))
	t.Cleanup(server.Close)
	i := client.NewInstance(app, uint16(server.Listener.Addr().(*net.TCPAddr).Port))
	i.HostName, i.IPAddr = "127.0.0.1", "127.0.0.1"
	i.RenewalInterval, i.Duration = int32(serviceInterval/time.Second), int32(serviceDuration/time.Second)
	config.Timeout = cmp.Or(config.Timeout, serviceTimeout)
	r, err := goClient(t, config).StartRegistration(client.RegistrationConfig{Instance: i})
	need.OK(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), ReadyLimit)
	defer cancel()
	need.OK(t, r.Registered(ctx))
	return &Service{Registration: r, key: i.Key()}
}

// Gaps counts tries over time, those that succeeded and those that did not, and the longest time between successes.
type Gaps struct {
	mu         sync.Mutex
	good, bad  int
	last       time.Time // of the last success
	longest    time.Duration
	firstError error
}

// add counts one try that has just ended.
func (g *Gaps) add(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if !g.last.IsZero() {
		g.longest = max(g.longest, now.Sub(g.last))
	}
	if err != nil {
		g.bad++
		if g.firstError == nil {
			g.firstError = err
		}
		return
	}
	g.good, g.last = g.good+1, now
}

// String returns the line that a test prints.
func (g *Gaps) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	text := fmt.Sprintf("%d good, %d bad, longest gap %v", g.good, g.bad, g.longest.Round(time.Millisecond))
	if g.firstError != nil {
		text += fmt.Sprintf(" (first: %v)", g.firstError)
	}
	return text
}

// counts returns how many tries there were.
func (g *Gaps) counts() (good, bad int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.good, g.bad
}

// Caller calls a service continuously, through the round tripper over a discovery of its own.
type Caller struct {
	Discovery *client.Discovery
	Calls     Gaps
}

// callPause is the time between two calls of a Caller.
const callPause = 20 * time.Millisecond

// StartCaller starts to call an application as soon as its list has it. It ends with the test.
func StartCaller(t testing.TB, app string, config client.Config, discovery client.DiscoveryConfig) *Caller {
	t.Helper()
	config.Timeout = cmp.Or(config.Timeout, serviceTimeout)
	d, err := goClient(t, config).StartDiscovery(discovery)
	need.OK(t, err)
	c := &Caller{Discovery: d}
	Eventually(t, ReadyLimit, "the caller's list has "+app, func() error {
		if len(d.Snapshot().App(app)) == 0 {
			return errors.New("it has none")
		}
		return nil
	})
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	rt, err := balance.New(balance.Config{List: d, Base: base})
	need.OK(t, err)
	repeat(t, callPause, func(ctx context.Context) {
		if err := callApp(ctx, rt, app); ctx.Err() == nil {
			c.Calls.add(err)
		}
	})
	return c
}

// repeat repeats do until the test ends.
func repeat(t testing.TB, pause time.Duration, do func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var g sync.WaitGroup
	g.Go(func() {
		ticker := time.NewTicker(pause)
		defer ticker.Stop()
		for ctx.Err() == nil {
			do(ctx)
			select {
			case <-ticker.C:
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() { cancel(); g.Wait() })
}

// callApp calls a service once.
func callApp(ctx context.Context, rt http.RoundTripper, app string) error {
	ctx, cancel := context.WithTimeout(ctx, CallLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+app+"/", nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: rt}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err == nil && string(said) != app {
		err = fmt.Errorf("it said %q", said)
	}
	return err
}

// Listing counts whether the cluster's nodes list an instance to clients that fetch its application. Every list
// counts; a refusal or a missing response does not.
func Listing(t testing.TB, key registry.Key, nodes ...*Node) *Gaps {
	listing := &Gaps{}
	for _, n := range nodes {
		repeat(t, 5*pollInterval, func(ctx context.Context) {
			response := n.do(ctx, Request{Path: "/eureka/apps/" + key.App})
			switch listed := bytes.Contains(response.Body, []byte(key.ID)); {
			case response.Status == http.StatusOK && listed:
				listing.add(nil)
			case response.Status == http.StatusOK, response.Status == http.StatusNotFound:
				listing.add(fmt.Errorf("%s does not list it", n.Name))
			}
		})
	}
	return listing
}
