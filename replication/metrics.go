package replication

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/replication/batcher"
)

// metrics are the figures of all peers. Figures in a status are read from it at each scrape, under upstream's names
// where upstream has one (eurekaServer.replication.acceptedTasks is rollcall_replication_accepted_tasks_total).
type metrics struct {
	peers   func() []*peer
	status  func([]*peer) []api.Peer // of peers, in their order
	stats   []statMetric
	figures []figureMetric
	byWord  []wordMetric
}

type statMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(batcher.Stats) float64
}

type figureMetric struct {
	desc  *prometheus.Desc
	value func(api.Peer) (value float64, ok bool)
}

type wordMetric struct {
	desc   *prometheus.Desc
	values func(api.Peer) map[string]uint64
}

func newMetrics(peers func() []*peer, status func([]*peer) []api.Peer) *metrics {
	return &metrics{
		peers:   peers,
		status:  status,
		stats:   statMetrics(),
		figures: figureMetrics(),
		byWord: []wordMetric{
			{desc("sent_total", "Changes and renewals that the peer accepted, by kind.", "fact"), func(s api.Peer) map[string]uint64 { return s.Sent }},
			{desc("dropped_tasks_total", "Tasks that were dropped; changes among them are sent again from the current state, unless the peer refused them.", "reason"), droppedByReason},
			{desc("repairs_total", "Comparisons that found something to send.", "reason"), func(s api.Peer) map[string]uint64 { return s.Repairs }},
		},
	}
}

// newWaiting returns the histogram of the time that tasks waited, by peer. Upstream calls it executionTime, though it
// is the time before the execution.
func newWaiting() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "rollcall", Subsystem: "replication", Name: "waiting_seconds",
		Help:    "How long the oldest task of a batch had waited when the batch was sent.",
		Buckets: []float64{.05, .1, .25, .5, .6, .75, 1, 2.5, 5, 10, 30},
	}, []string{"peer"})
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("rollcall_replication_"+name, help, append([]string{"peer"}, labels...), nil)
}

func statMetrics() []statMetric {
	counter := func(name, help string, value func(batcher.Stats) uint64) statMetric {
		return statMetric{desc(name, help), prometheus.CounterValue, func(s batcher.Stats) float64 { return float64(value(s)) }}
	}
	gauge := func(name, help string, value func(batcher.Stats) int) statMetric {
		return statMetric{desc(name, help), prometheus.GaugeValue, func(s batcher.Stats) float64 { return float64(value(s)) }}
	}
	type stats = batcher.Stats
	return []statMetric{
		counter("accepted_tasks_total", "Tasks that were queued.", func(s stats) uint64 { return s.AcceptedTasks }),
		counter("replayed_tasks_total", "Tasks queued to be sent again.", func(s stats) uint64 { return s.ReplayedTasks }),
		counter("expired_tasks_total", "Tasks that expired while they waited.", func(s stats) uint64 { return s.ExpiredTasks }),
		counter("overridden_tasks_total", "Tasks merged into a later task for the same instance.", func(s stats) uint64 { return s.OverriddenTasks }),
		counter("queue_overflows_total", "Tasks that were dropped because the buffer was full.", func(s stats) uint64 { return s.QueueOverflows }),
		counter("stopped_tasks_total", "Tasks queued or in flight when sending stopped.", func(s stats) uint64 { return s.StoppedTasks }),
		gauge("acceptor_queue_size", "Tasks that the acceptor has not handled yet.", func(s stats) int { return s.AcceptorQueueSize }),
		gauge("reprocess_queue_size", "Returned tasks that the acceptor has not handled yet.", func(s stats) int { return s.ReprocessQueueSize }),
		gauge("queue_size", "Pending tasks.", func(s stats) int { return s.QueueSize }),
		gauge("pending_job_requests", "Workers waiting for tasks.", func(s stats) int { return s.PendingJobRequests }),
		gauge("in_flight_tasks", "Tasks that workers are sending.", func(s stats) int { return s.InFlight }),
		gauge("batch_size", "Tasks of the last batch.", func(s stats) int { return s.LastBatchSize }),
		counter("successful_executions_total", "Tasks that were transmitted.", func(s stats) uint64 { return s.SuccessfulExecutions }),
		counter("transient_errors_total", "Tasks whose transmission did not reach the peer.", func(s stats) uint64 { return s.TransientErrors }),
		counter("permanent_errors_total", "Tasks that the peer refused.", func(s stats) uint64 { return s.PermanentErrors }),
		counter("congestion_issues_total", "Tasks whose transmission failed because the peer was busy.", func(s stats) uint64 { return s.CongestionIssues }),
	}
}

