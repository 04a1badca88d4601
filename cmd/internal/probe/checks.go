package probe

import (
	"cmp"
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// ref names a check.
type ref struct{ node, id string }

// subject is what a check is about: an instance, or, without a key, a node.
type subject struct {
	key  registry.Key
	node string
}

// service names the service, or the node, whose share of the slots an attempt uses.
func (s subject) service() string {
	if s.key == (registry.Key{}) {
		return "node " + s.node
	}
	return "service " + s.key.App
}

// check is a check that is probed. It waits in the schedule, is queued for a slot of its service, or has an attempt
// in progress, which then owns its tally.
type check struct {
	ref
	subject   subject
	probe     *catalog.Probe
	location  location // that its service registered
	due       time.Time
	place     int                // in the schedule, while it waits there
	queuedFor string             // the service for whose slot the check is queued; "" if it is not queued
	runsFor   string             // the service in whose share the current attempt counts
	stop      context.CancelFunc // ends the current attempt; nil if there is none
	dropped   bool               // the current attempt is the last
	warn      sync.Once          // about a future refusal
	tally     tally
}

// interval returns the time from one attempt to the next.
func (c *check) interval() time.Duration {
	return max(time.Duration(c.probe.Interval)*time.Millisecond, minInterval)
}

// timeout returns the longest time of an attempt: the check's own, but at most the interval and maxTimeout.
func (c *check) timeout() time.Duration {
	timeout := defaultTimeout
	if c.probe.Timeout > 0 {
		// Compared in ms, because what a client may ask for does not fit into a Duration.
		timeout = time.Duration(min(c.probe.Timeout, maxTimeout.Milliseconds())) * time.Millisecond
	}
	return min(timeout, c.interval(), maxTimeout)
}

// schedule holds the checks that wait until they are due, the first of them on top.
type schedule []*check

// add inserts a check.
func (s *schedule) add(c *check) { heap.Push(s, c) }

// due removes and returns the first check if it is due.
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

// outputPause is the shortest time between two outputs that are set while the state stays the same. Bodies hold times
// and counters, and each output that is set is an entry in the log, which wakes readers.
const outputPause = time.Minute

// tally counts a check's results in a row.
type tally struct {
	successes, failures int32
	setAt               time.Time // when the registry's output was last set
}

// count counts a result and returns the resulting state. The very first result, before which a check has no output,
// decides at once, as in Consul's agents. After it a state is decided once as many results in a row agree as the
// probe asks for. A failure never improves a state.
func (t *tally) count(p *catalog.Probe, of *catalog.Check, found catalog.CheckStatus) (status catalog.CheckStatus, decided bool) {
	present, first := of.Status, of.Output == ""
	if found != catalog.Critical {
		t.successes, t.failures = t.successes+1, 0
		return found, first || t.successes >= p.SuccessBeforePassing
	}
	t.successes, t.failures = 0, t.failures+1
	switch {
	case first, present == catalog.Critical, t.failures >= p.FailuresBeforeCritical:
		return catalog.Critical, true
	case t.failures >= cmp.Or(p.FailuresBeforeWarning, p.FailuresBeforeCritical):
		return catalog.Warning, true
	}
	return present, false
}

// mustSet reports whether the check must be set to a decided result. A check that passes keeps the output of its
// first success.
func (t *tally) mustSet(present *catalog.Check, r result, now time.Time) bool {
	if r.status != present.Status || present.Output == "" && r.output != "" {
		return true
	}
	return r.status != catalog.Passing && r.output != present.Output && now.Sub(t.setAt) >= outputPause
}

const (
	// atOnce is how many attempts run at a time. An attempt at a service that hangs keeps its slot until its
	// time-out.
	atOnce = 100
	// perService is how many of them may be at one service (or node), so that a service whose checks all hang leaves
	// slots to the others.
	perService = 10
	// minInterval is the shortest interval, as in Consul's agent.
	minInterval = time.Second
	// defaultTimeout is the time-out of a probe that gives none.
	defaultTimeout = 10 * time.Second
	// maxTimeout is the longest time-out, because an attempt keeps its slot for that long.
	maxTimeout = 30 * time.Second
	// refreshPause is the shortest time between two reads of the registry, which may change thousands of times
	// a second.
	refreshPause = 100 * time.Millisecond
)
