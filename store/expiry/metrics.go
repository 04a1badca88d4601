package expiry

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// CoordinatorMetrics counts what a coordinator does.
type CoordinatorMetrics struct {
	Expired prometheus.Counter
	panics  prometheus.Counter
}

func NewCoordinatorMetrics(reg prometheus.Registerer) *CoordinatorMetrics {
	add := promauto.With(reg)
	return &CoordinatorMetrics{
		Expired: add.NewCounter(prometheus.CounterOpts{Name: "rollcall_coordination_sessions_expired_total", Help: "Sessions that this node ended as leader because their TTL had passed."}),
		panics:  add.NewCounter(prometheus.CounterOpts{Name: "rollcall_coordination_panics_total", Help: "Attempts to end sessions that panicked; each is a defect."}),
	}
}

// EvictorMetrics counts what an evictor does.
type EvictorMetrics struct {
	evicted     prometheus.Counter
	panics      prometheus.Counter
	transitions *prometheus.CounterVec
}

func NewEvictorMetrics(reg prometheus.Registerer) EvictorMetrics {
	add := promauto.With(reg)
	m := EvictorMetrics{
		evicted:     add.NewCounter(prometheus.CounterOpts{Name: "rollcall_store_evictions_total", Help: "Leases that this node evicted as leader."}),
		panics:      add.NewCounter(prometheus.CounterOpts{Name: "rollcall_store_eviction_panics_total", Help: "Eviction rounds that panicked; each is a defect."}),
		transitions: add.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_self_preservation_transitions_total", Help: "Transitions of self-preservation that this node saw as leader, by the new state."}, []string{"to"}),
	}
	for _, state := range preservationStates {
		m.transitions.WithLabelValues(state.String())
	}
	return m
}

var preservationStates = []registry.PreservationState{registry.PreservationOff, registry.PreservationOn, registry.PreservationReleased, registry.PreservationHeld}

// PreservationGauges shows self-preservation at the moment of a scrape. It walks all leases.
type PreservationGauges struct {
	// Now returns the newest view, and the lease clock (ms) as this node knows it.
	Now func() (*registry.View, int64)
}

func preservationDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("rollcall_self_preservation_"+name, help, labels, nil)
}

var (
	stateDesc     = preservationDesc("state", "1 for the current state of self-preservation, 0 for the others.", "state")
	conditionDesc = preservationDesc("condition", "1 while the condition for self-preservation holds, whether or not it is on.")
	thresholdDesc = preservationDesc("threshold", "Share of fresh leases at or below which self-preservation comes on.")
	leasesDesc    = preservationDesc("leases", "Leases as self-preservation counts them: all, counted (old enough), fresh (counted and renewed lately), expired.", "kind")
	withheldDesc  = preservationDesc("withheld", "Expired leases whose eviction is withheld.")
	clientsDesc   = preservationDesc("upstream_expected_clients", "Clients that upstream's formula expects to send renewals.")
	requiredDesc  = preservationDesc("upstream_threshold", "Renewals per minute at or below which upstream's formula stops evictions.")
	renewalsDesc  = preservationDesc("upstream_renewals_last_minute", "Renewals in the last complete minute.")
	slidingDesc   = preservationDesc("renewals_sliding", "Renewals in the last 60 s, estimated from two buckets of a minute.")
)

// Describe implements prometheus.Collector.
func (PreservationGauges) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{stateDesc, conditionDesc, thresholdDesc, leasesDesc, withheldDesc, clientsDesc, requiredDesc, renewalsDesc, slidingDesc} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (g PreservationGauges) Collect(metrics chan<- prometheus.Metric) {
	v, now := g.Now()
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	figures, state, expectation := v.Freshness(now), v.Preservation().State, v.Expectation()
	for _, s := range preservationStates {
		gauge(stateDesc, number(s == state), s.String())
	}
	holds, _ := v.Condition(figures)
	gauge(conditionDesc, number(holds))
	gauge(thresholdDesc, float64(v.Settings().Threshold)/float64(registry.Whole))
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

// SuspendedGauge shows whether no lease can end now.
func SuspendedGauge(suspended func() bool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "rollcall", Subsystem: "store", Name: "expiry_suspended",
		Help: "1 while no lease can end: no leader is known (in mode ap: the node is not ready), or it has led (been ready) for less than the shortest grace.",
	}, func() float64 { return number(suspended()) })
}
