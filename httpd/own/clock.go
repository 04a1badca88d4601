package own

import (
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Clock is the lease clock at the moment of a read.
type Clock struct {
	Now     int64 // lease clock, ms
	stamp   registry.Stamp
	running bool // it is the leader's or this node's own clock; elsewhere that of the newest applied operation
}

// ClockOf returns the clock for v: the running one on the leader and on a node that decides alone, elsewhere that of
// the last applied operation.
func ClockOf(v *registry.View, health registry.Health, alone bool) Clock {
	stamp := v.Stamp()
	return Clock{Now: max(health.Clock, stamp.Lease), stamp: stamp, running: health.Leads || alone}
}

// kind returns the clock's name in responses.
func (c Clock) kind() string {
	if c.running {
		return "running"
	}
	return "applied"
}

// wall converts a lease clock time to ms since the epoch, assuming that the lease clock runs as the wall clock does.
// It stands still without a leader, so this is only for people.
func (c Clock) wall(lease int64) int64 { return c.stamp.Wall + lease - c.stamp.Lease }

// shownTime formats a time (ms since the epoch) for people.
func shownTime(wall int64) string {
	return time.UnixMilli(wall).UTC().Format("2006-01-02 15:04:05 UTC")
}

// Span formats a duration (ms) for people: 1m30s, 4h, 2.5s.
func Span(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	if d >= 10*time.Second {
		d = d.Round(time.Second)
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
