package main

import (
	"fmt"

	"github.com/seed-20419f34/rollcall/httpd"
)

// LimitsConfig bounds what requests may cost.
type LimitsConfig struct {
	RegisterBytes  int64 `key:"limits.register-bytes" default:"262144" min:"1" help:"largest body of a registration, in bytes after decompression; 413 above it"`
	IgnoredBytes   int64 `key:"limits.ignored-bytes" default:"65536" min:"1" help:"largest body of a call that has none by the protocol, in bytes; 413 above it"`
	BatchBytes     int64 `key:"limits.batch-bytes" default:"8388608" min:"1" help:"largest replication batch, in bytes after decompression; 413 above it"`
	InFlightBytes  int64 `key:"limits.in-flight-bytes" default:"268435456" min:"1" help:"memory, in bytes, for the bodies of requests under way and what is decoded from them (8 for each byte of a body), and for answers of 64 KiB and more that are built as a whole (4 for each byte); one more is answered 503, an answer after 5s of waiting. Replication batches take half at most, and so do answers"`
	InstancesTotal int   `key:"limits.instances-total" default:"1000000" min:"1" help:"most instances of all applications; a new one above it is answered 507"`
	InstancesInApp int   `key:"limits.instances-in-app" default:"10000" min:"1" help:"most instances of one application; a new one above it is answered 429"`
	StateBytes     int64 `key:"limits.state-bytes" default:"1073741824" min:"1" help:"most bytes, about, that keys, sessions, locks with their queues, records of deleted keys, remembered answers and nodes of the catalog may take; above it what adds is answered 507, and all else goes on"`
	Sessions       int   `key:"limits.sessions" default:"100000" min:"1" help:"mode cp: most sessions; a new one above it is answered 507"`
	Nodes          int   `key:"limits.nodes" default:"100000" min:"1" help:"most nodes in the catalog; a new one above it is answered 507"`
	Watchers       int   `key:"limits.watchers" default:"10000" min:"1" help:"most watches at a time, long polls included; a further one is answered 503"`
	Connections    int   `key:"limits.connections" default:"10000" min:"1" help:"most HTTP connections at a time; a further one takes the place of the one idle for longest, of the address that holds most"`
	PerAddress     int   `key:"limits.connections-per-address" min:"0" help:"most HTTP connections of one address (of IPv6: /64), which a balancer or NAT is too; a further one takes the place of its longest idle one; 0: any number"`
}

// validate: two of the largest batches, decoded, must fit into what is kept for bodies under way.
func (l *LimitsConfig) validate() error {
	if least := 16 * l.BatchBytes; l.InFlightBytes < least {
		return fmt.Errorf("limits.in-flight-bytes: %d is below %d, which a batch of limits.batch-bytes may need", l.InFlightBytes, least)
	}
	return nil
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
