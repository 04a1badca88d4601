package commit

import (
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Pace is how soon a call must be committed.
type Pace int

const (
	// AtOnce commits as soon as a slot is free.
	AtOnce Pace = iota
	// Gathered waits up to GatherFor for others of its kind on this node, see gather.
	Gathered
	// MayWait waits on the leader for some time after the last entry (Config.RenewalWait), unless many renewals
	// arrive. Several then share an entry, which costs as much to store for one as for hundreds (docs/adr/0028).
	// Anything that may not wait takes the waiting ones along.
	MayWait
)

const (
	// At fewRenewals a second or fewer, they wait for Config.RenewalWait. The more arrive, the shorter they wait, for
	// as many to share an entry.
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
func (c *Committer) holdBack(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.renewals.limit == 0 || len(c.calls)+len(c.proposals) == 0 {
		return false
	}
	if slices.ContainsFunc(c.calls, func(k *call) bool { return k.pace != MayWait }) ||
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
func (c *Committer) sendAside(own *batch, proposals []*proposal, e *Entry) bool {
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

func (c *Committer) returnAside() {
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
