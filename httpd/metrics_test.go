package httpd_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// gathered is the sum of a metric's series that have these labels.
func gathered(t testing.TB, metrics *prometheus.Registry, name string, labels map[string]string) float64 {
	t.Helper()
	families := need.Got(metrics.Gather())(t)
	sum, found := 0.0, false
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		found = true
	series:
		for _, series := range family.GetMetric() {
			left := len(labels)
			for _, label := range series.GetLabel() {
				want, wanted := labels[label.GetName()]
				if wanted && want != label.GetValue() {
					continue series
				}
				if wanted {
					left--
				}
			}
			if left == 0 {
				sum += series.GetCounter().GetValue() + series.GetGauge().GetValue() + float64(series.GetHistogram().GetSampleCount())
			}
		}
	}
	need.That(t, found, "there is no metric %s", name)
	return sum
}

func TestMetricsCountOperationsByActionOriginAndOutcome(t *testing.T) {
	metrics := prometheus.NewRegistry()
	n := newNode(t, httpd.Config{Metrics: metrics}, nil)
	peer := "x-netflix-discovery-replication: true"
	for _, r := range []string{
		register(instanceJSON), register(instanceJSON, peer),
		request("PUT", "/eureka/apps/ORDERS/i1", ""), request("PUT", "/eureka/apps/ORDERS/i1", "", peer), request("PUT", "/eureka/apps/ORDERS/i2", ""),
		request("PUT", "/eureka/apps/ORDERS/i1/status?value=DOWN", ""), request("DELETE", "/eureka/apps/ORDERS/i1/status", ""),
		request("PUT", "/eureka/apps/ORDERS/i1/metadata?a=b", ""),
		request("DELETE", "/eureka/apps/ORDERS/i1", ""), request("DELETE", "/eureka/apps/ORDERS/i1", ""),
		request("POST", "/eureka/peerreplication/batch", `{"replicationList":[{"appName":"A","id":"1","action":"Cancel"},{"appName":"A","id":"1","action":"Heartbeat"}]}`),
	} {
		n.send(t, r)
	}
	for _, row := range []struct {
		action, origin, outcome string
		want                    float64
	}{
		{"register", "client", "done", 1}, {"register", "replication", "done", 1},
		{"renew", "client", "done", 1}, {"renew", "replication", "done", 1}, {"renew", "client", "not_found", 1}, {"renew", "replication", "not_found", 1},
		{"status", "client", "done", 1}, {"status_delete", "client", "done", 1}, {"metadata", "client", "done", 1},
		{"cancel", "client", "done", 1}, {"cancel", "client", "not_found", 1}, {"cancel", "replication", "not_found", 1},
	} {
		labels := map[string]string{"action": row.action, "origin": row.origin, "outcome": row.outcome}
		expect.Equal(t, gathered(t, metrics, "rollcall_registry_operations_total", labels), row.want, "%v: got", labels)
	}
}

func TestMetricsCountFailedOperationsByTheirError(t *testing.T) {
	metrics := prometheus.NewRegistry()
	n := newNode(t, httpd.Config{Metrics: metrics}, nil)
	for outcome, err := range map[string]error{"unknown": registry.ErrUnknownOutcome, "no_leader": registry.ErrNoLeader, "error": registry.ErrClosed} {
		n.Set(func(m *registrytest.Memory) { m.ApplyErr = err })
		n.send(t, request("PUT", "/eureka/apps/A/1", ""))
		n.send(t, request("DELETE", "/eureka/apps/A/1", ""))
		for _, action := range []string{"renew", "cancel"} {
			labels := map[string]string{"action": action, "origin": "client", "outcome": outcome}
			expect.Equal(t, gathered(t, metrics, "rollcall_registry_operations_total", labels), 1, "%v: got", labels)
		}
	}
}

func TestMetricsCountRequestsByRouteTemplate(t *testing.T) {
	metrics := prometheus.NewRegistry()
	n := newNode(t, httpd.Config{Metrics: metrics}, nil)
	for _, r := range []string{
		request("PUT", "/eureka/apps/A/1", ""), request("PUT", "/v2/apps/A/2/", ""), request("GET", "/eureka/apps/A", ""),
		request("GET", "/no/such/path", ""), request("BREW", "/eureka/apps", ""), request("GET", "/v1/rollcall/status", ""),
	} {
		n.send(t, r)
	}
	for _, row := range []struct {
		route, method, code string
		want                float64
	}{
		{"{base}/apps/{app}/{id}", "PUT", "404", 2},
		{"{base}/apps/{app}", "GET", "404", 1},
		{"none", "GET", "404", 1},
		{"none", "other", "405", 1},
		{"/v1/rollcall/status", "GET", "200", 1},
	} {
		labels := map[string]string{"route": row.route, "method": row.method, "code": row.code}
		expect.Equal(t, gathered(t, metrics, "rollcall_http_requests_total", labels), row.want, "%v: got", labels)
		delete(labels, "code")
		expect.Equal(t, gathered(t, metrics, "rollcall_http_request_duration_seconds", labels), row.want, "durations of %v: got", labels)
	}
}

