package node

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/golden"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// oneNode returns the settings of a node that founds a cluster alone.
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
	return need.Got(open(Options{Config: c, Version: "test", Log: quiet, Level: NewLogLevel("info")}))(t)
}

// running returns a node that runs until the test ends.
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

// await polls until a condition holds. The limit is only for liveness: most take some 100 ms.
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
		_, err := open(Options{Config: c, Version: "test", Log: quiet, Level: NewLogLevel("info")})
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
				need.ErrorSays(t, expect.Err(open(Options{Config: &wrong, Version: "test", Log: quiet, Level: NewLogLevel("info")})), tt.want, "got")
				n, err := open(Options{Config: right, Version: "test", Log: quiet, Level: NewLogLevel("info")})
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
		n, err := open(Options{Config: c, Version: "test", Log: slog.New(slog.NewTextHandler(&said, nil)), Level: NewLogLevel("info")})
		need.That(t, err == nil, "threshold %v: %v, want it allowed", tc.threshold, err)
		expect.OK(t, started(t, n)())
		expect.Equal(t, strings.Contains(said.String(), "nothing is ever evicted"), tc.warned, "%s\nthreshold %v: warned", &said, tc.threshold)
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
	const text = "# HELP rollcall_insecure 1 for each protection that the node lacks although other machines can reach it.\n# TYPE rollcall_insecure gauge\n" +
		"rollcall_insecure{what=\"auth-log-only\"} 0\nrollcall_insecure{what=\"auth-off\"} 1\nrollcall_insecure{what=\"cluster-plain\"} 0\nrollcall_insecure{what=\"http-plain\"} 1\n"
	expect.OK(t, testutil.CollectAndCompare(i, strings.NewReader(text)))
	mode = access.On // set by the cluster
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

const (
	root         = "../../.."
	metricsPage  = root + "/docs/reference/metrics.md"
	metricsStart = "<!-- metrics: made by go test ./cmd/internal/node -run MetricsPage -update -->\n"
	metricsEnd   = "<!-- end of metrics -->\n"
)

// described is a metric as its collector describes it.
type described struct{ name, labels, help string }

