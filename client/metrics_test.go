package client

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// gaugedPart is a part with one gauge. It takes its lock as parts do: when it is asked, and while it ends.
type gaugedPart struct {
	client *Client
	app    string
	value  float64
	asked  func() // called when its gauges are asked for; nil: nothing is
	mu     sync.Mutex
}

func (p *gaugedPart) stop(context.Context) error  { return nil }
func (p *gaugedPart) leave(context.Context) error { return nil }

func (p *gaugedPart) gauges(emit func(*prometheus.Desc, float64, ...string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked != nil {
		p.asked()
	}
	emit(listAge, p.value, p.app)
}

func (p *gaugedPart) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.client.drop(p)
}

// measured returns a client whose metrics are in r.
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

// names are the families that a registry shows.
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
	c.metrics.request("register", "ok", 0)
	problems := need.Got(testutil.GatherAndLint(r))(t)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, name := range names(t, r) {
		expect.That(t, strings.HasPrefix(name, "rollcall_client_"), "%s does not begin with rollcall_client_", name)
	}
}

func TestClientsOfOneProcessNeedRegisterersThatTellThemApart(t *testing.T) {
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
	if n, err := testutil.GatherAndCount(apart, "rollcall_client_servers_quarantined"); err != nil || n != 2 {
		t.Errorf("%d series of a gauge, %v; want one of each client", n, err)
	}
}

func TestCloseTakesTheMetricsBack(t *testing.T) {
	for _, labels := range []prometheus.Labels{nil, {"datacenter": "dc1"}} {
		r := prometheus.NewRegistry()
		c := measured(t, prometheus.WrapRegistererWith(labels, r))
		expect.That(t, len(names(t, r)) != 0, "nothing is shown before Close")
		need.OK(t, c.Close(t.Context()))
		left := names(t, r)
		expect.That(t, len(left) <= 0, "after Close %v are shown, want none", left)
		measured(t, prometheus.WrapRegistererWith(labels, r)) // the same names are free
	}
}

func TestGaugesAreThoseOfTheParts(t *testing.T) {
	r := prometheus.NewRegistry()
	c := measured(t, r)
	orders := adopted(t, c, "orders", 1)
	adopted(t, c, "payments", 2)
	want := func(text string) {
		t.Helper()
		head := "# HELP rollcall_client_list_age_seconds Seconds since the list of instances was known to be up to date.\n" +
			"# TYPE rollcall_client_list_age_seconds gauge\n"
		expect.OK(t, testutil.GatherAndCompare(r, strings.NewReader(head+text), "rollcall_client_list_age_seconds"))
	}
	want("rollcall_client_list_age_seconds{app=\"orders\"} 1\nrollcall_client_list_age_seconds{app=\"payments\"} 2\n")
	orders.end()
	want("rollcall_client_list_age_seconds{app=\"payments\"} 2\n")
}

func TestWhatMayHappenIsShownFromTheBeginning(t *testing.T) {
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

// TestTheClientsPageListsTheMetrics compares the names and labels of docs/go-client.md.
func TestTheClientsPageListsTheMetrics(t *testing.T) {
	page := need.Got(os.ReadFile("../docs/go-client.md"))(t)
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
	if !slices.Equal(got, want) {
		t.Errorf("the page lists\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestServersInQuarantineAreCounted(t *testing.T) {
	r := prometheus.NewRegistry()
	c := need.Got(New(Config{Servers: []string{"http://a", "http://b"}, Registerer: r}))(t)
	want := func(n float64) {
		t.Helper()
		got := testutil.ToFloat64(c.metrics.quarantined)
		expect.That(t, got == n, "%v servers are in quarantine, want %v", got, n)
	}
	want(0)
	first := c.servers.order()[0]
	c.servers.failed(first)
	want(1)
	c.servers.answered(first)
	want(0)
}

func TestOfTwoPartsWithOneSeriesTheGreaterValueIsShown(t *testing.T) {
	r := prometheus.NewRegistry()
	c := measured(t, r)
	for _, value := range []float64{2, 3, 1} {
		adopted(t, c, "orders", value)
	}
	families := need.Got(r.Gather())(t)
	var got []float64
	for _, f := range families {
		if f.GetName() == "rollcall_client_list_age_seconds" {
			for _, m := range f.GetMetric() {
				got = append(got, m.GetGauge().GetValue())
			}
		}
	}
	expect.That(t, slices.Equal(got, []float64{3}), "shown are %v, want 3 alone", got)
}

func TestMetricsAreReadWhilePartsComeAndGo(t *testing.T) {
	r := prometheus.NewRegistry()
	c := measured(t, r)
	var g sync.WaitGroup
	for _, app := range []string{"orders", "payments"} {
		g.Go(func() {
			for range 200 {
				p := &gaugedPart{client: c, app: app}
				expect.OK(t, c.adopt(p))
				p.end()
			}
		})
	}
	g.Go(func() {
		for range 200 {
			expect.OK(t, expect.Err(r.Gather()))
		}
	})
	g.Wait()
}

func TestAPartMayEndWhileAnotherIsAskedForItsGauges(t *testing.T) {
	r := prometheus.NewRegistry()
	c := measured(t, r)
	payments := adopted(t, c, "payments", 1)
	adopted(t, c, "orders", 1).asked = func() {
		done := make(chan struct{})
		go func() { payments.end(); close(done) }()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Error("the client's lock is held meanwhile")
		}
	}
	names(t, r)
}

func TestALabelThatIsNoTextFailsNoScrape(t *testing.T) {
	r := prometheus.NewRegistry()
	adopted(t, measured(t, r), "\xff", 1)
	got := names(t, r)
	expect.That(t, slices.Contains(got, "rollcall_client_list_age_seconds"), "shown are %v, want the gauge too", got)
}
