package probe

import (
	"container/heap"
	"context"
	"reflect"
	"slices"
	"time"

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
	probe   *registry.Probe
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

// update takes over what the registry has now.
func (l *leading) update(view *registry.View) {
	changes, err := view.ChangesOf(l.seen, registry.Selector{})
	if l.seen == 0 || err != nil { // the list does not reach back
		l.updateAll(view)
	}
	for _, c := range changes {
		l.updateInstance(view, c.Lease.Key())
	}
	l.updateNodes(view)
	l.seen = view.Index()
	l.p.metrics.checks.Set(float64(len(l.checks)))
}

func (l *leading) updateAll(view *registry.View) {
	for o := range l.owned {
		if o.key != (registry.Key{}) {
			l.updateInstance(view, o.key)
		}
	}
	for lease := range view.All() {
		if lease.Service != nil {
			l.updateInstance(view, lease.Key())
		}
	}
}

func (l *leading) updateInstance(view *registry.View, key registry.Key) {
	var checks []*registry.Check
	var registered own
	if lease, ok := view.Find(key); ok && lease.Service != nil {
		checks, registered = lease.Service.Checks, ownOf(lease.Service, lease.Instance)
	}
	l.set(owner{key: key}, registered, checks)
}

// updateNodes looks at all nodes, of which there are few, if one of them has changed.
func (l *leading) updateNodes(view *registry.View) {
	if l.seen > 0 && view.CatalogIndex() == l.nodes {
		return
	}
	l.nodes = view.CatalogIndex()
	there := map[string]bool{}
	for n := range view.Nodes() {
		there[n.Name] = true
		l.set(owner{node: n.Name}, own{}, n.Checks)
	}
	for o := range l.owned {
		if o.key == (registry.Key{}) && !there[o.node] {
			l.set(o, own{}, nil)
		}
	}
}

// set makes the checks of an owner those that are probed.
func (l *leading) set(o owner, registered own, checks []*registry.Check) {
	var refs []ref
	for _, c := range checks {
		if c.Probe != nil {
			refs = append(refs, ref{c.Node, c.ID})
			l.put(o, registered, c)
		}
	}
	for _, old := range l.owned[o] {
		if c, ok := l.checks[old]; ok && c.owner == o && !slices.Contains(refs, old) {
			l.drop(c)
		}
	}
	if l.owned[o] = refs; len(refs) == 0 {
		delete(l.owned, o)
	}
}

// put begins to probe a check; one that is probed in the same way already goes on.
func (l *leading) put(o owner, registered own, c *registry.Check) {
	name := ref{c.Node, c.ID}
	if old, ok := l.checks[name]; ok {
		if reflect.DeepEqual(old.probe, c.Probe) && reflect.DeepEqual(old.own, registered) {
			old.owner = o
			return
		}
		l.drop(old)
	}
	fresh := &check{ref: name, owner: o, probe: c.Probe, own: registered}
	// At a random time, or all checks would run at once whenever a node begins to lead.
	fresh.due = time.Now().Add(l.p.draw(fresh.interval()))
	l.checks[name] = fresh
	l.waiting.add(fresh)
}

func (l *leading) drop(c *check) {
	delete(l.checks, c.ref)
	switch {
	case c.held != "":
		l.unhold(c)
		return
	case c.stop == nil:
		l.waiting.remove(c)
		return
	}
	c.dropped = true
	c.stop()
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
