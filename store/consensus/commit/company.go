package commit

import (
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Pace is how soon a call is to be committed.
type Pace int

const (
	// AtOnce is as soon as a slot is free.
	AtOnce Pace = iota
	// Gathered waits up to GatherFor for others of its kind on this node, see gather.
	Gathered
	// MayWait waits on the leader, unless many renewals come, until some time after the last entry (Config.RenewalWait): several
	// share an entry then, which costs as much to store for one as for hundreds (docs/adr/0028). Anything that may not wait
	// takes along what waits.
	MayWait
)

const (
	// fewRenewals in a second, or fewer, wait for Config.RenewalWait. The more come, the shorter they wait: as many share an
	// entry.
	fewRenewals = 500
	// manyRenewals in a second find company without waiting for it.
	manyRenewals = 8000
	// waitingBatches is how many batches of renewals that may wait a follower has at the leader at a time. They hold no slot, so that
	// no write waits behind them. Of one whose response is lost while more batches follow than the state machine remembers
	// (store.Config), the outcome stays unknown, and its clients send again.
	waitingBatches = 24
)

// company is what a committer knows of renewals that may wait. The committer's mu guards it.
type company struct {
	limit   time.Duration // how long they wait after the last entry while few come; 0: not at all
	newest  time.Time     // when this node last proposed an entry of its committer
	alarmed bool          // a timer will wake the committer
	away    int           // batches at the leader that may wait there

	second time.Time // the beginning of the present one
	now    int       // renewals that came in it
	before int       // and in the one before it
}

// count counts renewals that this node, the leader, was asked for.
func (k *company) count(renewals int, now time.Time) {
	switch since := now.Sub(k.second); {
	case since >= 2*time.Second:
		k.second, k.before, k.now = now, 0, 0
	case since >= time.Second:
		k.second, k.before, k.now = k.second.Add(time.Second), k.now, 0
	}
	k.now += renewals
}

// wait is for how long after the last entry renewals wait now.
func (k *company) wait(now time.Time) time.Duration {
	k.count(0, now)
	rate := max(k.now, k.before, fewRenewals)
	if rate >= manyRenewals {
		return 0
	}
	return k.limit * fewRenewals / time.Duration(rate)
}

// holdBack says whether what is queued has yet to wait, and has the committer woken when it has waited. On a follower it waits only
// while there is much of it at the leader; the end of the next one of these batches wakes the committer.
func (c *Committer) holdBack(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.company.limit == 0 || len(c.calls)+len(c.proposals) == 0 || !c.onlyWhatMayWait() {
		return false
	}
	if c.cfg.Leadership.Own() == nil {
		return c.company.away >= waitingBatches
	}
	left := c.company.wait(now) - now.Sub(c.company.newest)
	if left <= 0 {
		return false
	}
	if !c.company.alarmed {
		c.company.alarmed = true
		time.AfterFunc(left, c.endWait)
	}
	return true
}

// onlyWhatMayWait says that nothing in the queue is to be committed at once. The caller holds mu.
func (c *Committer) onlyWhatMayWait() bool {
	return !slices.ContainsFunc(c.calls, func(k *call) bool { return k.pace != MayWait }) &&
		!slices.ContainsFunc(c.proposals, func(p *proposal) bool { return !p.mayWait })
}

func (c *Committer) endWait() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.company.alarmed = false
	c.signal()
}

// sendAside says whether a batch goes to the leader beside the slots, because it may wait there. returnAside must follow.
func (c *Committer) sendAside(own *batch, proposals []*proposal, e *Entry) bool {
	if e != nil || own == nil || !own.mayWait || len(proposals) > 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.company.away >= waitingBatches {
		return false
	}
	c.company.away++
	return true
}

func (c *Committer) returnAside() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.company.away--
	c.signal()
}

// renewalsIn is how many of the items are renewals of instances.
func renewalsIn(items []fsm.Item) (n int) {
	for i := range items {
		if _, renews := items[i].Op.(registry.Renew); renews {
			n++
		}
	}
	return n
}
