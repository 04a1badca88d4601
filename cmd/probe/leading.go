package probe

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

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
	var checks []*catalog.Check
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
func (l *leading) set(o owner, registered own, checks []*catalog.Check) {
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
func (l *leading) put(o owner, registered own, c *catalog.Check) {
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

// leading is the work of one leadership. It belongs to Run's goroutine.
type leading struct {
	p       *Prober
	epoch   registry.Epoch
	seen    registry.Index      // of the view that was looked at last
	nodes   registry.Index      // its CatalogIndex
	checks  map[ref]*check      // all that are probed
	owned   map[owner][]ref     // and of what
	waiting schedule            // those of which no attempt runs
	running int                 // attempts
	of      map[string]int      // them by service
	held    map[string][]*check // those that are due and wait for a place of their service
	ended   chan *check         // an attempt of it has; never full
}

func (l *leading) look(ctx context.Context) {
	if view, err := l.p.cfg.Registry.View(ctx, registry.Stale); err == nil { // the leader's own state is the newest
		l.update(view)
	}
}

// start runs what is due.
func (l *leading) start(ctx context.Context, attempts *sync.WaitGroup) {
	for l.running < atOnce {
		c, ok := l.waiting.due(time.Now())
		if !ok {
			return
		}
		service := c.owner.service()
		if l.of[service] == perService {
			l.held[service] = append(l.held[service], c)
			c.held = service
			continue
		}
		l.running++
		l.of[service]++
		c.runs = service
		c.due = time.Now().Add(c.interval())
		running, stop := context.WithCancel(ctx)
		c.stop = stop
		attempts.Go(func() {
			defer func() { l.ended <- c }()
			l.p.run(running, c, l.epoch)
		})
	}
}

// again makes a check wait for its next time, once its attempt has ended.
func (l *leading) again(c *check) {
	l.running--
	c.stop()
	c.stop = nil
	if !c.dropped {
		l.waiting.add(c)
	}
	if l.of[c.runs]--; l.of[c.runs] == 0 {
		delete(l.of, c.runs)
	}
	if held := l.held[c.runs]; len(held) > 0 {
		first := held[0]
		l.unhold(first)
		l.waiting.add(first) // it was due before what is due now
	}
}

// unhold takes out a check that waits for a place of its service.
func (l *leading) unhold(c *check) {
	held := slices.DeleteFunc(l.held[c.held], func(other *check) bool { return other == c })
	if l.held[c.held] = held; len(held) == 0 {
		delete(l.held, c.held)
	}
	c.held = ""
}

// oldest is when the check was or will be due that has waited longest, in ns of Unix time; 0: none waits.
func (l *leading) oldest() int64 {
	var oldest time.Time
	consider := func(c *check) {
		if oldest.IsZero() || c.due.Before(oldest) {
			oldest = c.due
		}
	}
	if len(l.waiting) > 0 {
		consider(l.waiting[0])
	}
	for _, held := range l.held {
		consider(held[0])
	}
	if oldest.IsZero() {
		return 0
	}
	return oldest.UnixNano()
}

// pause is the time until something is due. While no further attempt may run that is not asked.
func (l *leading) pause() time.Duration {
	if len(l.waiting) == 0 || l.running == atOnce {
		return time.Hour
	}
	return max(time.Until(l.waiting[0].due), 0)
}
