package node

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/consul"
)

// bounds shows what exceeds the bounds of one operation (docs/run/limits.md): what is refused, and what level 2 will
// refuse.
type bounds struct {
	service      registry.Service
	coordination consul.Coordination // nil in mode ap
}

var (
	refusedDesc     = prometheus.NewDesc("rollcall_bounds_refused_total", "Operations refused because they would set too much in motion, by bound; each node counts what it applies, and counts it again when it applies it again after a start.", []string{"bound"}, nil)
	wouldRefuseDesc = prometheus.NewDesc("rollcall_bounds_would_refuse_total", "Operations that were accepted but will be refused from level 2 of the formats on.", []string{"bound"}, nil)
	followedDesc    = prometheus.NewDesc("rollcall_catalog_alias_checks_followed", "Most alias checks that one operation set in motion since the node was started; above 1000, one service or node has more of them than new ones may reach.", nil, nil)
)

// Describe implements prometheus.Collector.
func (b *bounds) Describe(to chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(b, to)
}

// Collect implements prometheus.Collector.
func (b *bounds) Collect(to chan<- prometheus.Metric) {
	show := func(bound string, refused, wouldRefuse *atomic.Int64) {
		to <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(refused.Load()), bound)
		to <- prometheus.MustNewConstMetric(wouldRefuseDesc, prometheus.CounterValue, float64(wouldRefuse.Load()), bound)
	}
	if v, err := b.service.View(context.Background(), registry.Stale); err == nil {
		f := v.AliasFigures()
		show("alias-checks", &f.Refused, &f.WouldRefuse)
		to <- prometheus.MustNewConstMetric(followedDesc, prometheus.GaugeValue, float64(f.Largest.Load()))
	}
	if b.coordination == nil {
		return
	}
	if v, err := b.coordination.View(context.Background(), registry.Stale); err == nil {
		show("sessions", &v.Figures().Refused, &v.Figures().WouldRefuse)
	}
}
