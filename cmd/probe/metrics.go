package probe

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// metrics are the figures of a Prober.
type metrics struct {
	checks prometheus.Gauge
	oldest atomic.Int64 // see leading.oldest
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
	waits := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "rollcall", Subsystem: "probe", Name: "queue_age_seconds",
		Help: "How long the check that has waited longest for a free place is overdue; near 0 unless many services hang.",
	}, m.queueAge)
	reg.MustRegister(m.checks, m.runs, waits)
	return m
}

func (m *metrics) queueAge() float64 {
	oldest := m.oldest.Load()
	if oldest == 0 {
		return 0
	}
	return max(time.Since(time.Unix(0, oldest)).Seconds(), 0)
}

var statusWords = [...]string{registry.Passing: "passing", registry.Warning: "warning", registry.Critical: "critical"}

func (m *metrics) count(p *registry.Probe, found registry.CheckStatus) {
	kind := "tcp"
	if p.HTTP != "" {
		kind = "http"
	}
	m.runs.WithLabelValues(kind, statusWords[found]).Inc()
}