func figureMetrics() []figureMetric {
	seconds := func(ms int64) float64 { return float64(ms) / 1000 }
	always := func(value func(api.Peer) float64) func(api.Peer) (float64, bool) {
		return func(s api.Peer) (float64, bool) { return value(s), true }
	}
	incoming := func(value func(api.Incoming) float64) func(api.Peer) (float64, bool) {
		return func(s api.Peer) (float64, bool) {
			if s.Incoming == nil {
				return 0, false
			}
			return value(*s.Incoming), true
		}
	}
	return []figureMetric{
		{desc("lag_changes", "Changes that the peer does not know yet."), always(func(s api.Peer) float64 { return float64(s.LagChanges) })},
		{desc("lag_seconds", "Age of the oldest change that the peer does not know yet."), always(func(s api.Peer) float64 { return seconds(s.LagMS) })},
		{desc("sending", "1 while this node sends to the peer."), always(func(s api.Peer) float64 { return one(s.State == StateOK || s.State == StateFailing) })},
		{desc("failing", "1 if the last transmission failed."), always(func(s api.Peer) float64 { return one(s.State == StateFailing) })},
		{desc("last_success_timestamp_seconds", "When the peer last answered, in seconds since the epoch."), func(s api.Peer) (float64, bool) {
			return seconds(s.LastSuccess), s.LastSuccess > 0
		}},
		{prometheus.NewDesc("rollcall_auth_file_differs", "1 while another node of this datacenter has a different auth.file.", []string{"peer"}, nil), func(s api.Peer) (float64, bool) {
			return one(s.AuthFile == authFileDiffers), s.AuthFile != ""
		}},
		{desc("contested_instances", "Instances of this datacenter that the peer refuses because it owns them and a client renews them there; each side serves its own client's."), always(contested)},
		{desc("incoming_instances", "Instances that belong to the peer."), incoming(func(in api.Incoming) float64 { return float64(in.Instances) })},
		{desc("incoming_kept_instances", "Instances of the peer that are kept although their leases have run out."), incoming(func(in api.Incoming) float64 { return float64(in.Kept) })},
		{desc("incoming_cut", "1 while the link from the peer counts as cut."), incoming(func(in api.Incoming) float64 { return one(in.Cut) })},
		{desc("incoming_heard_seconds", "Seconds since the last message from the peer."), func(s api.Peer) (float64, bool) {
			if s.Incoming == nil || s.Incoming.HeardMS == nil {
				return 0, false
			}
			return seconds(*s.Incoming.HeardMS), true
		}},
	}
}

func contested(s api.Peer) (n float64) {
	for _, r := range s.Refused {
		n += one(r.Until > 0)
	}
	return n
}

// droppedByReason has every reason, starting at 0: a series that first appears with a 1 shows no increase to those
// who watch for one.
func droppedByReason(s api.Peer) map[string]uint64 {
	all := make(map[string]uint64, len(dropNames))
	for _, reason := range dropNames {
		all[reason] = s.Dropped[reason]
	}
	return all
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, s := range m.stats {
		to <- s.desc
	}
	for _, f := range m.figures {
		to <- f.desc
	}
	for _, w := range m.byWord {
		to <- w.desc
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	peers := m.peers()
	for i, status := range m.status(peers) {
		stats := peers[i].stats()
		for _, s := range m.stats {
			to <- prometheus.MustNewConstMetric(s.desc, s.kind, s.value(stats), status.Name)
		}
		for _, f := range m.figures {
			if value, ok := f.value(status); ok {
				to <- prometheus.MustNewConstMetric(f.desc, prometheus.GaugeValue, value, status.Name)
			}
		}
		for _, w := range m.byWord {
			for word, n := range w.values(status) {
				to <- prometheus.MustNewConstMetric(w.desc, prometheus.CounterValue, float64(n), status.Name, word)
			}
		}
	}
}
