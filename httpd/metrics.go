package httpd

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/dashboard"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// metrics are the counters of this package. Those of the renew path are looked up once.
type metrics struct {
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
	panics    prometheus.Counter

	renewDuration prometheus.Observer
	renewRequests map[int]prometheus.Counter // by status

	rateLimited, wouldLimit *prometheus.CounterVec // by target
}

func newMetrics(reg prometheus.Registerer, service registry.Service, apps int) *metrics {
	m := &metrics{
		requests: web.NewCounters(reg, "rollcall_http_requests_total", "Responses, by route template, method and status.", "route", "method", "code"),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rollcall_http_request_duration_seconds", Help: "Time from the request's header to the response.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"route", "method"}),
		panics: web.NewCounters(reg, "rollcall_http_panics_total", "Handlers that panicked; each is a defect.").WithLabelValues(),
		rateLimited: web.NewCounters(reg, "rollcall_http_rate_limited_total",
			"Fetches refused by the rate limiter, by target (upstream: numOfRateLimitedRequests).", "target"),
		wouldLimit: web.NewCounters(reg, "rollcall_http_rate_would_limit_total",
			"Fetches that the rate limiter would have refused if it were enabled, by target (upstream: numOfRateLimitedRequestCandidates).", "target"),
		renewRequests: map[int]prometheus.Counter{},
	}
	reg.MustRegister(m.durations, instanceGauge{service}, &appGauge{service: service, most: apps})
	m.renewDuration = m.durations.WithLabelValues(renewRoute, http.MethodPut)
	for _, status := range []int{200, 400, 404, 409, 413, 414, 500, 503, 504} {
		m.renewRequests[status] = m.requests.WithLabelValues(renewRoute, http.MethodPut, strconv.Itoa(status))
	}
	return m
}

// countRenewResponse counts a response on the renew path.
func (m *metrics) countRenewResponse(status int, took time.Duration) {
	counter, ok := m.renewRequests[status]
	if !ok {
		counter = m.requests.WithLabelValues(renewRoute, http.MethodPut, strconv.Itoa(status))
	}
	counter.Inc()
	m.renewDuration.Observe(took.Seconds())
}

// countResponse counts a response on any other route.
func (m *metrics) countResponse(route, method string, status int, took time.Duration) {
	if !slices.Contains(allMethods, method) {
		method = "other" // otherwise a client could invent methods without end
	}
	m.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
	m.durations.WithLabelValues(route, method).Observe(took.Seconds())
}

// writes returns the durations of the calls that change something.
func (m *metrics) writes() (all dashboard.Times) {
	series := make(chan prometheus.Metric)
	go func() {
		defer close(series)
		m.durations.Collect(series)
	}()
	for one := range series {
		var read dto.Metric
		if one.Write(&read) != nil {
			continue
		}
		switch label(&read, "method") {
		case "", http.MethodGet, http.MethodHead:
		default:
			addTimes(&all, read.GetHistogram())
		}
	}
	return all
}

// upkeep reads from the metrics of the node's certificates and snapshots what its operators must renew in time.
func upkeep(metrics prometheus.Gatherer) (u dashboard.Upkeep) {
	families, _ := metrics.Gather() // one collector's error must not hide the others' metrics
	for _, family := range families {
		for _, series := range family.GetMetric() {
			at := time.Time{}
			if seconds := int64(series.GetGauge().GetValue()); seconds != 0 {
				at = time.Unix(seconds, 0)
			}
			switch family.GetName() {
			case "rollcall_certificate_expiry_timestamp_seconds":
				u.Certificates = append(u.Certificates, dashboard.Certificate{Use: label(series, "use"), Ends: at})
			case "rollcall_backup_last_success_timestamp_seconds":
				u.Backup = &at
			}
		}
	}
	return u
}

