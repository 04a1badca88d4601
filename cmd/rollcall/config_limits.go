package main

import (
	"errors"

	"github.com/seed-20419f34/rollcall/httpd"
)

// LimitsConfig bounds what requests may cost.
type LimitsConfig struct {
	RegisterBytes  int64 `yaml:"register-bytes" help:"largest body of a registration, in bytes after decompression; 413 above it"`
	IgnoredBytes   int64 `yaml:"ignored-bytes" help:"largest body of a call that has none by the protocol, in bytes; 413 above it"`
	BatchBytes     int64 `yaml:"batch-bytes" help:"largest replication batch, in bytes after decompression; 413 above it"`
	InFlightBytes  int64 `yaml:"in-flight-bytes" help:"memory, in bytes, for the bodies of requests under way and what is decoded from them (8 for each byte of a body), and for answers of 64 KiB and more that are built as a whole (4 for each byte); one more is answered 503, an answer after 5s of waiting. Replication batches take half at most, and so do answers"`
	InstancesTotal int   `yaml:"instances-total" help:"most instances of all applications; a new one above it is answered 507"`
	InstancesInApp int   `yaml:"instances-in-app" help:"most instances of one application; a new one above it is answered 429"`
	StateBytes     int64 `yaml:"state-bytes" help:"most bytes, about, that keys, sessions, locks with their queues, records of deleted keys, remembered answers and nodes of the catalog may take; above it what adds is answered 507, and all else goes on"`
	Sessions       int   `yaml:"sessions" help:"mode cp: most sessions; a new one above it is answered 507"`
	Nodes          int   `yaml:"nodes" help:"most nodes in the catalog; a new one above it is answered 507"`
	Watchers       int   `yaml:"watchers" help:"most watches at a time, long polls included; a further one is answered 503"`
	Connections    int   `yaml:"connections" help:"most HTTP connections at a time; a further one takes the place of the one idle for longest, of the address that holds most"`
	PerAddress     int   `yaml:"connections-per-address" help:"most HTTP connections of one address (of IPv6: /64), which a balancer or NAT is too; a further one takes the place of its longest idle one; 0: any number"`
}

func defaultLimits() LimitsConfig {
	return LimitsConfig{
		RegisterBytes:  256 << 10,
		IgnoredBytes:   64 << 10,
		BatchBytes:     8 << 20,
		InFlightBytes:  256 << 20,
		InstancesTotal: 1_000_000,
		InstancesInApp: 10_000,
		StateBytes:     1 << 30,
		Sessions:       100_000,
		Nodes:          100_000,
		Watchers:       10_000,
		Connections:    10_000,
	}
}

func (l *LimitsConfig) validate() error {
	return errors.Join(
		atLeast("limits.register-bytes", l.RegisterBytes, 1),
		atLeast("limits.ignored-bytes", l.IgnoredBytes, 1),
		atLeast("limits.batch-bytes", l.BatchBytes, 1),
		atLeast("limits.in-flight-bytes", l.InFlightBytes, 16*l.BatchBytes),
		atLeast("limits.instances-total", l.InstancesTotal, 1),
		atLeast("limits.instances-in-app", l.InstancesInApp, 1),
		atLeast("limits.state-bytes", l.StateBytes, 1),
		atLeast("limits.sessions", l.Sessions, 1),
		atLeast("limits.nodes", l.Nodes, 1),
		atLeast("limits.watchers", l.Watchers, 1),
		atLeast("limits.connections", l.Connections, 1),
		atLeast("limits.connections-per-address", l.PerAddress, 0),
	)
}

func (l *LimitsConfig) http() httpd.Limits {
	return httpd.Limits{
		RegisterBytes:  l.RegisterBytes,
		IgnoredBytes:   l.IgnoredBytes,
		BatchBytes:     l.BatchBytes,
		InFlightBytes:  l.InFlightBytes,
		InstancesTotal: l.InstancesTotal,
		InstancesInApp: l.InstancesInApp,
		Watchers:       l.Watchers,
	}
}
