package node

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/wait"
	"github.com/seed-20419f34/rollcall/store"
)

// newMetrics returns a node's metrics, with those of the runtime. They show what program the node runs, its mode, and
// which formats the program reads.
func newMetrics(version, mode string) *prometheus.Registry {
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "rollcall_build_info", Help: "1, with the version of the program and of Go, and the node's mode.",
			ConstLabels: prometheus.Labels{"version": version, "go": runtime.Version(), "mode": mode},
		}, func() float64 { return 1 }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "rollcall_build_level", Help: "Newest level of the formats that this node's program reads; while rollcall_cluster_level is lower, an upgrade is unfinished (docs/run/upgrade.md).",
		}, func() float64 { return float64(codec.Newest) }),
	)
	return metrics
}

var (
	limitDesc     = prometheus.NewDesc("rollcall_limit", "The limit for each rollcall_limit_used, by the key of the setting.", []string{"name"}, nil)
	usedDesc      = prometheus.NewDesc("rollcall_limit_used", "How much of each limit is used; for limits.instances-in-app by the largest application.", []string{"name"}, nil)
	principalDesc = prometheus.NewDesc("rollcall_limit_used_by_principal", "How much of each limit a principal uses: the ten largest users, if they use more than half of their limits.principal-share.", []string{"name", "principal"}, nil)
)

// limits shows the use of each limit on a quantity. Limits on the size of one thing have no share.
type limits struct {
	of     *node
	engine *engine
}

// share is a limit and its use.
type share struct {
	key        string
	most, used int64
}

// Describe implements prometheus.Collector.
func (limits) Describe(to chan<- *prometheus.Desc) {
	to <- limitDesc
	to <- usedDesc
	to <- principalDesc
}

// Collect implements prometheus.Collector.
func (l limits) Collect(to chan<- prometheus.Metric) {
	for _, s := range l.shares() {
		to <- prometheus.MustNewConstMetric(limitDesc, prometheus.GaugeValue, float64(s.most), s.key)
		to <- prometheus.MustNewConstMetric(usedDesc, prometheus.GaugeValue, float64(s.used), s.key)
	}
	if l.engine.coordination == nil {
		return
	}
	if v, err := l.engine.coordination.View(context.Background(), registry.Stale); err == nil {
		for _, u := range largestUses(l.of.quota.Load(), v, mostPrincipals) {
			to <- prometheus.MustNewConstMetric(principalDesc, prometheus.GaugeValue, float64(u.Used), u.Limit, u.Principal)
		}
	}
}

// mostPrincipals bounds the series of each limit.
const mostPrincipals = 10

func (l limits) shares() []share {
	h, quota := l.of.handler, l.of.quota.Load()
	most := h.Limits()
	watchers, inFlight := h.Used()
	all := []share{
		{"limits.connections", int64(most.Connections), int64(l.of.connections.Count())},
		{"limits.watchers", int64(most.Watchers), watchers},
		{"limits.in-flight-bytes", most.InFlightBytes, inFlight},
	}
	v, err := l.engine.service.View(context.Background(), registry.Stale)
	if err != nil {
		return all
	}
	largest := 0
	for app := range v.Apps() {
		largest = max(largest, app.Len())
	}
	bytes := int64(v.CatalogBytes())
	if l.engine.coordination != nil {
		if keys, err := l.engine.coordination.View(context.Background(), registry.Stale); err == nil {
			bytes += int64(keys.Bytes())
			all = append(all, share{"limits.sessions", int64(quota.Sessions), int64(keys.SessionCount())})
		}
	}
	return append(all,
		share{"limits.instances-total", int64(most.InstancesTotal), int64(v.Total())},
		share{"limits.instances-in-app", int64(most.InstancesInApp), int64(largest)},
		share{"limits.nodes", int64(quota.Nodes), int64(v.NodeCount())},
		share{"limits.state-bytes", quota.StateBytes, bytes})
}