// label returns the value of a series' label, or "" if the series lacks it.
func label(series *dto.Metric, name string) string {
	for _, l := range series.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// addTimes adds a histogram, whose counts are cumulative.
func addTimes(all *dashboard.Times, h *dto.Histogram) {
	if all.Counts == nil {
		all.Counts = make([]uint64, len(h.GetBucket())+1)
		for _, b := range h.GetBucket() {
			all.Bounds = append(all.Bounds, b.GetUpperBound())
		}
	}
	below := uint64(0)
	for i, b := range h.GetBucket() {
		all.Counts[i] += b.GetCumulativeCount() - below
		below = b.GetCumulativeCount()
	}
	all.Counts[len(all.Counts)-1] += h.GetSampleCount() - below
}

// instanceGauge counts instances by status when it is scraped, from the hash that the registry keeps anyway.
type instanceGauge struct{ service registry.Service }

var instancesDesc = prometheus.NewDesc("rollcall_registry_instances", "Instances in this node's registry, by status.", []string{"status"}, nil)

// Describe implements prometheus.Collector.
func (g instanceGauge) Describe(ch chan<- *prometheus.Desc) { ch <- instancesDesc }

// Collect implements prometheus.Collector.
func (g instanceGauge) Collect(ch chan<- prometheus.Metric) {
	var counts registry.Counts
	if view := web.StaleView(g.service); view != nil {
		counts = view.Counts()
	}
	for status, n := range counts {
		ch <- prometheus.MustNewConstMetric(instancesDesc, prometheus.GaugeValue, float64(n), registry.Status(status).String())
	}
}

// appGauge counts the instances of the largest applications by status, from the counts that the registry keeps anyway.
type appGauge struct {
	service registry.Service
	most    int // number of applications

	mu    sync.Mutex
	shown map[string]time.Time // when each application was last among the largest
}

// stillShown is how long an application stays shown after it left the largest ones or lost its last instance: a series
// that disappears raises no alarm.
const stillShown = 30 * time.Minute

var appInstancesDesc = prometheus.NewDesc("rollcall_registry_app_instances",
	"Instances in this node's registry, by application and status, for the largest applications (metrics.apps); all others are added up under an empty name. Statuses other than UP are left out while no instance has them.", []string{"app", "status"}, nil)

// Describe implements prometheus.Collector.
func (g *appGauge) Describe(ch chan<- *prometheus.Desc) { ch <- appInstancesDesc }

// Collect implements prometheus.Collector.
func (g *appGauge) Collect(ch chan<- prometheus.Metric) {
	view := web.StaleView(g.service)
	if view == nil {
		return
	}
	apps := slices.Collect(view.Apps())
	slices.SortFunc(apps, func(a, b *registry.App) int { return cmp.Or(b.Len()-a.Len(), strings.Compare(a.Name, b.Name)) })
	largest := apps[:min(len(apps), g.most)]
	left := g.leftOf(largest, time.Now())
	var others registry.Counts
	for i, app := range apps {
		if i < g.most || left[app.Name] {
			sendCounts(ch, app.Name, app.Counts())
			delete(left, app.Name)
			continue
		}
		for status, n := range app.Counts() {
			others[status] += n
		}
	}
	if len(apps) > g.most {
		sendCounts(ch, "", others)
	}
	for name := range left {
		sendCounts(ch, name, registry.Counts{})
	}
}

// sendCounts sends the instances of an application by status.
func sendCounts(ch chan<- prometheus.Metric, app string, counts registry.Counts) {
	for status, n := range counts {
		if status := registry.Status(status); n > 0 || status == registry.Up {
			ch <- prometheus.MustNewConstMetric(appInstancesDesc, prometheus.GaugeValue, float64(n), app, status.String())
		}
	}
}

// leftOf returns the applications that were among the largest recently but are not now, as many as fit beside those
// that are.
func (g *appGauge) leftOf(largest []*registry.App, now time.Time) map[string]bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shown == nil {
		g.shown = map[string]time.Time{}
	}
	for _, app := range largest {
		g.shown[app.Name] = now
	}
	left := make(map[string]bool)
	for name, at := range g.shown {
		if now.Sub(at) > stillShown {
			delete(g.shown, name)
		} else if at.Before(now) && len(left) < g.most {
			left[name] = true
		}
	}
	return left
}

// renewRoute is the template of the heartbeat route.
const renewRoute = "{base}/apps/{app}/{id}"

// allMethods are the methods that any route has.
var allMethods = []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodDelete}
