package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/client/internal/transport"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// gaugedPart is a part with one gauge. It takes its lock as parts do: when it is asked, and while it ends.
type gaugedPart struct {
	client *Client
	app    string
	value  float64
	asked  func() // called when its gauges are asked for; may be nil
	mu     sync.Mutex
}

func (p *gaugedPart) stop(context.Context) error     { return nil }
func (p *gaugedPart) withdraw(context.Context) error { return nil }

func (p *gaugedPart) gauges(emit func(*prometheus.Desc, float64, ...string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked != nil {
		p.asked()
	}
	emit(listAge, p.value, p.app)
}

func (p *gaugedPart) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.client.drop(p)
}

func measured(t *testing.T, r prometheus.Registerer) *Client {
	t.Helper()
	c := need.Got(New(Config{Servers: []string{"http://a"}, Registerer: r}))(t)
	t.Cleanup(func() { c.Close(context.WithoutCancel(t.Context())) })
	return c
}

func adopted(t *testing.T, c *Client, app string, value float64) *gaugedPart {
	t.Helper()
	p := &gaugedPart{client: c, app: app, value: value}
	need.OK(t, c.adopt(p))
	return p
}

func names(t *testing.T, r *prometheus.Registry) []string {
	t.Helper()
	families := need.Got(r.Gather())(t)
	var all []string
	for _, f := range families {
		all = append(all, f.GetName())
	}
	return all
}

func TestMetricsAreNamedAsPrometheusWants(t *testing.T) {
	r := prometheus.NewRegistry()
	c := measured(t, r)
	adopted(t, c, "orders", 1)
	_ = c.Renew(t.Context(), key, 0)
	problems := need.Got(testutil.GatherAndLint(r))(t)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, name := range names(t, r) {
		expect.That(t, strings.HasPrefix(name, "rollcall_client_"), "%s does not begin with rollcall_client_", name)
	}
}

func TestMetricsOfTwoClientsNeedDifferentRegisterers(t *testing.T) {
	same := prometheus.NewRegistry()
	measured(t, same)
	_, err := New(Config{Servers: []string{"http://a"}, Registerer: same})
	taken := (prometheus.AlreadyRegisteredError{})
	expect.That(t, errors.As(err, &taken) && strings.Contains(err.Error(), "WrapRegistererWith"),
		"got %v, want an error that says what would be right", err)
	apart := prometheus.NewRegistry()
	for _, datacenter := range []string{"dc1", "dc2"} {
		measured(t, prometheus.WrapRegistererWith(prometheus.Labels{"datacenter": datacenter}, apart))
	}
	n, err := testutil.GatherAndCount(apart, "rollcall_client_servers_quarantined")
	expect.That(t, err == nil && n == 2, "%d series of a gauge, %v; want one of each client", n, err)
}

func TestCloseTakesTheMetricsBack(t *testing.T) {
	for _, labels := range []prometheus.Labels{nil, {"datacenter": "dc1"}} {
		r := prometheus.NewRegistry()
		c := measured(t, prometheus.WrapRegistererWith(labels, r))
		expect.That(t, len(names(t, r)) != 0, "nothing is shown before Close")
		need.OK(t, c.Close(t.Context()))
		expect.Slice(t, names(t, r), nil, "after Close there are shown")
		measured(t, prometheus.WrapRegistererWith(labels, r)) // the same names are free
	}
}

// Of parts with one series, the greatest value is shown.
func TestGaugesShowTheParts(t *testing.T) {
	r := prometheus.NewRegistry()
	c := measured(t, r)
	orders := adopted(t, c, "orders", 3)
	for _, value := range []float64{2, 5, 1} {
		adopted(t, c, "payments", value)
	}
	want := func(text string) {
		t.Helper()
		head := "# HELP rollcall_client_list_age_seconds Seconds since the list of instances was known to be up to date.\n" +
			"# TYPE rollcall_client_list_age_seconds gauge\n"
		expect.OK(t, testutil.GatherAndCompare(r, strings.NewReader(head+text), "rollcall_client_list_age_seconds"))
	}
	want("rollcall_client_list_age_seconds{app=\"orders\"} 3\nrollcall_client_list_age_seconds{app=\"payments\"} 5\n")
	orders.finish()
	want("rollcall_client_list_age_seconds{app=\"payments\"} 5\n")
}

func TestMetricsShowZerosFromTheBeginning(t *testing.T) {
	r := prometheus.NewRegistry()
	measured(t, r)
	for name, want := range map[string]int{
		"rollcall_client_heartbeats_total": 3, "rollcall_client_registrations_total": 6,
		"rollcall_client_refreshes_total": 7, "rollcall_client_lost_total": 3,
	} {
		got, err := testutil.GatherAndCount(r, name)
		expect.That(t, err == nil && got == want, "%s has %d series, %v; want %d", name, got, err, want)
	}
}

