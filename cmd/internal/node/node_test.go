package node

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/logging"
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
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

// opened opens a node that logs nothing.
func opened(t testing.TB, c *config.Config) *node {
	t.Helper()
	return need.Got(open(Options{Config: c, Version: "test", Log: quiet, Level: logging.NewLevel("info")}))(t)
}

// running is a node that runs until the test ends.
func running(t testing.TB, c *config.Config) *node {
	t.Helper()
	n := opened(t, c)
	stop := started(t, n)
	t.Cleanup(func() { expect.OK(t, stop()) })
	return n
}

func status(url string) int {
	resp, err := http.Get(url)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// readyURL waits until a node is ready, and returns the address of its API.
func readyURL(t *testing.T, n *node) string {
	t.Helper()
	url := "http://" + n.listeners[0].Addr().String()
	await(t, "the node is ready", func() bool { return status(url+"/readyz") == http.StatusOK })
	return url
}

// serving runs a node until the test ends, and returns the address of its API once it is ready.
func serving(t *testing.T, c *config.Config) (url string) {
	t.Helper()
	return readyURL(t, running(t, c))
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

func TestMetricNamesTheProtectionsThatAreMissingNow(t *testing.T) {
	c := config.Default()
	c.HTTP.Addr, c.HTTP.Plain, c.Auth.Mode = "10.0.0.1:8761", true, "off"
	mode := access.Off
	i := insecure{c, func() access.Mode { return mode }}
	const text = "# HELP rollcall_insecure 1 where the node does without a protection that it should have, because other machines reach it.\n# TYPE rollcall_insecure gauge\n" +
		"rollcall_insecure{what=\"auth-log-only\"} 0\nrollcall_insecure{what=\"auth-off\"} 1\nrollcall_insecure{what=\"cluster-plain\"} 0\nrollcall_insecure{what=\"http-plain\"} 1\n"
	expect.OK(t, testutil.CollectAndCompare(i, strings.NewReader(text)))
	mode = access.On // by the cluster
	expect.OK(t, testutil.CollectAndCompare(i, strings.NewReader(strings.Replace(text, "off\"} 1", "off\"} 0", 1))))
}

func TestBundleHasWhatIsKnownOfANode(t *testing.T) {
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "some_total", Help: "Some."}))
	b := bundler{
		metrics: metrics, version: "v9",
		settings: func(io.Writer) error { return errors.New("no settings today") },
		log:      func() []byte { return []byte("last words\n") },
		status:   func(context.Context) any { return api.Status{Leader: "n7"} },
	}
	var out bytes.Buffer
	need.OK(t, b.Bundle(t.Context(), &out))
	archive := tar.NewReader(need.Got(gzip.NewReader(&out))(t))
	parts := map[string]string{}
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		need.OK(t, err)
		parts[strings.TrimPrefix(header.Name, "rollcall-debug/")] = string(need.Got(io.ReadAll(archive))(t))
	}
	for name, want := range map[string]string{
		"version.txt": "rollcall v9 go", "settings.yaml": "could not be made: no settings today", "status.json": `"leader":"n7"`,
		"metrics-1.txt": "some_total 0", "metrics-2.txt": "some_total 0", "goroutines.txt": "TestBundleHasWhatIsKnownOfANode", "heap.pb.gz": "\x1f\x8b", "log.txt": "last words\n",
	} {
		expect.That(t, strings.Contains(parts[name], want), "%s: got %.200q, want %q in it", name, parts[name], want)
		delete(parts, name)
	}
	expect.That(t, len(parts) == 0, "it has more: %v", parts)
}

func TestIdleMemoryIsGivenBack(t *testing.T) {
	const mib = 1 << 20
	used := usedMemory{held: 500 * mib, cycles: 1}
	freed, kept := 0, uint64(200*mib)
	free := func() { freed, used.held, used.cycles = freed+1, kept, used.cycles+1 }
	var m idleMemory
	for _, step := range []struct {
		name      string
		held      uint64 // MiB
		allocated uint64 // MiB
		cycles    uint64
		want      int
	}{
		{"it was collected lately", 500, 0, 1, 0},
		{"it allocates, and nothing was collected", 500, 20, 0, 0},
		{"idle with much", 500, 1, 0, 1},
		{"idle with as much as before", 200, 0, 0, 1},
		{"idle with little more", 260, 1, 0, 1},
		{"busy with much", 900, 900, 3, 1},
		{"idle again", 900, 0, 0, 2},
		{"a large registry, at work", 2000, 500, 1, 2},
		{"a large registry", 2000, 0, 0, 3},
		{"a large registry with the garbage of some heartbeats", 1800, 16, 0, 3},
		{"a large registry after a burst", 1900, 16, 0, 4},
	} {
		if step.held == 2000 {
			kept = 1500 * mib
		}
		used.held, used.allocated, used.cycles = step.held*mib, used.allocated+step.allocated*mib, used.cycles+step.cycles
		m.check(func() usedMemory { return used }, free)
		expect.That(t, freed == step.want, "%s: gave memory back %d times so far, want %d", step.name, freed, step.want)
	}
}
