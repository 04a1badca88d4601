package local

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

type localMetrics struct {
	operations prometheus.Counter
	panics     prometheus.Counter
	flushes    prometheus.Histogram
	written    prometheus.Counter
	eviction   expiry.EvictorMetrics
}

func newLocalMetrics(s *Store) *localMetrics {
	s.cfg.Metrics.MustRegister(expiry.PreservationGauges{Now: s.leaseTime}, expiry.SuspendedGauge(s.suspended), store.LevelGauge(s.level),
		store.AppliedGauge(func() uint64 { return uint64(s.view.Load().Index()) }))
	add := promauto.With(s.cfg.Metrics)
	add.NewGaugeFunc(prometheus.GaugeOpts{Name: "rollcall_store_unwritten_changes", Help: "Changes that are not on disk yet."},
		func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return float64(s.view.Load().Index() - s.flushed)
		})
	return &localMetrics{
		operations: add.NewCounter(prometheus.CounterOpts{Name: "rollcall_store_operations_total", Help: "Operations that callers of this node asked for."}),
		panics:     add.NewCounter(prometheus.CounterOpts{Name: "rollcall_store_operation_panics_total", Help: "Operations that panicked and were refused; each is a defect."}),
		written:    add.NewCounter(prometheus.CounterOpts{Name: "rollcall_store_written_changes_total", Help: "Leases and records of removals written to disk."}),
		flushes:    store.SyncSeconds(s.cfg.Metrics),
		eviction:   expiry.NewEvictorMetrics(s.cfg.Metrics),
	}
}
