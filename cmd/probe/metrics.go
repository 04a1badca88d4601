package probe

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// metrics are the figures of a Prober.
type metrics struct {
	checks prometheus.Gauge
	runs   *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		checks: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "rollcall", Subsystem: "probe", Name: "checks",
			Help: "Checks that this node probes; 0 unless it leads.",
		}),
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "rollcall", Subsystem: "probe", Name: "runs_total",
			Help: "Probes that this node ran as leader, by kind (http, tcp) and what they found, before anything was counted.",
		}, []string{"kind", "result"}),
	}
	reg.MustRegister(m.checks, m.runs)
	return m
}

var statusWords = [...]string{registry.Passing: "passing", registry.Warning: "warning", registry.Critical: "critical"}

func (m *metrics) count(p *registry.Probe, found registry.CheckStatus) {
	kind := "tcp"
	if p.HTTP != "" {
		kind = "http"
	}
	m.runs.WithLabelValues(kind, statusWords[found]).Inc()
}
