package store

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// LevelGauge shows the level of the formats that a node writes.
func LevelGauge(writes func() byte) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "rollcall_cluster_level", Help: "Level of the formats that this node writes (docs/run/upgrade.md)."},
		func() float64 { return float64(writes()) })
}

// AppliedGauge shows how far a node is, so that nodes of one cluster can be compared.
func AppliedGauge(index func() uint64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rollcall_store_applied_index", Help: "Newest log entry that this node has applied; in mode ap the index of its newest change, which means nothing to other nodes.",
	}, func() float64 { return float64(index()) })
}

// Duration returns a histogram of how long something takes, from half a millisecond to ten seconds. Its name begins
// with rollcall_store_.
func Duration(reg prometheus.Registerer, name, help string) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "rollcall_store_" + name, Help: help,
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	})
	reg.MustRegister(h)
	return h
}

// SyncSeconds returns the histogram of writes to the disk, in either mode.
func SyncSeconds(reg prometheus.Registerer) prometheus.Histogram {
	return Duration(reg, "sync_seconds", "Time a durable write took: of the log, or in mode ap of changes.")
}

// ChangeCounter counts changes of a node's registry. It belongs to the goroutine that publishes views, which it must
// not bring down.
type ChangeCounter struct {
	panics  *Panics
	changes *prometheus.CounterVec
	counted registry.Index
}

func NewChangeCounter(reg prometheus.Registerer, panics *Panics) *ChangeCounter {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rollcall_registry_changes_total",
		Help: "Changes in this node's registry since it became ready, by what readers see (added, modified, deleted) and by the instance's last event; several changes of an instance in one log entry count once.",
	}, []string{"action", "why"})
	reg.MustRegister(c)
	return &ChangeCounter{panics: panics, changes: c}
}

// Skip leaves out the changes up to a view: they happened before this node was ready.
func (c *ChangeCounter) Skip(v *registry.View) { c.counted = v.Index() }

// Count counts the changes that are new in a view.
func (c *ChangeCounter) Count(v *registry.View) {
	if v.Index() == c.counted {
		return
	}
	after := c.counted
	c.counted = v.Index() // what cannot be counted is not tried again
	c.panics.Contain(measuredChanges, func() {
		changes, _ := v.Changes(after, 0) // changes that do not reach back belong to a state that arrived as a whole
		for _, change := range changes {
			action, why := "deleted", "unknown"
			if change.Kind == registry.Live {
				action = strings.ToLower(change.Lease.Action.String())
			}
			if kind, ok := v.Why(change); ok {
				why = kind.String()
			}
			c.changes.WithLabelValues(action, why).Inc()
		}
	})
}