// descriptions returns all metrics of this project in a registry, including those without a series. The registry has
// no method that lists its collectors, so they are read out of its fields.
func descriptions(t testing.TB, reg *prometheus.Registry) map[string]described {
	t.Helper()
	field := reflect.ValueOf(reg).Elem().FieldByName("collectorsByID")
	need.That(t, field.IsValid() && field.Type() == reflect.TypeFor[map[uint64]prometheus.Collector](), "prometheus.Registry keeps its collectors otherwise now")
	collectors := *(*map[uint64]prometheus.Collector)(unsafe.Pointer(field.UnsafeAddr()))
	form := regexp.MustCompile(`^Desc\{fqName: "(\w+)", help: (".*"), unit: ".*", constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)
	all := map[string]described{}
	for _, c := range collectors {
		descs := make(chan *prometheus.Desc)
		go func() { c.Describe(descs); close(descs) }()
		for d := range descs {
			m := form.FindStringSubmatch(d.String())
			need.That(t, m != nil, "a description has another form now: %v", d)
			if !strings.HasPrefix(m[1], "rollcall_") {
				continue
			}
			var labels []string
			for pair := range strings.SplitSeq(m[3]+","+m[4], ",") {
				if name, _, _ := strings.Cut(pair, "="); name != "" {
					labels = append(labels, "`"+name+"`")
				}
			}
			all[m[1]] = described{m[1], strings.Join(labels, ", "), need.Got(strconv.Unquote(m[2]))(t)}
		}
	}
	return all
}

// withEverything returns the settings of a node that has everything that metrics are about.
func withEverything(t *testing.T, mode string) *config.Config {
	t.Helper()
	dir := t.TempDir()
	need.OK(t, config.WriteNodes(filepath.Join(dir, "cluster"), need.Got(config.ParseNodes([]string{"n1=127.0.0.1"}))(t), false))
	file := func(name string) string { return filepath.Join(dir, "cluster", "n1", name) }
	auth := filepath.Join(dir, "auth.yaml")
	need.OK(t, os.WriteFile(auth, []byte("roles: {prometheus: [metrics read]}\n"), 0o600))
	c := oneNode(t)
	c.Mode = mode
	c.HTTP.TLS.Cert, c.HTTP.TLS.Key = file("node.crt"), file("node.key")
	c.Replication.TLS.CA, c.Replication.TLS.Cert, c.Replication.TLS.Key = file("authority.crt"), file("node.crt"), file("node.key")
	if mode == config.AP {
		c.HTTPD.Reads = "stale" // there are no others
	} else {
		c.Store.TLS.CA, c.Store.TLS.Cert, c.Store.TLS.Key = file("authority.crt"), file("node.crt"), file("node.key")
	}
	c.Backup.Dir, c.Auth.File = filepath.Join(dir, "backups"), auth
	need.OK(t, c.Validate())
	return c
}

func shownBy(t *testing.T, mode string) map[string]described {
	t.Helper()
	n := opened(t, withEverything(t, mode))
	n.metrics.MustRegister(NewLogQueue(nil).Dropped) // as Run does
	stop := started(t, n)
	defer func() { expect.OK(t, stop()) }()
	// last one registered in each mode
	last := map[string]string{config.CP: "rollcall_probe_queue_age_seconds", config.AP: "rollcall_ready"}[mode]
	awaitSeries(t, n.metrics, last)
	return descriptions(t, n.metrics)
}

func awaitSeries(t testing.TB, reg *prometheus.Registry, name string) {
	t.Helper()
	await(t, "there is a series "+name, func() bool {
		for _, f := range need.Got(reg.Gather())(t) {
			if f.GetName() == name {
				return true
			}
		}
		return false
	})
}

// allMetrics lists the metrics, each with the mode whose nodes have it; "" stands for both.
func allMetrics(t *testing.T) (all map[string]described, modes map[string]string) {
	t.Helper()
	cp, ap := shownBy(t, config.CP), shownBy(t, config.AP)
	all, modes = maps.Clone(cp), map[string]string{}
	for name, d := range cp {
		if other, ok := ap[name]; !ok {
			modes[name] = config.CP
		} else {
			expect.Equal(t, other, d, "%s in mode ap", name)
		}
	}
	for name, d := range ap {
		if _, ok := cp[name]; !ok {
			all[name], modes[name] = d, config.AP
		}
	}
	return all, modes
}

func TestMetricsPageMatchesTheCodeAndDocumentsNameNoOthers(t *testing.T) {
	all, modes := allMetrics(t)
	table := "| Name | Labels | Mode | Meaning |\n|---|---|---|---|\n"
	for _, name := range slices.Sorted(maps.Keys(all)) {
		table += fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, all[name].labels, modes[name], all[name].help)
	}
	golden.Part(t, metricsPage, metricsStart, metricsEnd, table)
	expectOnlyNamesOf(t, all)
}

func expectOnlyNamesOf(t *testing.T, all map[string]described) {
	t.Helper()
	name := regexp.MustCompile(`\brollcall_[a-z_]+`)
	part := regexp.MustCompile(`_(bucket|sum|count)$`) // of a histogram
	found := 0
	look := func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !slices.Contains([]string{".md", ".yaml", ".json"}, filepath.Ext(path)) {
			return err
		}
		for _, m := range name.FindAllString(string(need.Got(os.ReadFile(path))(t)), -1) {
			_, whole := all[m]
			_, histogram := all[part.ReplaceAllString(m, "")]
			family := strings.HasSuffix(m, "_") // rollcall_client_*
			found++
			expect.That(t, whole || histogram || family || strings.HasPrefix(m, "rollcall_client_"), "%s names the metric %s, and no node has it", path, m)
		}
		return nil
	}
	for _, folder := range []string{"docs", "deploy", "README.md"} {
		need.OK(t, filepath.WalkDir(filepath.Join(root, folder), look))
	}
	need.That(t, found > 200, "%d names were found", found)
}

func TestEveryLimitThatHasAShareIsShownBesideWhatIsUsed(t *testing.T) {
	withoutShare := []string{"limits.batch-bytes", "limits.ignored-bytes", "limits.register-bytes", "limits.connections-per-address", "limits.principal-share"}
	for _, tc := range []struct {
		mode string
		also []string // have no share in this mode
	}{{config.CP, nil}, {config.AP, []string{"limits.sessions"}}} {
		c := oneNode(t)
		c.Mode = tc.mode
		n := opened(t, c)
		var want []string
		for _, s := range c.Settings() {
			if strings.HasPrefix(s.Key, "limits.") && !slices.Contains(append(tc.also, withoutShare...), s.Key) {
				want = append(want, s.Key)
			}
		}
		stop := started(t, n)
		awaitSeries(t, n.metrics, "rollcall_limit")
		for _, name := range []string{"rollcall_limit", "rollcall_limit_used"} {
			need.Slice(t, labelValues(t, n.metrics, name, "name"), want, "%s in mode %s:", name, tc.mode)
		}
		expect.OK(t, stop())
	}
}

func labelValues(t testing.TB, reg *prometheus.Registry, metric, label string) (values []string) {
	t.Helper()
	for _, f := range need.Got(reg.Gather())(t) {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == metric && l.GetName() == label {
					values = append(values, l.GetValue())
				}
			}
		}
	}
	slices.Sort(values)
	return values
}

func watched(t *testing.T, w *clusterWatch) string {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(w)
	var b bytes.Buffer
	for _, f := range need.Got(reg.Gather())(t) {
		_ = need.Got(expfmt.MetricFamilyToText(&b, f))(t)
	}
	var lines []string
	for line := range strings.Lines(b.String()) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimPrefix(strings.TrimSpace(line), "rollcall_"))
		}
	}
	return strings.Join(lines, "\n")
}

func TestLeaderShowsHowManyVotersMayFailAndHowFarNodesAreBehind(t *testing.T) {
	nodes := nodesWith("leader", "follower", "follower")
	looks := []struct {
		name  string
		nodes func() []api.NodeStatus
		want  string
	}{
		{"all are well", func() []api.NodeStatus { return applied(nodes, 100, 100, 100) },
			"cluster_failure_tolerance 1\ncluster_voters 3\ncluster_voters_healthy 3\nstore_follower_lag_entries{node=\"n2\"} 0\nstore_follower_lag_entries{node=\"n3\"} 0\nstore_follower_lag_seconds{node=\"n2\"} 0\nstore_follower_lag_seconds{node=\"n3\"} 0"},
		{"one lags", func() []api.NodeStatus { return applied(nodes, 200, 200, 150) },
			"cluster_failure_tolerance 1\ncluster_voters 3\ncluster_voters_healthy 3\nstore_follower_lag_entries{node=\"n2\"} 0\nstore_follower_lag_entries{node=\"n3\"} 50\nstore_follower_lag_seconds{node=\"n2\"} 0\nstore_follower_lag_seconds{node=\"n3\"} 20"},
		{"it does not respond", func() []api.NodeStatus { return applied(nodesWith("leader", "follower", unreachable), 300, 300, 0) },
			"cluster_failure_tolerance 0\ncluster_voters 3\ncluster_voters_healthy 2\nstore_follower_lag_entries{node=\"n2\"} 0\nstore_follower_lag_entries{node=\"n3\"} 150\nstore_follower_lag_seconds{node=\"n2\"} 0\nstore_follower_lag_seconds{node=\"n3\"} 20"},
		{"it joined again with nothing", func() []api.NodeStatus { return applied(nodes, 300, 300, 7) },
			"cluster_failure_tolerance 1\ncluster_voters 3\ncluster_voters_healthy 3\nstore_follower_lag_entries{node=\"n2\"} 0\nstore_follower_lag_entries{node=\"n3\"} 293\nstore_follower_lag_seconds{node=\"n2\"} 0\nstore_follower_lag_seconds{node=\"n3\"} 30"},
	}
	var now []api.NodeStatus
	w := &clusterWatch{status: func(context.Context) api.Status { return api.Status{Leader: "n1", Nodes: now} }}
	need.Equal(t, watched(t, w), "", "before the first look")
	began := time.Now().Add(-30 * time.Second)
	seconds := regexp.MustCompile(`(seconds\{.*\}) ([0-9.e+]+)`)
	for i, look := range looks {
		now = look.nodes()
		w.look(t.Context(), began.Add(time.Duration(i)*10*time.Second))
		// to the second: the test takes a moment
		shown := seconds.ReplaceAllStringFunc(watched(t, w), func(s string) string {
			m := seconds.FindStringSubmatch(s)
			return m[1] + " " + strconv.Itoa(int(need.Got(strconv.ParseFloat(m[2], 64))(t)))
		})
		expect.Equal(t, shown, look.want, "%s:", look.name)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	w.run(ended, registry.Epoch{})
	expect.Equal(t, watched(t, w), "", "when it leads no more:")
}

func applied(nodes []api.NodeStatus, indexes ...uint64) []api.NodeStatus {
	nodes = slices.Clone(nodes)
	for i := range nodes {
		nodes[i].Applied = indexes[i]
	}
	return nodes
}

// largeNode runs a node without consensus that has instances of applications, and returns a function that scrapes it.
func largeNode(t testing.TB, apps, each int) (scrape func() (bytes int)) {
	t.Helper()
	c := oneNode(t)
	c.Mode = config.AP
	n := running(t, c)
	awaitSeries(t, n.metrics, "rollcall_ready")
	ask := func(method, path, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		n.handler.ServeHTTP(w, r)
		return w
	}
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for i := worker; i < apps*each; i += 4 {
				app := fmt.Sprintf("SERVICE-%d", i%apps)
				w := ask(http.MethodPost, "/eureka/apps/"+app, fmt.Sprintf(`{"instance":{"instanceId":"i-%d","hostName":"h","app":"%s","ipAddr":"10.0.0.1","status":"UP","dataCenterInfo":{"@class":"x","name":"MyOwn"}}}`, i, app))
				if w.Code != http.StatusNoContent {
					t.Errorf("registration %d: %d %s", i, w.Code, w.Body)
					return
				}
			}
		})
	}
	all.Wait()
	return func() int {
		w := ask(http.MethodGet, "/metrics", "")
		need.Equal(t, w.Code, http.StatusOK, "status")
		return w.Body.Len()
	}
}

// mostScraped is the most bytes that a scrape may have.
const mostScraped = 1 << 20

func TestScrapeOfManyApplicationsIsBounded(t *testing.T) {
	few, many := largeNode(t, 600, 1)(), largeNode(t, 3000, 1)()
	// Applications that have left the largest ones stay shown for a while, at most as many again.
	expect.That(t, many < mostScraped && many < 2*few, "%d bytes with 600 applications, %d with 3000", few, many)
}

// brokenCollector is a collector with a defect.
type brokenCollector struct{}

func (brokenCollector) Describe(to chan<- *prometheus.Desc) {
	to <- prometheus.NewDesc("rollcall_planted", "A defect.", nil, nil)
}

func (brokenCollector) Collect(chan<- prometheus.Metric) { panic("planted") }

func TestCollectorThatPanicsCostsItsOwnFiguresOnly(t *testing.T) {
	n := running(t, oneNode(t))
	n.metrics.MustRegister(brokenCollector{})
	for scrape := range 2 {
		w := httptest.NewRecorder()
		n.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1/metrics", nil))
		need.Equal(t, w.Code, http.StatusOK, "status")
		expect.That(t, strings.Contains(w.Body.String(), "rollcall_registry_instances"), "other figures are not shown: %s", w.Body)
		expect.That(t, strings.Contains(w.Body.String(), fmt.Sprintf(`rollcall_measuring_panics_total{what="metrics"} %d`, scrape)), "before scrape %d other panics are counted: %s", scrape, w.Body)
	}
}
