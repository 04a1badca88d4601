package client

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// clampedHeader says of a registration which lease times were out of the server's bounds, and what it
// took instead, as "renewalIntervalInSecs=3600, durationInSecs=86400".
const clampedHeader = "X-Rollcall-Lease-Clamped"

// leaseTimes are an instance's, as they hold.
type leaseTimes struct {
	interval time.Duration // between two heartbeats
	duration time.Duration // that the instance lives after the last one
}

// leaseOf is what a server makes of an instance's lease: the instance's own times, or defaults, within
// our bounds, unless clamped (the header of that name) says that it took others.
func leaseOf(i *registry.Instance, clamped string) leaseTimes {
	interval, duration := parseClamped(clamped)
	interval, duration, _ = registry.ClampLease(cmp.Or(interval, i.RenewalInterval), cmp.Or(duration, i.Duration))
	return leaseTimes{time.Duration(interval) * time.Second, time.Duration(duration) * time.Second}
}

// parseClamped reads the header's times, in seconds. 0: it does not say, or nothing that makes sense.
func parseClamped(header string) (interval, duration int32) {
	for part := range strings.SplitSeq(header, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		seconds, err := strconv.ParseInt(value, 10, 32)
		if err != nil || seconds <= 0 {
			continue
		}
		switch name {
		case "renewalIntervalInSecs":
			interval = int32(seconds)
		case "durationInSecs":
			duration = int32(seconds)
		}
	}
	return interval, duration
}