// It compares the names and labels in docs/reference/go-client.md.
func TestMetricsAreListedOnTheClientsPage(t *testing.T) {
	page := need.Got(os.ReadFile("../docs/reference/go-client.md"))(t)
	_, table, _ := strings.Cut(string(page), "| Metric `rollcall_client_…`")
	table, _, _ = strings.Cut(table, "\n\n")
	descs := make(chan *prometheus.Desc, 100)
	measured(t, nil).metrics.Describe(descs)
	close(descs)
	var want []string
	for d := range descs {
		parts := regexp.MustCompile(`fqName: "rollcall_client_(\w+)".*variableLabels: {([\w,]*)}`).FindStringSubmatch(d.String())
		want = append(want, parts[1]+" "+parts[2])
	}
	var got []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([^|]*) \\|").FindAllStringSubmatch(table, -1) {
		got = append(got, row[1]+" "+strings.NewReplacer("`", "", " ", "").Replace(row[2]))
	}
	slices.Sort(want)
	slices.Sort(got)
	expect.That(t, slices.Equal(got, want), "the page lists\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
}

func TestMetricsCountServersInQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := counting(t, fake.Servers{"a": fake.Unreachable, "b": fake.Always(200, "")}, "a", "b")
		want := func(n int) {
			t.Helper()
			text := fmt.Sprintf("# HELP %[1]s Servers that are asked last because they gave no answer.\n# TYPE %[1]s gauge\n%[1]s %[2]d\n", "rollcall_client_servers_quarantined", n)
			expect.OK(t, testutil.GatherAndCompare(r, strings.NewReader(text), "rollcall_client_servers_quarantined"))
		}
		want(0)
		need.OK(t, c.Renew(t.Context(), key, 0))
		want(1)
		time.Sleep(time.Second)
		want(0)
	})
}

func TestMetricsAreReadWhileAPartEnds(t *testing.T) {
	r := prometheus.NewRegistry()
	c := measured(t, r)
	payments := adopted(t, c, "payments", 1)
	adopted(t, c, "orders", 1).asked = func() {
		done := make(chan struct{})
		go func() { payments.finish(); close(done) }()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Error("the client's lock is held meanwhile")
		}
	}
	names(t, r)
}

func TestMetricsShowALabelThatIsNotText(t *testing.T) {
	r := prometheus.NewRegistry()
	adopted(t, measured(t, r), "\xff", 1)
	got := names(t, r)
	expect.That(t, slices.Contains(got, "rollcall_client_list_age_seconds"), "shown are %v, want the gauge too", got)
}

