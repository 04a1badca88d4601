package replication

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
)

func TestMetricsGoOnOverFeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := registrytest.New()
		m.Perform(t, registers(0, 1)...)
		f := known(t, m, "dc2")
		reg := prometheus.NewPedanticRegistry()
		r := replicateAs(t, Config{Side: link.Side{Service: m, Consensus: true}, Metrics: reg}, map[string]*fakePeer{"dc2": f}, datacenter("dc2"))
		m.Perform(t, registers(1, 4)...)
		elapse(2 * time.Second)
		r.stop()
		r.start()
		f.fail(batcher.TransientError)
		elapse(time.Second)
		m.Perform(t, registers(4, 6)...)
		m.Perform(t, registry.Renew{Key: ordersKey(0)})
		elapse(3 * time.Second)
		defer r.stop()
		want := `
# HELP rollcall_replication_accepted_tasks_total Tasks that were queued.
# TYPE rollcall_replication_accepted_tasks_total counter
rollcall_replication_accepted_tasks_total{peer="dc2"} 6
# HELP rollcall_replication_failing 1 if the last transmission failed.
# TYPE rollcall_replication_failing gauge
rollcall_replication_failing{peer="dc2"} 1
# HELP rollcall_replication_lag_changes Changes that the peer does not know yet.
# TYPE rollcall_replication_lag_changes gauge
rollcall_replication_lag_changes{peer="dc2"} 2
# HELP rollcall_replication_lag_seconds Age of the oldest change that the peer does not know yet.
# TYPE rollcall_replication_lag_seconds gauge
rollcall_replication_lag_seconds{peer="dc2"} 3
# HELP rollcall_replication_successful_executions_total Tasks that were transmitted.
# TYPE rollcall_replication_successful_executions_total counter
rollcall_replication_successful_executions_total{peer="dc2"} 3
`
		expect.OK(t, testutil.GatherAndCompare(reg, strings.NewReader(want), "rollcall_replication_accepted_tasks_total",
			"rollcall_replication_failing", "rollcall_replication_lag_changes", "rollcall_replication_lag_seconds",
			"rollcall_replication_successful_executions_total"))
		n, err := testutil.GatherAndCount(reg, "rollcall_replication_waiting_seconds")
		expect.That(t, n == 1 && err == nil, "%d histograms of the waiting time (%v), want 1", n, err)
	})
}
