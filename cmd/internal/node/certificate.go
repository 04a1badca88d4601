package node

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/internal/certfiles"
)

// certificates are the files of certificates that a node uses, but for those of the store.
type certificates []*certfiles.Source

// run looks at the files again and again until ctx ends.
func (c certificates) run(ctx context.Context) {
	var all sync.WaitGroup
	for _, files := range c {
		all.Go(func() { files.Run(ctx) })
	}
	all.Wait()
}

// reload reads the files again, and returns the settings whose files hold something else now.
func (c certificates) reload() (changed []string) {
	for _, files := range c {
		changed = append(changed, files.Reload()...)
	}
	return changed
}

// expiry is a metric: the end of the HTTP listener's certificate, in seconds since the epoch.
func expiry(files *certfiles.Source) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rollcall_http_certificate_expiry_timestamp_seconds",
		Help: "When the certificate of the HTTP listener ends, in seconds since the epoch.",
	}, func() float64 { return float64(files.Certificate().Leaf.NotAfter.Unix()) })
}
