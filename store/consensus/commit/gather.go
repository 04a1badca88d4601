package commit

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// GatherFor is the longest that a renewal waits for others. Sessions are renewed by the thousand, each on its own and
// long before it expires. Committed as they come, they would keep the log busy with entries of one or two. Only
// renewals wait: a write must not (see committer).
const GatherFor = 100 * time.Millisecond

// gatherMost renewals are enough to stop waiting. Beyond 1,280 a second no renewal waits the full time; 10,000
// sessions that are renewed every 10 s send 1,000.
const gatherMost = 128

// gather commits what may wait for others. The first one to arrive starts the timer.
func (c *Committer) gather(ctx context.Context, arrived time.Time, items []fsm.Item, size int, _ Pace) (fsm.Results, error) {
	if c.patience == 0 {
		return c.commit(ctx, arrived, items, size, AtOnce)
	}
	k := &call{items: items, size: size, done: make(chan struct{})}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return fsm.Results{}, registry.ErrClosed
	}
	if len(c.gathered) == 0 {
		time.AfterFunc(c.patience, c.release)
	}
	if c.gathered = append(c.gathered, k); len(c.gathered) == gatherMost {
		c.releaseGathered()
	}
	c.mu.Unlock()
	return c.await(ctx, k)
}

// release queues the gathered calls. They count as arriving now: they wait for a leader as long as any other call.
func (c *Committer) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.gathered) > 0 { // otherwise they went sooner, or the committer is closed
		c.releaseGathered()
	}
}

// releaseGathered is release for a caller that holds mu.
func (c *Committer) releaseGathered() {
	now := time.Now()
	for _, k := range c.gathered {
		k.arrived = now
	}
	c.calls = append(c.calls, c.gathered...)
	c.gathered = nil
	c.signal()
}

// pauseDetector notices pauses of the process by frequent beats. The first write after a pause sees that a beat is
// missing; later writes see that one came late.
type pauseDetector struct {
	last  atomic.Pointer[time.Time] // newest beat; nil before the first
	until atomic.Pointer[time.Time] // until when writes may have arrived before a pause; nil if there was none
}

// beat must be called often.
func (p *pauseDetector) beat(now time.Time) {
	if p.grace(now) == wakeGrace {
		until := now.Add(wakeGrace)
		p.until.Store(&until)
	}
	p.last.Store(&now)
}

// grace returns how long a write that arrives now must wait, because it may have waited through a pause of this
// process. It is 0 without a pause.
func (p *pauseDetector) grace(now time.Time) time.Duration {
	if last := p.last.Load(); last != nil && now.Sub(*last) > expiry.MaxStep {
		return wakeGrace
	}
	if until := p.until.Load(); until != nil {
		return max(0, until.Sub(now))
	}
	return 0
}
