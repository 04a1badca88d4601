package store

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
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
	eviction   evictionMetrics

	coordination *coordinationMetrics
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
		eviction:   newEvictionMetrics(reg),

		coordination: newCoordinationMetrics(reg),
	}
}

// coordinationMetrics are a coordinator's counters.
type coordinationMetrics struct {
	expired prometheus.Counter
	panics  prometheus.Counter
}

func newCoordinationMetrics(reg prometheus.Registerer) *coordinationMetrics {
	add := promauto.With(reg)
	return &coordinationMetrics{
		expired: add.NewCounter(prometheus.CounterOpts{Name: "rollcall_coordination_sessions_expired_total", Help: "Sessions that this node ended as leader because their TTL had passed."}),
		panics:  add.NewCounter(prometheus.CounterOpts{Name: "rollcall_coordination_panics_total", Help: "Attempts to end sessions that panicked; each is a defect."}),
	}
}

var (
	sessionsDesc = prometheus.NewDesc("rollcall_coordination_sessions", "Sessions in this node's state.", nil, nil)
	bytesDesc    = prometheus.NewDesc("rollcall_coordination_bytes", "What keys, sessions, locks with their queues, records of deleted keys and remembered answers take in this node's state, about; limits.state-bytes bounds it, with the nodes of the catalog.", nil, nil)
	keysDesc     = prometheus.NewDesc("rollcall_coordination_keys", "Keys in this node's state.", nil, nil)
	permitsDesc  = prometheus.NewDesc("rollcall_coordination_permits", "Locks and semaphores, by kind and by what there is of each: themselves, holders and who waits for one.", []string{"kind", "of"}, nil)
	waitingDesc  = prometheus.NewDesc("rollcall_coordination_watchers", "Reads of this node that wait for a change of a key, a session or a lock.", nil, nil)
)

// coordinationGauges shows sessions, keys and locks at the moment of a scrape. It walks locks.
type coordinationGauges struct{ s *Raft }

// Describe implements prometheus.Collector.
func (coordinationGauges) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{sessionsDesc, bytesDesc, keysDesc, permitsDesc, waitingDesc} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (g coordinationGauges) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value int, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), labels...)
	}
	v := g.s.machine.KV()
	gauge(sessionsDesc, v.SessionCount())
	gauge(bytesDesc, v.Bytes())
	gauge(keysDesc, v.Len())
	gauge(waitingDesc, g.s.keys.Len())
	for kind, name := range map[kv.Kind]string{kv.Lock: "lock", kv.Semaphore: "semaphore"} {
		all, holders, queue := 0, 0, 0
		for p := range v.AllPermits(kind) {
			all, holders, queue = all+1, holders+len(p.Holders), queue+len(p.Queue)
		}
		gauge(permitsDesc, all, name, "all")
		gauge(permitsDesc, holders, name, "holders")
		gauge(permitsDesc, queue, name, "queue")
	}
}

// evictionMetrics are an evictor's counters.
type evictionMetrics struct {
	evicted     prometheus.Counter
	panics      prometheus.Counter
	transitions *prometheus.CounterVec
}

func newEvictionMetrics(reg prometheus.Registerer) evictionMetrics {
	add := promauto.With(reg)
	return evictionMetrics{
		evicted:     add.NewCounter(prometheus.CounterOpts{Name: "rollcall_store_evictions_total", Help: "Leases that this node evicted as leader."}),
		panics:      add.NewCounter(prometheus.CounterOpts{Name: "rollcall_store_eviction_panics_total", Help: "Eviction rounds that panicked; each is a defect."}),
		transitions: add.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_self_preservation_transitions_total", Help: "Transitions of self-preservation that this node saw as leader, by the new state."}, []string{"to"}),
	}
}

// preservationGauges shows self-preservation at the moment of a scrape. It walks all leases.
type preservationGauges struct {
	// now returns the newest view, and the lease clock (ms) as far as this node knows it.
	now func() (*registry.View, int64)
}

func preservationDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("rollcall_self_preservation_"+name, help, labels, nil)
}

var (
	stateDesc     = preservationDesc("state", "1 for the state that self-preservation is in.", "state")
	conditionDesc = preservationDesc("condition", "1 while the condition for self-preservation holds, whatever its state.")
	thresholdDesc = preservationDesc("threshold", "Share of fresh leases at or below which self-preservation comes on.")
	leasesDesc    = preservationDesc("leases", "Leases, by what self-preservation makes of them: all, counted (old enough), fresh (counted and renewed lately), expired.", "kind")
	withheldDesc  = preservationDesc("withheld", "Expired leases whose eviction is withheld.")
	clientsDesc   = preservationDesc("upstream_expected_clients", "Clients that upstream's formula expects to send renewals.")
	requiredDesc  = preservationDesc("upstream_threshold", "Renewals per minute at or below which upstream's formula stops evictions.")
	renewalsDesc  = preservationDesc("upstream_renewals_last_minute", "Renewals in the last complete minute.")
	slidingDesc   = preservationDesc("renewals_sliding", "Renewals in the last 60 s, estimated from two buckets of a minute.")
)

// Describe implements prometheus.Collector.
func (preservationGauges) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{stateDesc, conditionDesc, thresholdDesc, leasesDesc, withheldDesc, clientsDesc, requiredDesc, renewalsDesc, slidingDesc} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (g preservationGauges) Collect(metrics chan<- prometheus.Metric) {
	v, now := g.now()
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	figures, state, expectation := v.Freshness(now), v.Preservation().State, v.Expectation()
	for _, s := range []registry.PreservationState{registry.PreservationOff, registry.PreservationOn, registry.PreservationReleased, registry.PreservationHeld} {
		gauge(stateDesc, number(s == state), s.String())
	}
	holds, _ := v.Condition(figures)
	gauge(conditionDesc, number(holds))
	gauge(thresholdDesc, shareOf(v.Settings().Threshold))
	gauge(leasesDesc, float64(figures.Leases), "all")
	gauge(leasesDesc, float64(figures.Counted), "counted")
	gauge(leasesDesc, float64(figures.Fresh), "fresh")
	gauge(leasesDesc, float64(figures.Expired), "expired")
	gauge(withheldDesc, float64(figures.Expired)*number(state.Withholds()))
	gauge(clientsDesc, float64(expectation.Clients))
	gauge(requiredDesc, float64(expectation.Threshold))
	gauge(renewalsDesc, float64(expectation.Renewals))
	gauge(slidingDesc, float64(expectation.Sliding))
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// shareOf is a share as metrics show it; package registry has no floating-point numbers.
func shareOf(s registry.Share) float64 { return float64(s) / float64(registry.Whole) }

// localMetrics are the figures of a store without consensus.
type localMetrics struct {
	operations prometheus.Counter
	flushes    prometheus.Histogram
	changes    prometheus.Counter
	eviction   evictionMetrics
}

func newLocalMetrics(s *Local) *localMetrics {
	s.cfg.Metrics.MustRegister(preservationGauges{s.leaseTime}, suspendedGauge(s.suspended))
	add := promauto.With(s.cfg.Metrics)
	add.NewGaugeFunc(prometheus.GaugeOpts{Name: "rollcall_store_unwritten_changes", Help: "Changes that are not on disk yet."},
		func() float64 { return float64(s.unwritten()) })
	return &localMetrics{
		operations: add.NewCounter(prometheus.CounterOpts{Name: "rollcall_store_operations_total", Help: "Operations that callers of this node asked for."}),
		changes:    add.NewCounter(prometheus.CounterOpts{Name: "rollcall_store_written_changes_total", Help: "Leases and records of removals that were written to the disk."}),
		flushes:    add.NewHistogram(prometheus.HistogramOpts{Name: "rollcall_store_flush_seconds", Help: "Duration of the writes to the disk.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14)}),
		eviction:   newEvictionMetrics(s.cfg.Metrics),
	}
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
