package consensus

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// metrics are the store's figures.
type metrics struct {
	commit    *commitMetrics
	elections prometheus.Counter
	refused   prometheus.Counter
	damaged   prometheus.Counter
	leads     prometheus.Gauge
	differ    *prometheus.GaugeVec
	syncs     prometheus.Histogram
	changes   *store.ChangeCounter
	eviction  expiry.EvictorMetrics

	coordination *expiry.CoordinatorMetrics
}

func newMetrics(reg prometheus.Registerer, panics *store.Panics) *metrics {
	add := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return add.NewCounter(prometheus.CounterOpts{Name: "rollcall_store_" + name, Help: help})
	}
	return &metrics{
		commit:    newCommitMetrics(reg),
		elections: counter("leaderships_total", "How often this node became the established leader."),
		refused:   counter("entries_refused_total", "Entries from the leader that did not match their checksum, counted each time one arrived."),
		damaged:   counter("entries_damaged_in_memory_total", "Entries whose copy in memory did not match its checksum, and that were read from disk instead."),
		leads:     add.NewGauge(prometheus.GaugeOpts{Name: "rollcall_store_leader", Help: "1 while this node is the established leader."}),
		differ:    add.NewGaugeVec(prometheus.GaugeOpts{Name: "rollcall_replicas_differ", Help: "1 for each node whose state differs from that of a majority (from any other node if no majority agrees), by the newest compared digests; reported by the leader only."}, []string{"node"}),
		syncs:     store.SyncSeconds(reg),
		changes:   store.NewChangeCounter(reg, panics),
		eviction:  expiry.NewEvictorMetrics(reg),

		coordination: expiry.NewCoordinatorMetrics(reg),
	}
}

var (
	sessionsDesc = prometheus.NewDesc("rollcall_coordination_sessions", "Sessions in this node's state.", nil, nil)
	bytesDesc    = prometheus.NewDesc("rollcall_coordination_bytes", "Approximate bytes of keys, sessions, locks with their queues, records of deleted keys and remembered results in this node's state; limits.state-bytes bounds them together with the nodes of the catalog.", nil, nil)
	keysDesc     = prometheus.NewDesc("rollcall_coordination_keys", "Keys in this node's state.", nil, nil)
	permitsDesc  = prometheus.NewDesc("rollcall_coordination_permits", "Locks and semaphores, by kind, and of each kind: how many there are, how many holders, how many waiters.", []string{"kind", "of"}, nil)
	waitingDesc  = prometheus.NewDesc("rollcall_coordination_watchers", "Reads on this node that wait for a key, a session or a lock to change.", nil, nil)
)

// snapshotNow is the newest snapshot on this node's disk, or the zero value before the first.
type snapshotNow struct {
	index uint64
	bytes int64
	at    time.Time
}

// raftGauges shows what Raft has on this node's disk and in its memory, and whether the cluster's settings are this
// node's.
func raftGauges(s *Raft) []prometheus.Collector {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "rollcall_" + name, Help: help}, value)
	}
	saved := func(value func(snapshotNow) float64) func() float64 {
		return func() float64 {
			if newest := s.saved.Load(); newest != nil && !newest.at.IsZero() {
				return value(*newest)
			}
			return 0
		}
	}
	return []prometheus.Collector{
		gauge("raft_term", "Raft's term as this node knows it; rises with each election.", func() float64 { return float64(s.raft.CurrentTerm()) }),
		store.AppliedGauge(s.machine.Index),
		gauge("store_log_entries", "Log entries on this node's disk.", func() float64 { n, _ := s.logs.Size(); return float64(n) }),
		gauge("store_log_bytes", "Bytes of the log entries on this node's disk.", func() float64 { _, n := s.logs.Size(); return float64(n) }),
		gauge("store_snapshot_bytes", "Size of the newest snapshot on this node's disk; 0 without a snapshot.", saved(func(n snapshotNow) float64 { return float64(n.bytes) })),
		gauge("store_snapshot_timestamp_seconds", "When the newest snapshot on this node's disk was made, in seconds since the epoch; 0 without a snapshot.", saved(func(n snapshotNow) float64 { return float64(n.at.UnixMilli()) / 1000 })),
		gauge("settings_differ", "1 while this node was given other settings than the cluster uses, which are the leader's.", s.settings.gauge),
	}
}

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
