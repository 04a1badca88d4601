package consensus

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/seed-20419f34/rollcall/store/expiry"
)

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
	eviction   expiry.EvictorMetrics

	coordination *expiry.CoordinatorMetrics
}

func newMetrics(reg prometheus.Registerer) *metrics {
	add := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return add.NewCounter(prometheus.CounterOpts{Name: "rollcall_store_" + name, Help: help})
	}
	return &metrics{
		entries:    counter("entries_proposed_total", "Log entries that this node proposed as leader."),
		operations: counter("operations_total", "Operations that callers of this node asked for."),
		forwarded:  counter("batches_forwarded_total", "Batches that this node sent to the leader."),
		resent:     counter("batches_resent_total", "Batches that were sent more than once."),
		unknown:    counter("unknown_outcomes_total", "Operations whose outcome could not be found out in time."),
		elections:  counter("leaderships_total", "Times that this node became the established leader."),
		refused:    counter("entries_refused_total", "Entries from the leader that are not what their checksum says, each time that one came."),
		damaged:    counter("entries_damaged_in_memory_total", "Entries that were not in memory what their checksum says, and were read from the disk instead."),
		batch:      add.NewHistogram(prometheus.HistogramOpts{Name: "rollcall_store_batch_operations", Help: "Operations per batch.", Buckets: prometheus.ExponentialBuckets(1, 2, 13)}),
		rounds:     add.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_store_read_rounds_total", Help: "Rounds that confirmed linearizable reads, by result."}, []string{"result"}),
		leads:      add.NewGauge(prometheus.GaugeOpts{Name: "rollcall_store_leader", Help: "1 while this node is the established leader."}),
		eviction:   expiry.NewEvictorMetrics(reg),

		coordination: expiry.NewCoordinatorMetrics(reg),
	}
}
