package node

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/logging"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// oneNode is the settings of a node that founds a cluster by itself.
func oneNode(t testing.TB) *config.Config {
	t.Helper()
	c := config.Default()
	c.NodeName = "n1"
	c.Store.DataDir = filepath.Join(t.TempDir(), "data")
	c.HTTP.Addr, c.Store.ClusterAddr = "127.0.0.1:0", "127.0.0.1:0"
	c.Store.HeartbeatTimeout, c.Store.ElectionTimeout, c.Store.LeaseTimeout = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	need.OK(t, c.Validate())
	return c
}

var quiet = slog.New(slog.DiscardHandler)

// started runs a node until the returned function is called, which returns the result of run.
func started(t testing.TB, n *node) (stop func() error) {
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

func awaitReady(t *testing.T, url string) {
	t.Helper()
	await(t, "the node is ready", func() bool { return status(url+"/readyz") == http.StatusOK })
}

// await polls until a condition holds. The limit is for liveness alone: most take some 100 ms.
func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline, tick := time.After(time.Minute), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("in vain: %s", what)
		}
	}
}

func TestOpenNamesATakenPortWithItsKeyBeforeItTouchesTheData(t *testing.T) {
	taken := need.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	for _, tc := range []struct {
		key string
		set func(c *config.Config, addr string)
	}{
		{"http.addr", func(c *config.Config, addr string) { c.HTTP.Addr = addr }},
		{"cluster.addr", func(c *config.Config, addr string) { c.Store.ClusterAddr = addr }},
		{"pprof.addr", func(c *config.Config, addr string) { c.PProfAddr = addr }},
	} {
		c := oneNode(t)
		tc.set(c, taken.Addr().String())
		_, err := open(Options{Config: c, Version: "test", Log: quiet, Level: logging.NewLevel("info")})
		expect.That(t, err != nil && strings.Contains(err.Error(), tc.key) && strings.Contains(err.Error(), taken.Addr().String()),
			"%s taken: %v, want key and address in it", tc.key, err)
		matches, _ := filepath.Glob(c.Store.DataDir)
		expect.That(t, len(matches) == 0, "%s taken: the data directory was made", tc.key)
	}
}

func TestOpenClosesEverythingWhenItFails(t *testing.T) {
	tests := []struct {
		name  string
		wrong func(*config.Config)
		want  string
	}{
		{"behind the store", func(c *config.Config) { c.HTTPD.Reads = "nonsense" }, "reads.eureka"},
		{"beside the store", func(c *config.Config) { c.Replication.TLS.CA = "missing.pem" }, "replication.tls.ca"},
	}
	for _, tt := range tests {
		for _, mode := range []string{config.CP, config.AP} {
			t.Run(tt.name+" in mode "+mode, func(t *testing.T) {
				right := oneNode(t)
				right.Mode = mode
				wrong := *right
				tt.wrong(&wrong)
				need.ErrorSays(t, expect.Err(open(Options{Config: &wrong, Version: "test", Log: quiet, Level: logging.NewLevel("info")})), tt.want, "got")
				n, err := open(Options{Config: right, Version: "test", Log: quiet, Level: logging.NewLevel("info")})
				need.OKf(t, err, "the next start")
				n.closePorts()
				expect.OK(t, abandon(n.runStore))
			})
		}
	}
}

func TestNodeWarnsOfAThresholdThatKeepsEverything(t *testing.T) {
	for _, tc := range []struct {
		threshold registry.Share
		warned    bool
	}{{registry.Whole, true}, {999_000, false}, {0, false}, {850_000, false}} {
		c := oneNode(t)
		c.Store.Settings.Threshold = tc.threshold
		var said bytes.Buffer
		n, err := open(Options{Config: c, Version: "test", Log: slog.New(slog.NewTextHandler(&said, nil)), Level: logging.NewLevel("info")})
		need.That(t, err == nil, "threshold %v: %v, want it allowed", tc.threshold, err)
		expect.OK(t, started(t, n)())
		got := strings.Contains(said.String(), "nothing is ever evicted")
		expect.That(t, got == tc.warned, "threshold %v: warned %v, want %v:\n%s", tc.threshold, got, tc.warned, &said)
	}
}
