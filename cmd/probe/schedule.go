package probe

import (
	"container/heap"
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// schedule is the checks that wait for their time, the first of them on top.
type schedule []*check

// add puts a check in.
func (s *schedule) add(c *check) { heap.Push(s, c) }

// remove takes a check out that is in.
func (s *schedule) remove(c *check) { heap.Remove(s, c.place) }

// due takes out the first check if its time has come.
func (s *schedule) due(now time.Time) (*check, bool) {
	if len(*s) == 0 || (*s)[0].due.After(now) {
		return nil, false
	}
	return heap.Pop(s).(*check), true
}

// Len implements heap.Interface.
func (s schedule) Len() int { return len(s) }

// Less implements heap.Interface.
func (s schedule) Less(i, j int) bool { return s[i].due.Before(s[j].due) }

// Swap implements heap.Interface.
func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].place, s[j].place = i, j
}

// Push implements heap.Interface.
func (s *schedule) Push(x any) {
	c := x.(*check)
	c.place = len(*s)
	*s = append(*s, c)
}

// Pop implements heap.Interface.
func (s *schedule) Pop() any {
	last := len(*s) - 1
	c := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	return c
}

// run makes one attempt at a check, and tells the registry if that changed its state.
func (p *Prober) run(ctx context.Context, c *check, epoch registry.Epoch) {
	limited, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	found := p.attempt(limited, c.probe, c.own)
	if ctx.Err() != nil {
		return // the attempt was ended, and says nothing of the service
	}
	p.metrics.count(c.probe, found.status)
	view, err := p.cfg.Registry.View(ctx, registry.Stale)
	if err != nil {
		return
	}
	present, ok := view.CheckOn(c.node, c.id)
	if !ok {
		return
	}
	status, settled := c.tally.judge(c.probe, present.Status, found.status)
	found.status = status
	if now := time.Now(); settled && c.tally.news(present, found, now) && p.tell(ctx, c.ref, found, epoch) {
		c.tally.told = now
	}
}

// tell has the registry set a check. If that fails the next attempt comes to the same result.
func (p *Prober) tell(ctx context.Context, c ref, r result, epoch registry.Epoch) bool {
	_, err := p.cfg.Registry.Apply(ctx, registry.FromClient, registry.SetCheck{
		Node: c.node, Check: c.id, Status: r.status, Output: r.output, Epoch: epoch,
	})
	if err != nil && ctx.Err() == nil && !p.failing.Swap(true) {
		p.cfg.Log.Warn("the result of a check was not committed", "node", c.node, "check", c.id, "err", err)
	}
	if err == nil {
		p.failing.Store(false)
	}
	return err == nil
}

// outputPause is the shortest time between two outputs of a state that stays the same. Bodies hold times
// and counters, and each that is told is a log entry which wakes readers.
const outputPause = time.Minute

// tally counts a check's results in a row.
type tally struct {
	successes, failures int32
	told                time.Time // the newest output
}

// judge counts a result and returns the state that follows from it. It is not settled before as many
// results in a row as the probe asks for say the same. A failure never makes a state better.
func (t *tally) judge(p *registry.Probe, present, found registry.CheckStatus) (status registry.CheckStatus, settled bool) {
	if found != registry.Critical {
		t.successes, t.failures = t.successes+1, 0
		return found, t.successes >= p.SuccessBeforePassing
	}
	t.successes, t.failures = 0, t.failures+1
	warns := p.FailuresBeforeWarning
	if warns == 0 {
		warns = p.FailuresBeforeCritical
	}
	switch {
	case present == registry.Critical, t.failures >= p.FailuresBeforeCritical:
		return registry.Critical, true
	case t.failures >= warns:
		return registry.Warning, true
	}
	return present, false
}

// news says whether the registry must be told of a result that is settled. The output of a check that
// passes is as it was when it began to.
func (t *tally) news(present *registry.Check, r result, now time.Time) bool {
	if r.status != present.Status {
		return true
	}
	return r.status != registry.Passing && r.output != present.Output && now.Sub(t.told) >= outputPause
}
