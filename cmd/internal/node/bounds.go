package node

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/store/wait"
)

// bounds shows what goes beyond the bounds of one operation (docs/run/limits.md): what is refused, and what level 2 will refuse.
type bounds struct {
	service      registry.Service
	coordination httpd.Coordination // nil in mode ap
	log          *slog.Logger
}

// excess counts what went beyond a bound since the node was started.
type excess struct {
	bound                string
	refused, wouldRefuse int64
}

const (
	boundsInterval = 5 * time.Second
	boundsQuiet    = time.Minute // between two warnings
)

var (
	refusedDesc     = prometheus.NewDesc("rollcall_bounds_refused_total", "What was refused because one operation would set too much in motion, by what is bounded; each node counts what it applies, also what it applies again after a start.", []string{"bound"}, nil)
	wouldRefuseDesc = prometheus.NewDesc("rollcall_bounds_would_refuse_total", "What will be refused from level 2 of the formats on, and was accepted.", []string{"bound"}, nil)
	followedDesc    = prometheus.NewDesc("rollcall_catalog_alias_checks_followed", "Most alias checks that one operation had follow since the node was started; above 1000 there are more on one service or node than new ones may come to.", nil, nil)
)

// look returns what went beyond each bound, and the most alias checks that followed one operation.
func (b *bounds) look() (all []excess, followed int64) {
	v, err := b.service.View(context.Background(), registry.Stale)
	if err != nil {
		return nil, 0
	}
	f := v.AliasFigures()
	all = append(all, excess{"alias-checks", f.Refused.Load(), f.WouldRefuse.Load()})
	if b.coordination != nil {
		if keys, err := b.coordination.View(context.Background(), registry.Stale); err == nil {
			all = append(all, excess{"sessions", keys.Figures().Refused.Load(), keys.Figures().WouldRefuse.Load()})
		}
	}
	return all, f.Largest.Load()
}

// run warns when more goes beyond a bound than before.
func (b *bounds) run(ctx context.Context) {
	var seen []excess
	var logged time.Time
	wait.Every(ctx, boundsInterval, func(now time.Time) {
		if now.Sub(logged) < boundsQuiet {
			return
		}
		all, followed := b.look()
		before := seen
		seen = all
		for i, e := range all {
			if e.refused+e.wouldRefuse == 0 || i < len(before) && e == before[i] {
				continue
			}
			logged = now
			b.log.Warn("more was asked for than one operation may set in motion: docs/run/limits.md", "bound", e.bound, "refused", e.refused, "accepted-until-level-2", e.wouldRefuse, "most-alias-checks", followed)
		}
	})
}

// Describe implements prometheus.Collector.
func (b *bounds) Describe(to chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(b, to)
}

// Collect implements prometheus.Collector.
func (b *bounds) Collect(to chan<- prometheus.Metric) {
	all, followed := b.look()
	for _, e := range all {
		to <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(e.refused), e.bound)
		to <- prometheus.MustNewConstMetric(wouldRefuseDesc, prometheus.CounterValue, float64(e.wouldRefuse), e.bound)
	}
	to <- prometheus.MustNewConstMetric(followedDesc, prometheus.GaugeValue, float64(followed))
}
