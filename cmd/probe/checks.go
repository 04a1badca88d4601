package probe

import (
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
