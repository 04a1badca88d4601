package commit

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// GatherFor is how long a renewal waits for others at most. Sessions are renewed by the thousand, each
// for itself, long before its time is up: committed as they come, they would keep the log busy with
// entries of one or two. A write must not wait so, which is why nothing else does (see committer).
const GatherFor = 100 * time.Millisecond

// gatherMost is how many renewals have company enough: 1,280 a second, more than 10,000 sessions need, which are renewed every
// 10 s, wait no longer.
const gatherMost = 128

// SetPatience sets how long renewals wait for company; 0: not at all.
func (c *Committer) SetPatience(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.patience = d
}

// gather is commit for what can wait for company. The first one sets the time.
func (c *Committer) gather(ctx context.Context, arrived time.Time, items []fsm.Item, size int, _ Pace) (fsm.Results, error) {
	if c.patience == 0 {
		return c.commit(ctx, arrived, items, size, AtOnce)
	}
	k := &call{items: items, size: size, done: make(chan struct{})}
	if !c.collect(k) {
		return fsm.Results{}, registry.ErrClosed
	}
	return c.await(ctx, k)
}

func (c *Committer) collect(k *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	if len(c.gathered) == 0 {
		time.AfterFunc(c.patience, c.release)
	}
	if c.gathered = append(c.gathered, k); len(c.gathered) == gatherMost {
		c.releaseGathered()
	}
	return true
}

// release queues what was gathered. From here on it has arrived: it waits for a leader as
// long as any other call.
func (c *Committer) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.gathered) > 0 { // else they went sooner, or it is closed
		c.releaseGathered()
	}
}

// releaseGathered is release for the holder of mu.
func (c *Committer) releaseGathered() {
	now := time.Now()
	for _, k := range c.gathered {
		k.arrived = now
	}
	c.calls = append(c.calls, c.gathered...)
	c.gathered = nil
	c.signal()
}

// pulse notices, by beats that come often, that the process was paused. The first write after a
// pause sees that a beat is missing; later ones see that one came late.
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
