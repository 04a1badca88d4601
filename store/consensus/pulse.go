package consensus

import (
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/store/expiry"
)

// pulse notices, by beats that come often, that the process was paused. Whoever looks first after a
// pause sees that a beat is missing; those after it see that one came late.
type pulse struct {
	last  atomic.Pointer[time.Time] // the newest beat; nil: none yet
	until atomic.Pointer[time.Time] // until when what comes may have come before a pause; nil: there was none
}

// beat is called often.
func (p *pulse) beat(now time.Time) {
	if p.grace(now) == wakeGrace {
		until := now.Add(wakeGrace)
		p.until.Store(&until)
	}
	p.last.Store(&now)
}

// grace is how long something that comes now is to wait, because it may have waited through a pause
// of this process; 0: not at all.
func (p *pulse) grace(now time.Time) time.Duration {
	if last := p.last.Load(); last != nil && now.Sub(*last) > expiry.MaxStep {
		return wakeGrace
	}
	if until := p.until.Load(); until != nil {
		return max(0, until.Sub(now))
	}
	return 0
}
