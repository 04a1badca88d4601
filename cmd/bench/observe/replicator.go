package observe

import (
	"bytes"
	"context"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// replicator notes the figures of a node's replicator every second, if it has one that sends.
func (o *Observer) replicator(ctx context.Context, node int) {
	asker := o.asker(node)
	repeat(ctx, time.Second, func() time.Duration {
		at := time.Now()
		answer, err := asker.find(ctx, "/metrics")
		if err != nil {
			return 0
		}
		if r, sends := replication(answer.body); sends {
			r.At, r.Node = o.at(at), node
			o.note(func(t *trial.Trial) { t.Replicator = append(t.Replicator, r) })
		}
		return 0
	})
}

// replication reads the figures of all peers from a node's metrics; sends is false if there are none.
func replication(metrics []byte) (r trial.Replication, sends bool) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(metrics))
	if err != nil {
		return trial.Replication{}, false
	}
	values := func(name string) []float64 {
		var all []float64
		for _, m := range families["rollcall_replication_"+name].GetMetric() {
			all = append(all, m.GetCounter().GetValue()+m.GetGauge().GetValue()) // it is one of them
		}
		sends = sends || len(all) > 0
		return all
	}
	r = trial.Replication{
		Accepted:   sum(values("accepted_tasks_total")),
		Merged:     sum(values("overridden_tasks_total")),
		Dropped:    sum(values("queue_overflows_total")) + sum(values("expired_tasks_total")) + sum(values("permanent_errors_total")),
		Sent:       sum(values("successful_executions_total")),
		Errors:     sum(values("transient_errors_total")) + sum(values("congestion_issues_total")),
		Batch:      most(values("batch_size")),
		Queued:     sum(values("acceptor_queue_size")) + sum(values("reprocess_queue_size")) + sum(values("queue_size")),
		LagChanges: most(values("lag_changes")),
		LagSeconds: most(values("lag_seconds")),
	}
	return r, sends
}

func sum(values []float64) float64 {
	total := 0.0
	for _, v := range values {
		total += v
	}
	return total
}

// most is the greatest of values that are not negative; 0 of none.
func most(values []float64) float64 {
	greatest := 0.0
	for _, v := range values {
		greatest = max(greatest, v)
	}
	return greatest
}
