package certfiles

import "github.com/prometheus/client_golang/prometheus"

// ExpiryGauge shows when the certificate of a source, which must have one, expires. use says what the certificate is
// for.
func ExpiryGauge(use string, of *Source) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "rollcall_certificate_expiry_timestamp_seconds",
		Help:        "When the certificate of a listener, or of this node as a client, expires, in seconds since the epoch, by use: http, cluster, replication.",
		ConstLabels: prometheus.Labels{"use": use},
	}, func() float64 { return float64(of.Certificate().Leaf.NotAfter.Unix()) })
}
