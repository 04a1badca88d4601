package node

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
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
	"github.com/prometheus/common/expfmt"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/logging"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/golden"
	"github.com/seed-20419f34/rollcall/internal/need"
)

const (
	root         = "../../.."
	metricsPage  = root + "/docs/reference/metrics.md"
	metricsStart = "<!-- metrics: made by go test ./cmd/internal/node -run PageOfMetrics -update -->\n"
	metricsEnd   = "<!-- end of metrics -->\n"
)

// described is a metric as its collector describes it.
type described struct{ name, labels, help string }

// descriptions are all metrics of this project in a registry, those without a series included. The registry has no
// method that lists its collectors, so they are read out of it.
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

// withEverything is the settings of a node that has all that metrics are about.
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
	n.metrics.MustRegister(logging.NewQueue(nil).Dropped) // as Run does
	stop := started(t, n)
	defer func() { expect.OK(t, stop()) }()
	last := map[string]string{config.CP: "rollcall_probe_queue_age_seconds", config.AP: "rollcall_ready"}[mode] // of what is registered
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

// allMetrics are those of nodes in both modes, and in which mode a node has each; "": in both.
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

func TestPageOfMetricsIsThatOfTheCodeAndDocumentsNameNoOthers(t *testing.T) {
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
		shown := seconds.ReplaceAllStringFunc(watched(t, w), func(s string) string { // to the second: the test takes a moment
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

// mostScraped is how many bytes a scrape may have.
const mostScraped = 1 << 20

func TestScrapeOfManyApplicationsIsBounded(t *testing.T) {
	few, many := largeNode(t, 600, 1)(), largeNode(t, 3000, 1)()
	expect.That(t, many < mostScraped && many < few+few/10, "%d bytes with 600 applications, %d with 3000", few, many)
}
