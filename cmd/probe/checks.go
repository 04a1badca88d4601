package probe

import (
	"container/heap"
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// ref names a check.
type ref struct{ node, id string }

// owner is what checks belong to: an instance, or (no key) a node.
type owner struct {
	key  registry.Key
	node string
}

// service is whose share of the places an attempt takes.
func (o owner) service() string {
	if o.key == (registry.Key{}) {
		return "node " + o.node
	}
	return "service " + o.key.App
}

// check is a check that is probed. While an attempt runs, its tally belongs to the attempt.
type check struct {
	ref
	owner   owner
	probe   *catalog.Probe
	own     own    // what its service registered
	held    string // it is due, and waits for a place of this service; "": it does not
	runs    string // the service whose place the attempt that runs takes
	due     time.Time
	place   int                // in the schedule, if no attempt runs
	stop    context.CancelFunc // ends the attempt that runs; nil: none does
	dropped bool               // the attempt that runs is the last
	tally   tally
}

// interval is the time from one attempt to the next, and timeout the longest that one takes: what the
// check says, but no longer than the interval and maxTimeout.
func (c *check) interval() time.Duration {
	return max(time.Duration(c.probe.Interval)*time.Millisecond, minInterval)
}

func (c *check) timeout() time.Duration {
	timeout := defaultTimeout
	if c.probe.Timeout > 0 {
		// Compared in ms: what a client may ask for does not fit into a Duration.
		timeout = time.Duration(min(c.probe.Timeout, maxTimeout.Milliseconds())) * time.Millisecond
	}
	return min(timeout, c.interval(), maxTimeout)
}

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
func (t *tally) judge(p *catalog.Probe, present, found catalog.CheckStatus) (status catalog.CheckStatus, settled bool) {
	if found != catalog.Critical {
		t.successes, t.failures = t.successes+1, 0
		return found, t.successes >= p.SuccessBeforePassing
	}
	t.successes, t.failures = 0, t.failures+1
	warns := p.FailuresBeforeWarning
	if warns == 0 {
		warns = p.FailuresBeforeCritical
	}
	switch {
	case present == catalog.Critical, t.failures >= p.FailuresBeforeCritical:
		return catalog.Critical, true
	case t.failures >= warns:
		return catalog.Warning, true
	}
	return present, false
}

// news says whether the registry must be told of a result that is settled. The output of a check that
// passes is as it was when it began to.
func (t *tally) news(present *catalog.Check, r result, now time.Time) bool {
	if r.status != present.Status {
		return true
	}
	return r.status != catalog.Passing && r.output != present.Output && now.Sub(t.told) >= outputPause
}

const (
	// atOnce is how many attempts run at a time: services that hang cost their time-out each.
	atOnce = 100
	// perService is how many of them may be those of one service (or node), so that one whose checks all
	// hang does not keep the others from being looked at.
	perService = 10
	// minInterval is the shortest interval, as in Consul's agent.
	minInterval = time.Second
	// defaultTimeout is the time-out of a probe that has none.
	defaultTimeout = 10 * time.Second
	// maxTimeout is the longest time-out: an attempt keeps its place for so long.
	maxTimeout = 30 * time.Second
	// lookPause is the shortest time between two looks at the registry, which may change by the thousand.
	lookPause = 100 * time.Millisecond
)
