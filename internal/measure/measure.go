// Package measure keeps code that only measures a node from bringing it down: a panic in a counter or a comparison
// costs only a figure.
//
// It is not for code that decides anything or changes state: half of a decision is worse than a node that ends.
package measure

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Kind says what is measured.
type Kind string

// Kinds of measurements.
const (
	Changes  Kind = "changes"  // of the registry, counted as they are published
	Metrics  Kind = "metrics"  // gathered for a scrape; Prometheus recovers from panics of collectors
	Replicas Kind = "replicas" // digests of this node's state, and their comparison
	Cluster  Kind = "cluster"  // the nodes as the leader sees them
	Settings Kind = "settings" // of the cluster, compared with this node's
)

// Panics recovers from panics in what only measures. It logs the first panic of each kind and counts all. Safe for
// concurrent use.
type Panics struct {
	log     *slog.Logger
	counted *prometheus.CounterVec

	mu     sync.Mutex // guards logged
	logged map[Kind]bool
}

// NewPanics registers the counter of panics, which all Panics with the same registry share.
func NewPanics(log *slog.Logger, reg prometheus.Registerer) *Panics {
	p := &Panics{log: log, logged: map[Kind]bool{}, counted: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rollcall_measuring_panics_total",
		Help: "Panics in code that only measures this node, by what it measures: a figure is missing or wrong, nothing else; each is a defect.",
	}, []string{"what"})}
	if there, ok := errors.AsType[prometheus.AlreadyRegisteredError](reg.Register(p.counted)); ok {
		p.counted = there.ExistingCollector.(*prometheus.CounterVec)
	}
	for _, kind := range []Kind{Changes, Metrics, Replicas, Cluster, Settings} {
		p.counted.WithLabelValues(string(kind))
	}
	return p
}

// Contain calls measure, and reports whether it returned without a panic. measure must unlock with defer what it
// locks.
func (p *Panics) Contain(kind Kind, measure func()) (ok bool) {
	defer func() {
		if !ok {
			p.record(kind, recover())
		}
	}()
	measure()
	return true
}

func (p *Panics) record(kind Kind, cause any) {
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
func (p *Panics) Println(v ...any) { p.record(Metrics, fmt.Sprint(v...)) }