func TestMetricsCountInstancesByStatus(t *testing.T) {
	metrics := prometheus.NewRegistry()
	n := newNode(t, httpd.Config{Metrics: metrics}, nil)
	for id, status := range map[string]registry.Status{"1": registry.Up, "2": registry.Up, "3": registry.OutOfService} {
		instance := newInstance("A", id)
		instance.Status = status
		n.Perform(t, registry.Register{Instance: instance})
	}
	for status, want := range map[string]float64{"UP": 2, "OUT_OF_SERVICE": 1, "DOWN": 0, "STARTING": 0, "UNKNOWN": 0} {
		expect.Equal(t, gathered(t, metrics, "rollcall_registry_instances", map[string]string{"status": status}), want, "%s: got", status)
	}
}

func TestMetricsAreExposed(t *testing.T) {
	n := newNode(t, httpd.Config{}, nil)
	n.send(t, request("PUT", "/eureka/apps/A/1", ""))
	n.send(t, request("GET", "/metrics", "")).says(t, http.StatusOK, `rollcall_registry_operations_total{action="renew",origin="client",outcome="not_found"} 1`, "it")
}

// brokenCollector is a collector with a defect.
type brokenCollector struct{}

func (brokenCollector) Describe(to chan<- *prometheus.Desc) {
	to <- prometheus.NewDesc("rollcall_planted", "A defect.", nil, nil)
}

func (brokenCollector) Collect(chan<- prometheus.Metric) { panic("planted") }

func TestCollectorThatPanicsCostsItsOwnFiguresOnly(t *testing.T) {
	metrics := prometheus.NewRegistry()
	n := newNode(t, httpd.Config{Metrics: metrics}, nil)
	metrics.MustRegister(brokenCollector{})
	for scrape := range 2 {
		a := n.send(t, request("GET", "/metrics", "")).says(t, http.StatusOK, "rollcall_registry_instances", "it")
		expect.That(t, scrape == 0 || strings.Contains(a.body, `rollcall_measuring_panics_total{what="metrics"} 1`), "the panic of the scrape before is not counted")
	}
}

// appInstances are the series of rollcall_registry_app_instances.
func appInstances(t *testing.T, metrics *prometheus.Registry) map[string]float64 {
	t.Helper()
	series := map[string]float64{}
	for _, f := range need.Got(metrics.Gather())(t) {
		if f.GetName() != "rollcall_registry_app_instances" {
			continue
		}
		for _, m := range f.GetMetric() {
			series[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = m.GetGauge().GetValue()
		}
	}
	return series
}

func TestMetricsShowTheInstancesOfTheLargestApplicationsAndOfTheOthersTogether(t *testing.T) {
	metrics := prometheus.NewRegistry()
	n := newNode(t, httpd.Config{Metrics: metrics, MetricsApps: 2}, nil)
	add := func(app string, instances int, status registry.Status) {
		for i := range instances {
			n.Perform(t, registry.Register{Instance: &registry.Instance{InstanceID: fmt.Sprint(app, i), App: app, HostName: "h", Status: status, DataCenter: registry.DataCenter{Name: registry.MyOwn}}})
		}
	}
	add("LARGE", 3, registry.Up)
	add("DOWN", 2, registry.Down)
	expect.Deep(t, appInstances(t, metrics), map[string]float64{"LARGE UP": 3, "DOWN UP": 0, "DOWN DOWN": 2}, "two:")
	add("SMALL", 1, registry.Up)
	add("TINY", 1, registry.Starting)
	expect.Deep(t, appInstances(t, metrics), map[string]float64{"LARGE UP": 3, "DOWN UP": 0, "DOWN DOWN": 2, " UP": 1, " STARTING": 1}, "four:")
	cancel := func(i int) { n.Perform(t, registry.Cancel{Key: registry.NewKey("LARGE", fmt.Sprint("LARGE", i))}) }
	add("SMALL2", 2, registry.Up)
	cancel(0)
	cancel(1)
	expect.Deep(t, appInstances(t, metrics), map[string]float64{"LARGE UP": 1, "DOWN UP": 0, "DOWN DOWN": 2, "SMALL2 UP": 2, " UP": 1, " STARTING": 1}, "one has lost most, and is not among the largest:")
	cancel(2)
	expect.Deep(t, appInstances(t, metrics), map[string]float64{"LARGE UP": 0, "DOWN UP": 0, "DOWN DOWN": 2, "SMALL2 UP": 2, " UP": 1, " STARTING": 1}, "it has lost all:")
}
