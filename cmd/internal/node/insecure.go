package node

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/fsm/access"
)

// insecure shows which protection is missing from listeners that other machines reach.
type insecure struct {
	*config.Config
	mode func() access.Mode // returns the mode in force
}

var insecureDesc = prometheus.NewDesc("rollcall_insecure", "1 for each protection that the node lacks although other machines can reach it.", []string{"what"}, nil)

// Describe implements prometheus.Collector.
func (insecure) Describe(to chan<- *prometheus.Desc) { to <- insecureDesc }

// Collect implements prometheus.Collector.
func (i insecure) Collect(to chan<- prometheus.Metric) {
	now := i.Insecure(i.mode())
	for _, lack := range config.Lacks {
		value := 0.0
		if slices.Contains(now, lack) {
			value = 1
		}
		to <- prometheus.MustNewConstMetric(insecureDesc, prometheus.GaugeValue, value, lack.What)
	}
}
