package httpd

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// metrics are the counters of this package. Those of the renew path are looked up once.
type metrics struct {
	requests   *prometheus.CounterVec
	durations  *prometheus.HistogramVec
	operations *prometheus.CounterVec
	panics     prometheus.Counter
	built      *prometheus.CounterVec
	renew      renewMetrics

	rateLimited, wouldLimit *prometheus.CounterVec // by target
}

// renewMetrics are the resolved counters of the most frequent request.
type renewMetrics struct {
	duration prometheus.Observer
	requests map[int]prometheus.Counter // by status
	client   [renewOutcomes]prometheus.Counter
	peer     [renewOutcomes]prometheus.Counter
}

// outcomeNames are the label values of registry outcomes.
var outcomeNames = [...]string{
	registry.Done:           "done",
	registry.NotFound:       "not_found",
	registry.Newer:          "newer",
	registry.Older:          "older",
	registry.KeptExisting:   "kept_existing",
	registry.GoneHandle:     "gone_handle",
	registry.Refused:        "refused",
	registry.UnknownService: "unknown_service",
	registry.NameTaken:      "name_taken",
	registry.NoTTL:          "no_ttl",
	registry.TooManyChecks:  "too_many_checks",
	registry.AddressTaken:   "address_taken",
	registry.CheckTaken:     "check_taken",
}

// renewOutcomes are those that a renewal can have, which are counted on the shortest way.
const renewOutcomes = int(registry.Refused) + 1

func newMetrics(reg prometheus.Registerer, service registry.Service, documentBytes func() float64) *metrics {
	m := &metrics{
		requests: newCounters(reg, "rollcall_http_requests_total", "Requests answered, by route template, method and status.", "route", "method", "code"),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rollcall_http_request_duration_seconds", Help: "Time from the request's header to its answer.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"route", "method"}),
		operations: newCounters(reg, "rollcall_registry_operations_total", "Registry operations, by action, who sent them, and outcome.", "action", "origin", "outcome"),
		panics:     newCounters(reg, "rollcall_http_panics_total", "Handlers that panicked; each is a defect.").WithLabelValues(),
		built:      newCounters(reg, "rollcall_http_documents_built_total", "Cached documents built, by kind and form.", "kind", "form"),
		rateLimited: newCounters(reg, "rollcall_http_rate_limited_total",
			"Fetches refused by the rate limiter, by target (upstream: numOfRateLimitedRequests).", "target"),
		wouldLimit: newCounters(reg, "rollcall_http_rate_would_limit_total",
			"Fetches that the rate limiter would have refused if it were enabled, by target (upstream: numOfRateLimitedRequestCandidates).", "target"),
	}
	kept := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "rollcall_http_documents_bytes", Help: "Bytes of cached documents."}, documentBytes)
	reg.MustRegister(m.durations, kept, instanceGauge{service})
	m.renew = m.resolveRenew()
	return m
}

// newCounters registers counters by labels.
func newCounters(reg prometheus.Registerer, name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	reg.MustRegister(c)
	return c
}

func (m *metrics) resolveRenew() renewMetrics {
	resolved := renewMetrics{
		duration: m.durations.WithLabelValues(renewRoute, http.MethodPut),
		requests: map[int]prometheus.Counter{},
	}
	for _, status := range []int{200, 400, 404, 409, 413, 414, 500, 503, 504} {
		resolved.requests[status] = m.requests.WithLabelValues(renewRoute, http.MethodPut, strconv.Itoa(status))
	}
	for outcome, name := range outcomeNames[:renewOutcomes] {
		resolved.client[outcome] = m.operations.WithLabelValues("renew", "client", name)
		resolved.peer[outcome] = m.operations.WithLabelValues("renew", "replication", name)
	}
	return resolved
}

// countRenew counts a renewal by its outcome.
func (r *renewMetrics) countRenew(origin registry.Origin, outcome registry.Outcome) {
	if origin.Replicated() {
		r.peer[outcome].Inc()
		return
	}
	r.client[outcome].Inc()
}

// answeredRenew counts an answer on the renew path.
func (m *metrics) answeredRenew(status int, took time.Duration) {
	counter, ok := m.renew.requests[status]
	if !ok {
		counter = m.requests.WithLabelValues(renewRoute, http.MethodPut, strconv.Itoa(status))
	}
	counter.Inc()
	m.renew.duration.Observe(took.Seconds())
}

// answered counts an answer on any other route.
func (m *metrics) answered(route, method string, status int, took time.Duration) {
	if !slices.Contains(allMethods, method) {
		method = "other" // a client could invent methods without end
	}
	m.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
	m.durations.WithLabelValues(route, method).Observe(took.Seconds())
}

// count counts one registry operation; err is what Apply returned for it.
func (m *metrics) count(op registry.Op, origin registry.Origin, outcome string) {
	from := "client"
	if origin.Replicated() {
		from = "replication"
	}
	m.operations.WithLabelValues(registry.NameOf(op), from, outcome).Inc()
}

// instanceGauge counts instances by status when it is scraped, out of the hash that the registry
// keeps anyway.
type instanceGauge struct{ service registry.Service }

var instancesDesc = prometheus.NewDesc("rollcall_registry_instances", "Instances in this node's registry, by status.", []string{"status"}, nil)

// Describe implements prometheus.Collector.
func (g instanceGauge) Describe(ch chan<- *prometheus.Desc) { ch <- instancesDesc }

// Collect implements prometheus.Collector.
func (g instanceGauge) Collect(ch chan<- prometheus.Metric) {
	counts := map[registry.Status]int{}
	if view := staleView(g.service); view != nil {
		counts = statusCounts(view.HashCode())
	}
	for status := registry.Unknown; status <= registry.OutOfService; status++ {
		ch <- prometheus.MustNewConstMetric(instancesDesc, prometheus.GaugeValue, float64(counts[status]), status.String())
	}
}

// statusCounts reads apps__hashcode, a sequence of NAME_COUNT_ in which a name may hold underscores.
func statusCounts(hash string) map[registry.Status]int {
	counts := map[registry.Status]int{}
	fields := strings.Split(strings.TrimSuffix(hash, "_"), "_")
	name := ""
	for _, field := range fields {
		n, err := strconv.Atoi(field)
		if err != nil {
			name = strings.TrimPrefix(name+"_"+field, "_")
			continue
		}
		if status, ok := registry.ParseStatus(name); ok {
			counts[status] = n
		}
		name = ""
	}
	return counts
}