// clusterWatch shows what the leader sees of the nodes. Other nodes show nothing, so that each cluster has one
// opinion.
type clusterWatch struct {
	status func(context.Context) api.Status
	panics *store.Panics

	mu       sync.Mutex
	nodes    []api.NodeStatus  // as of the newest look; nil if this node does not lead, or has not looked yet
	leader   string            // in nodes
	applied  map[string]uint64 // what each node had applied when it was last heard
	furthest []reached         // by the furthest node, oldest first
}

// reached is when a log entry was first seen to be applied.
type reached struct {
	index uint64
	at    time.Time
}

// clusterInterval is the time between two looks, and reachedKept how many of them are remembered: an hour's.
const (
	clusterInterval = 5 * time.Second
	reachedKept     = int(time.Hour / clusterInterval)
)

var (
	votersDesc     = prometheus.NewDesc("rollcall_cluster_voters", "Nodes that vote; reported by the leader only.", nil, nil)
	healthyDesc    = prometheus.NewDesc("rollcall_cluster_voters_healthy", "Voters that respond and are not far behind; reported by the leader only.", nil, nil)
	toleranceDesc  = prometheus.NewDesc("rollcall_cluster_failure_tolerance", "How many more voters may fail before writes stop; reported by the leader only.", nil, nil)
	lagDesc        = prometheus.NewDesc("rollcall_store_follower_lag_entries", "Log entries that another node has not applied yet, or had not when last heard; reported by the leader only.", []string{"node"}, nil)
	lagSecondsDesc = prometheus.NewDesc("rollcall_store_follower_lag_seconds", "Age of the oldest entry that another node has not applied, to within five seconds, at most an hour; reported by the leader only.", []string{"node"}, nil)
)

// run looks at the nodes at intervals while this node leads.
func (w *clusterWatch) run(ctx context.Context, _ registry.Epoch) {
	look := func(now time.Time) { w.panics.Contain(store.MeasuredCluster, func() { w.look(ctx, now) }) }
	look(time.Now())
	wait.Every(ctx, clusterInterval, look)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes, w.applied, w.furthest = nil, nil, nil
}

// look asks the nodes how they are, which may take a while if one does not respond.
func (w *clusterWatch) look(ctx context.Context, now time.Time) {
	s := w.status(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes, w.leader = s.Nodes, s.Leader
	before := w.applied
	w.applied = map[string]uint64{} // without removed nodes
	furthest := uint64(0)
	for _, n := range s.Nodes {
		if was, known := before[n.ID]; n.Role != unreachable {
			w.applied[n.ID] = n.Applied
		} else if known {
			w.applied[n.ID] = was
		}
		furthest = max(furthest, n.Applied)
	}
	if n := len(w.furthest); n == 0 || w.furthest[n-1].index < furthest {
		w.furthest = append(w.furthest, reached{furthest, now})
	}
	w.furthest = w.furthest[max(0, len(w.furthest)-reachedKept):]
}

// Describe implements prometheus.Collector.
func (w *clusterWatch) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{votersDesc, healthyDesc, toleranceDesc, lagDesc, lagSecondsDesc} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (w *clusterWatch) Collect(to chan<- prometheus.Metric) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.nodes == nil {
		return
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	voters, healthy := votersOf(w.nodes)
	gauge(votersDesc, float64(voters))
	gauge(healthyDesc, float64(healthy))
	gauge(toleranceDesc, float64(tolerance(voters, healthy)))
	now := time.Now()
	for _, n := range w.nodes {
		if _, known := w.applied[n.ID]; known && n.ID != w.leader {
			entries, age := w.lag(n.ID, now)
			gauge(lagDesc, float64(entries), n.ID)
			gauge(lagSecondsDesc, age.Seconds(), n.ID)
		}
	}
}

// lag returns how many entries a node is behind, and for how long it has been.
func (w *clusterWatch) lag(node string, now time.Time) (entries uint64, age time.Duration) {
	applied := w.applied[node]
	for _, r := range w.furthest {
		if r.index > applied {
			return w.furthest[len(w.furthest)-1].index - applied, max(now.Sub(r.at), 0)
		}
	}
	return 0, 0
}
