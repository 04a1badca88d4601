package store

import (
	"sync/atomic"
	"time"
)

// pulse notices, by beats that come often, that the process was paused. Whoever looks first after a
// pause sees that a beat is missing; those after it see that one came late.
type pulse struct {
	last  atomic.Int64 // UnixNano of the newest beat; 0: none yet
	until atomic.Int64 // UnixNano until which what comes may have come before a pause
}

// beat is called often.
func (p *pulse) beat(now time.Time) {
	if p.grace(now) == wakeGrace {
		p.until.Store(now.Add(wakeGrace).UnixNano())
	}
	p.last.Store(now.UnixNano())
}

// grace is how long something that comes now is to wait, because it may have waited through a pause
// of this process; 0: not at all.
func (p *pulse) grace(now time.Time) time.Duration {
	last := p.last.Load()
	if last != 0 && now.UnixNano()-last > int64(maxStep) {
		return wakeGrace
	}
	return max(0, time.Duration(p.until.Load()-now.UnixNano()))
}