// tries returns the operations and outcomes that a registry has counted, such as "renew 2xx 1".
func tries(t *testing.T, r *prometheus.Registry) string {
	t.Helper()
	families := need.Got(r.Gather())(t)
	var all []string
	for _, f := range families {
		if f.GetName() != "rollcall_client_request_duration_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := make(map[string]string)
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			all = append(all, fmt.Sprintf("%s %s %d", labels["operation"], labels["outcome"], m.GetHistogram().GetSampleCount()))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func counting(t *testing.T, network fake.Servers, hosts ...string) (*Client, *prometheus.Registry) {
	t.Helper()
	r := prometheus.NewRegistry()
	c := need.Got(New(Config{Servers: fake.URLs(hosts...), InOrder: true, HTTPClient: &http.Client{Transport: network}, Registerer: r}))(t)
	return c, r
}

func TestTriesAreCountedByOperation(t *testing.T) {
	by := registry.Act{Author: "ann", Reason: "test"}
	for want, do := range map[string]func(context.Context, *Client){
		"register":          func(ctx context.Context, c *Client) { _ = c.Register(ctx, &registry.Instance{App: "A"}) },
		"renew":             func(ctx context.Context, c *Client) { _ = c.Renew(ctx, key, 0) },
		"cancel":            func(ctx context.Context, c *Client) { _ = c.Cancel(ctx, key) },
		"status":            func(ctx context.Context, c *Client) { _ = c.SetStatus(ctx, key, registry.Up) },
		"apps":              func(ctx context.Context, c *Client) { _, _ = c.Apps(ctx) },
		"app":               func(ctx context.Context, c *Client) { _, _ = c.Instances(ctx, "A") },
		"cluster":           func(ctx context.Context, c *Client) { _, _ = c.Status(ctx) },
		"verify":            func(ctx context.Context, c *Client) { _, _ = c.Verify(ctx) },
		"events":            func(ctx context.Context, c *Client) { _, _ = c.Events(ctx) },
		"settings":          func(ctx context.Context, c *Client) { _, _ = c.Settings(ctx) },
		"self-preservation": func(ctx context.Context, c *Client) { _, _ = c.SelfPreservation(ctx) },
		"explain":           func(ctx context.Context, c *Client) { _, _ = c.Explain(ctx, key) },
		"override":          func(ctx context.Context, c *Client) { _, _ = c.Override(ctx, key, registry.Up, by, 0) },
		"quarantine":        func(ctx context.Context, c *Client) { _, _ = c.Quarantine(ctx, key, by, time.Hour) },
		"members":           func(ctx context.Context, c *Client) { _ = c.RemoveMember(ctx, "n1", registry.Act{}) },
		"peers":             func(ctx context.Context, c *Client) { _, _ = c.Peers(ctx) },
		"kv":                func(ctx context.Context, c *Client) { _, _ = c.KV().Get(ctx, "a/b") },
		"session":           func(ctx context.Context, c *Client) { _ = c.DestroySession(ctx, "s1") },
		"watch": func(ctx context.Context, c *Client) {
			_, _, _ = c.cluster.OpenStream(ctx, c.cluster.Known()[0], transport.Own(http.MethodGet, "watch"))
		},
		"delta": func(ctx context.Context, c *Client) {
			_, _ = c.cluster.Perform(ctx, transport.Eureka(http.MethodGet, "apps", "delta"), "")
		},
		"vip": func(ctx context.Context, c *Client) {
			_, _ = c.cluster.Perform(ctx, transport.Eureka(http.MethodGet, "svips", "orders"), "")
		},
		"instance": func(ctx context.Context, c *Client) {
			_, _ = c.cluster.Perform(ctx, transport.Eureka(http.MethodGet, "apps", "delta", "orders-1"), "")
		},
		"metadata": func(ctx context.Context, c *Client) {
			_, _ = c.cluster.Perform(ctx, ofInstance(http.MethodPut, key, "metadata"), "")
		},
		"lock": func(ctx context.Context, c *Client) {
			_, _ = c.cluster.Perform(ctx, transport.Own(http.MethodPut, "locks", "a"), "")
		},
		"semaphore": func(ctx context.Context, c *Client) {
			_, _ = c.cluster.Perform(ctx, transport.Own(http.MethodPut, "semaphores", "a"), "")
		},
		"instances": func(ctx context.Context, c *Client) { _, _ = c.List(ctx, "") },
	} {
		c, r := counting(t, fake.Servers{"a": fake.Always(400, "")}, "a")
		do(t.Context(), c)
		expect.Equal(t, tries(t, r), want+" 4xx 1", "counted")
	}
}

func TestTriesAreCountedByOutcome(t *testing.T) {
	unauthorized := func(*http.Request) (*http.Response, error) { return nil, errors.New("x509: certificate") }
	for _, tc := range []struct {
		name   string
		server func(*http.Request) (*http.Response, error)
		within time.Duration // of the caller; 0 if it goes away
		want   string
	}{
		{name: "done", server: fake.Always(204, ""), within: time.Minute, want: "renew 2xx 1"},
		{name: "moved", server: fake.Always(307, ""), within: time.Minute, want: "renew 3xx 1"},
		{name: "no such instance", server: fake.Always(404, ""), within: time.Minute, want: "renew 4xx 1"},
		{name: "no leader", server: fake.Always(503, ""), within: time.Minute, want: "renew 5xx 1"},
		{name: "unknown", server: fake.Always(504, "", "X-Rollcall-Outcome", "unknown"), within: time.Minute, want: "renew unknown 1"},
		{name: "unreachable", server: fake.Unreachable, within: time.Minute, want: "renew unreachable 1"},
		{name: "cut off", server: fake.CutOff, within: time.Minute, want: "renew unreachable 1"},
		{name: "no trust", server: unauthorized, within: time.Minute, want: "renew unreachable 1"},
		{name: "silent", server: fake.Silent, within: time.Minute, want: "renew timeout 1"},
		{name: "it stops", server: fake.Endless, within: time.Minute, want: "renew timeout 1"},
		{name: "the caller has no time", server: fake.Silent, within: time.Second, want: "renew timeout 1"},
		{name: "the caller goes away", server: fake.Silent, want: "renew canceled 1"},
	} {
		fake.InBubble(t, tc.name, func(t *testing.T) {
			c, r := counting(t, fake.Servers{"a": tc.server}, "a")
			ctx, cancel := fake.ContextWithin(t, tc.within)
			defer cancel()
			_ = c.Renew(ctx, key, 0)
			expect.Equal(t, tries(t, r), tc.want, "counted")
		})
	}
}

func TestTriesThatCloseCutsOffAreCountedAsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := counting(t, fake.Servers{"a": fake.Silent}, "a")
		kept := prometheus.NewRegistry()
		kept.MustRegister(c.cluster.Collectors()...)
		ended := make(chan error)
		go func() { ended <- c.Renew(t.Context(), key, 0) }()
		synctest.Wait()
		need.OK(t, c.Close(t.Context()))
		<-ended
		expect.Equal(t, tries(t, kept), "renew closed 1", "counted")
	})
}
