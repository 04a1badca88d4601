package consensus

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

const (
	// At fewRenewals a second or fewer, they wait for committerConfig.RenewalWait. The more arrive, the shorter they
	// wait, for as many to share an entry.
	fewRenewals = 500
	// At manyRenewals a second, enough share an entry without waiting.
	manyRenewals = 8000
	// waitingBatches is how many batches of waiting renewals a follower has at the leader at a time. They hold no
	// slot, so no write waits behind them. If the response to one is lost, and more batches follow than the state
	// machine remembers (store.Config), its outcome stays unknown, and its clients send again.
	waitingBatches = 24
)

// renewalDelay decides how long renewals wait to share an entry. The committer's mu guards it.
type renewalDelay struct {
	limit    time.Duration // wait after the last entry while few arrive; 0 disables it
	newest   time.Time     // when this node last proposed an entry of its committer
	timerSet bool          // a timer will wake the committer
	atLeader int           // batches waiting at the leader

	second     time.Time // start of the current second
	thisSecond int       // renewals in the current second
	lastSecond int       // renewals in the second before
}

// count counts renewals that reached this node as the leader.
func (k *renewalDelay) count(renewals int, now time.Time) {
	switch since := now.Sub(k.second); {
	case since >= 2*time.Second:
		k.second, k.lastSecond, k.thisSecond = now, 0, 0
	case since >= time.Second:
		k.second, k.lastSecond, k.thisSecond = k.second.Add(time.Second), k.thisSecond, 0
	}
	k.thisSecond += renewals
}

// wait returns how long after the last entry renewals wait at present.
func (k *renewalDelay) wait(now time.Time) time.Duration {
	k.count(0, now)
	rate := max(k.thisSecond, k.lastSecond, fewRenewals)
	if rate >= manyRenewals {
		return 0
	}
	return k.limit * fewRenewals / time.Duration(rate)
}

// holdBack reports whether what is queued must wait longer, and arranges for the committer to be woken. On a follower
// it waits only while many of its batches are at the leader; the next of these to finish wakes the committer.
func (c *committer) holdBack(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.renewals.limit == 0 || len(c.calls)+len(c.proposals) == 0 {
		return false
	}
	if slices.ContainsFunc(c.calls, func(k *call) bool { return k.pace != mayWait }) ||
		slices.ContainsFunc(c.proposals, func(p *proposal) bool { return !p.mayWait }) {
		return false // something must be committed at once
	}
	if c.cfg.Leadership.Own() == nil {
		return c.renewals.atLeader >= waitingBatches
	}
	left := c.renewals.wait(now) - now.Sub(c.renewals.newest)
	if left <= 0 {
		return false
	}
	if !c.renewals.timerSet {
		c.renewals.timerSet = true
		time.AfterFunc(left, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.renewals.timerSet = false
			c.signal()
		})
	}
	return true
}

// sendAside reports whether a batch goes to the leader without a slot, because it may wait there. returnAside must
// follow.
func (c *committer) sendAside(own *batch, proposals []*proposal, e *entry) bool {
	if e != nil || own == nil || !own.mayWait || len(proposals) > 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.renewals.atLeader >= waitingBatches {
		return false
	}
	c.renewals.atLeader++
	return true
}

func (c *committer) returnAside() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.renewals.atLeader--
	c.signal()
}

// renewalsIn counts the renewals of instances among the items.
func renewalsIn(items []fsm.Item) (n int) {
	for i := range items {
		if _, renews := items[i].Op.(registry.Renew); renews {
			n++
		}
	}
	return n
}

// gatherFor is the longest that a renewal waits for others. Sessions are renewed by the thousand, each on its own and
// long before it expires. Committed as they come, they would keep the log busy with entries of one or two. Only
// renewals wait: a write must not (see committer).
const gatherFor = 100 * time.Millisecond

// gatherMost renewals are enough to stop waiting. Beyond 1,280 a second no renewal waits the full time; 10,000
// sessions that are renewed every 10 s send 1,000.
const gatherMost = 128

// gather commits what may wait for others. The first one to arrive starts the timer.
func (c *committer) gather(ctx context.Context, arrived time.Time, items []fsm.Item, size int, _ pace) (fsm.Results, error) {
	if c.patience == 0 {
		return c.commit(ctx, arrived, items, size, atOnce)
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
func (c *committer) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.gathered) > 0 { // otherwise they went sooner, or the committer is closed
		c.releaseGathered()
	}
}

// releaseGathered is release for a caller that holds mu.
func (c *committer) releaseGathered() {
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
