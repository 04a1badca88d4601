package store

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// localMetrics are the figures of a store without consensus.
type localMetrics struct {
	operations prometheus.Counter
	flushes    prometheus.Histogram
	changes    prometheus.Counter
	eviction   evictionMetrics
}

func newLocalMetrics(s *Local) *localMetrics {
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "rollcall", Subsystem: "store", Name: name, Help: help}
	}
	m := &localMetrics{
		operations: prometheus.NewCounter(prometheus.CounterOpts(opts("operations_total", "Operations that callers of this node asked for."))),
		changes:    prometheus.NewCounter(prometheus.CounterOpts(opts("written_changes_total", "Leases and records of removals that were written to the disk."))),
		flushes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "rollcall", Subsystem: "store", Name: "flush_seconds",
			Help: "Duration of the writes to the disk.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		eviction: newEvictionMetrics(s.cfg.Metrics),
	}
	unwritten := prometheus.NewGaugeFunc(prometheus.GaugeOpts(opts("unwritten_changes", "Changes that are not on disk yet.")),
		func() float64 { return float64(s.unwritten()) })
	s.cfg.Metrics.MustRegister(m.operations, m.changes, m.flushes, unwritten, preservationGauges{s.leaseTime}, suspendedGauge(s.suspended))
	return m
}

func (m *localMetrics) noteFlush(what saved, took time.Duration) {
	m.flushes.Observe(took.Seconds())
	m.changes.Add(float64(len(what.frozen.Leases) + len(what.frozen.Removals)))
}

// unwritten is how many changes are not on disk.
func (s *Local) unwritten() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return uint64(s.view.Load().Index() - s.flushed)
}
