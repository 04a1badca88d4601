package store

import "github.com/prometheus/client_golang/prometheus"

// metrics are the store's figures.
type metrics struct {
	entries    prometheus.Counter
	operations prometheus.Counter
	batch      prometheus.Histogram
	forwarded  prometheus.Counter
	resent     prometheus.Counter
	unknown    prometheus.Counter
	rounds     *prometheus.CounterVec
	elections  prometheus.Counter
	refused    prometheus.Counter
	damaged    prometheus.Counter
	leads      prometheus.Gauge
	eviction   evictionMetrics

	coordination *coordinationMetrics
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: "rollcall", Subsystem: "store", Name: name, Help: help})
		reg.MustRegister(c)
		return c
	}
	m := &metrics{
		entries:    counter("entries_proposed_total", "Log entries that this node proposed as leader."),
		operations: counter("operations_total", "Operations that callers of this node asked for."),
		forwarded:  counter("batches_forwarded_total", "Batches that this node sent to the leader."),
		resent:     counter("batches_resent_total", "Batches that were sent more than once."),
		unknown:    counter("unknown_outcomes_total", "Operations whose outcome could not be found out in time."),
		elections:  counter("leaderships_total", "Times that this node became the established leader."),
		refused:    counter("entries_refused_total", "Entries from the leader that are not what their checksum says, each time that one came."),
		damaged:    counter("entries_damaged_in_memory_total", "Entries that were not in memory what their checksum says, and were read from the disk instead."),
		batch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "rollcall", Subsystem: "store", Name: "batch_operations",
			Help: "Operations per batch.", Buckets: prometheus.ExponentialBuckets(1, 2, 13),
		}),
		rounds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "rollcall", Subsystem: "store", Name: "read_rounds_total",
			Help: "Rounds that confirmed linearizable reads, by result.",
		}, []string{"result"}),
		leads: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "rollcall", Subsystem: "store", Name: "leader",
			Help: "1 while this node is the established leader.",
		}),
		eviction: newEvictionMetrics(reg),

		coordination: newCoordinationMetrics(reg),
	}
	reg.MustRegister(m.batch, m.rounds, m.leads)
	return m
}
