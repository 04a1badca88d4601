package httpd

import (
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// leaseClock is the lease clock at the moment when a view is looked at.
type leaseClock struct {
	now     int64 // lease clock, ms
	stamp   registry.Stamp
	running bool // it is the leader's own clock, or this node's; elsewhere that of the newest applied operation
}

// clockOf is now, for v: the running clock on the leader and without consensus, elsewhere what was
// applied.
func (h *Handler) clockOf(v *registry.View) leaseClock {
	health := h.config.Service.Health()
	stamp := v.Stamp()
	return leaseClock{now: max(health.Clock, stamp.Lease), stamp: stamp, running: health.Leads || h.config.WithoutConsensus}
}

// kind is the word for it in answers.
func (c leaseClock) kind() string {
	if c.running {
		return "running"
	}
	return "applied"
}

// wall is when the lease clock shows lease, in ms since the epoch, if it goes on as the wall clock
// does. It stands still without a leader, so this is for people.
func (c leaseClock) wall(lease int64) int64 { return c.stamp.Wall + lease - c.stamp.Lease }

// shownTime is a time (ms since the epoch) for people.
func shownTime(wall int64) string {
	return time.UnixMilli(wall).UTC().Format("2006-01-02 15:04:05 UTC")
}

// shownSpan is a length of time (ms) for people: 1m30s, 4h, 2.5s.
func shownSpan(ms int64) string {
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
