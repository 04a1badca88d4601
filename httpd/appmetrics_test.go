package httpd_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

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
