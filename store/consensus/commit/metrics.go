package commit

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/seed-20419f34/rollcall/store"
)

type Metrics struct {
	Operations prometheus.Counter
	Entries    prometheus.Counter
	Batch      prometheus.Histogram
	Forwarded  prometheus.Counter
	Resent     prometheus.Counter
	Unknown    prometheus.Counter
	Commit     prometheus.Histogram
	Forward    prometheus.Histogram
}

func NewMetrics(reg prometheus.Registerer) *Metrics {
	add := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return add.NewCounter(prometheus.CounterOpts{Name: "rollcall_store_" + name, Help: help})
	}
	return &Metrics{
		Entries:    counter("entries_proposed_total", "Log entries that this node proposed as leader."),
		Operations: counter("operations_total", "Operations that callers of this node asked for."),
		Forwarded:  counter("batches_forwarded_total", "Batches that this node sent to the leader."),
		Resent:     counter("batches_resent_total", "Batches that were sent more than once."),
		Unknown:    counter("unknown_outcomes_total", "Operations whose outcome was still unknown when their time was up."),
		Commit:     store.Duration(reg, "commit_seconds", "Time from proposing a log entry, as leader, until it was applied or abandoned."),
		Forward:    store.Duration(reg, "forward_seconds", "Time the leader took to reply to a batch from this node."),
		Batch:      add.NewHistogram(prometheus.HistogramOpts{Name: "rollcall_store_batch_operations", Help: "Operations per batch.", Buckets: prometheus.ExponentialBuckets(1, 2, 13)}),
	}
}
