package probe

import (
	"container/heap"
	"context"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// leading is the work of one leadership. It belongs to Run's goroutine.
type leading struct {
	p         *Prober
	epoch     registry.Epoch
	seen      registry.Index      // of the last view read
	nodes     registry.Index      // its CatalogIndex
	checks    map[ref]*check      // all that are probed
	bySubject map[subject][]ref   // the same, by subject
	waiting   schedule            // those that are not due yet
	queued    map[string][]*check // those that are due and wait for a slot of their service, by service
	running   int                 // attempts in progress
	attempts  map[string]int      // the same, by service
	finished  chan *check         // checks whose attempt has ended; never full
}

// refresh starts and stops probing so that exactly the registry's checks are probed. It applies what has changed since
// the last view read.
func (l *leading) refresh(ctx context.Context) {
	view, err := l.p.cfg.Registry.View(ctx, registry.Stale) // the leader's own state is the newest
	if err != nil {
		return
	}
	changes, err := view.ChangesOf(l.seen, registry.Selector{})
	if l.seen == 0 || err != nil { // the list does not reach back
		for o := range l.bySubject {
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
	for _, c := range changes {
		l.updateInstance(view, c.Lease.Key())
	}
	l.updateNodes(view)
	l.seen = view.Index()
	l.p.metrics.checks.Set(float64(len(l.checks)))
}

func (l *leading) updateInstance(view *registry.View, key registry.Key) {
	var checks []*catalog.Check
	var registered location
	if lease, ok := view.Find(key); ok && lease.Service != nil {
		checks, registered = lease.Service.Checks, locationOf(lease.Service, lease.Instance)
	}
	l.set(subject{key: key}, registered, checks)
}

// updateNodes updates the checks of the nodes that have changed or gone.
func (l *leading) updateNodes(view *registry.View) {
	if l.seen > 0 && view.CatalogIndex() == l.nodes {
		return
	}
	for n := range view.NodesChangedAfter(l.nodes) {
		l.set(subject{node: n.Name}, location{}, n.Checks)
	}
	for o := range l.bySubject {
		if _, present := view.Node(o.node); o.key == (registry.Key{}) && !present {
			l.set(o, location{}, nil)
		}
	}
	l.nodes = view.CatalogIndex()
}

// set replaces the probed checks of a subject.
func (l *leading) set(o subject, registered location, checks []*catalog.Check) {
	var refs []ref
	for _, c := range checks {
		if c.Probe != nil {
			refs = append(refs, ref{c.Node, c.ID})
			l.add(o, registered, c)
		}
	}
	for _, old := range l.bySubject[o] {
		if c, ok := l.checks[old]; ok && c.subject == o && !slices.Contains(refs, old) {
			l.drop(c)
		}
	}
	if l.bySubject[o] = refs; len(refs) == 0 {
		delete(l.bySubject, o)
	}
}

// add starts probing a check, unless it is already probed in the same way.
func (l *leading) add(o subject, registered location, c *catalog.Check) {
	name := ref{c.Node, c.ID}
	if old, ok := l.checks[name]; ok {
		if reflect.DeepEqual(old.probe, c.Probe) && reflect.DeepEqual(old.location, registered) {
			old.subject = o
			return
		}
		l.drop(old)
	}
	fresh := &check{ref: name, subject: o, probe: c.Probe, location: registered}
	// At a random time; otherwise all checks would run at once after each change of the leader.
	fresh.due = time.Now().Add(l.p.draw(fresh.interval()))
	l.checks[name] = fresh
	l.waiting.add(fresh)
}

// drop stops probing a check.
func (l *leading) drop(c *check) {
	delete(l.checks, c.ref)
	switch {
	case c.queuedFor != "":
		l.dequeue(c)
		return
	case c.stop == nil:
		heap.Remove(&l.waiting, c.place)
		return
	}
	c.dropped = true
	c.stop()
}

// start starts attempts at due checks, as long as there are slots.
func (l *leading) start(ctx context.Context, attempts *sync.WaitGroup) {
	for l.running < atOnce {
		c, ok := l.waiting.due(time.Now())
		if !ok {
			return
		}
		service := c.subject.service()
		if l.attempts[service] == perService {
			l.queued[service] = append(l.queued[service], c)
			c.queuedFor = service
			continue
		}
		l.running++
		l.attempts[service]++
		c.runsFor = service
		c.due = time.Now().Add(c.interval())
		running, stop := context.WithCancel(ctx)
		c.stop = stop
		attempts.Go(func() {
			defer func() { l.finished <- c }()
			l.p.run(running, c, l.epoch)
		})
	}
}

// reschedule makes a check wait until it is due again, after its attempt has ended.
func (l *leading) reschedule(c *check) {
	l.running--
	c.stop()
	c.stop = nil
	if !c.dropped {
		l.waiting.add(c)
	}
	if l.attempts[c.runsFor]--; l.attempts[c.runsFor] == 0 {
		delete(l.attempts, c.runsFor)
	}
	if queue := l.queued[c.runsFor]; len(queue) > 0 {
		first := queue[0]
		l.dequeue(first)
		l.waiting.add(first) // it was due before all that are due now
	}
}

// dequeue removes a check from the queue for a slot of its service.
func (l *leading) dequeue(c *check) {
	queue := slices.DeleteFunc(l.queued[c.queuedFor], func(other *check) bool { return other == c })
	if l.queued[c.queuedFor] = queue; len(queue) == 0 {
		delete(l.queued, c.queuedFor)
	}
	c.queuedFor = ""
}

// oldest returns when the check that has waited longest was or will be due, or nil if none waits.
func (l *leading) oldest() *time.Time {
	var oldest time.Time
	consider := func(c *check) {
		if oldest.IsZero() || c.due.Before(oldest) {
			oldest = c.due
		}
	}
	if len(l.waiting) > 0 {
		consider(l.waiting[0])
	}
	for _, queue := range l.queued {
		consider(queue[0])
	}
	if oldest.IsZero() {
		return nil
	}
	return &oldest
}
