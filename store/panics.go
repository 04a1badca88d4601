package store

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Measured says what is measured.
type Measured string

// Kinds of measurements.
const (
	measuredChanges  Measured = "changes"  // of the registry, counted as they are published
	measuredMetrics  Measured = "metrics"  // gathered for a scrape; Prometheus recovers from panics of collectors
	MeasuredReplicas Measured = "replicas" // digests of this node's state, and their comparison
	MeasuredCluster  Measured = "cluster"  // the nodes as the leader sees them
	MeasuredSettings Measured = "settings" // of the cluster, compared with this node's
)

// Panics keeps code that only measures a node from bringing it down: a panic in a counter or a comparison costs only a
// figure. It logs the first panic of each kind and counts all. Safe for concurrent use.
//
// It is not for code that decides anything or changes state: half of a decision is worse than a node that ends.
type Panics struct {
	log     *slog.Logger
	counted *prometheus.CounterVec

	mu     sync.Mutex // guards logged
	logged map[Measured]bool
}

// NewPanics registers the counter of panics, which all Panics with the same registry share.
func NewPanics(log *slog.Logger, reg prometheus.Registerer) *Panics {
	p := &Panics{log: log, logged: map[Measured]bool{}, counted: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rollcall_measuring_panics_total",
		Help: "Panics in code that only measures this node, by what it measures: a figure is missing or wrong, nothing else; each is a defect.",
	}, []string{"what"})}
	if there, ok := errors.AsType[prometheus.AlreadyRegisteredError](reg.Register(p.counted)); ok {
		p.counted = there.ExistingCollector.(*prometheus.CounterVec)
	}
	for _, kind := range []Measured{measuredChanges, measuredMetrics, MeasuredReplicas, MeasuredCluster, MeasuredSettings} {
		p.counted.WithLabelValues(string(kind))
	}
	return p
}

// Contain calls measure, and reports whether it returned without a panic. measure must unlock with defer what it
// locks.
func (p *Panics) Contain(kind Measured, measure func()) (ok bool) {
	defer func() {
		if !ok {
			p.record(kind, recover())
		}
	}()
	measure()
	return true
}

func (p *Panics) record(kind Measured, cause any) {
	p.counted.WithLabelValues(string(kind)).Inc()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.logged[kind] {
		p.logged[kind] = true
		p.log.Error("measuring failed: figures are lost or wrong, and the node goes on; what else fails of this kind is only counted",
			"what", kind, "cause", cause, "stack", string(debug.Stack()))
	}
}

// Println implements promhttp.Logger: a scrape could not show every figure, perhaps because a collector panicked.
func (p *Panics) Println(v ...any) { p.record(measuredMetrics, fmt.Sprint(v...)) }
