package registry

import (
	"context"
	"sync"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Watchers wakes readers that wait for changes, each only for what it selected. The store that orders operations
// publishes every new view; nothing is computed while no reader waits. The zero Watchers is ready for use. Safe for
// concurrent use.
//
// The state does not depend on it: it serves readers, beside the state machine.
type Watchers struct {
	mutex     sync.Mutex
	waiters   order.Waiters[Topic]
	published Index // waiters were woken for all changes up to it
}

// wholeTopics are the topics whose last change a View knows without a search.
var wholeTopics = []Topic{
	{Kind: AllTopic}, {Kind: ServicesTopic}, {Kind: ServicesByNodeTopic}, {Kind: NodesTopic}, {Kind: ChecksTopic},
	{Kind: NodeTopic}, {Kind: NodeChecksTopic}, // of the logical node
}

// Publish makes view the newest state, and wakes the readers that wait for its changes. Call it in the order of the
// views.
func (w *Watchers) Publish(view *View) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.waiters.Len() == 0 {
		w.published = view.index
		return
	}
	// A restored state may be an older one, or one whose change list does not reach back.
	if view.index < w.published || view.reachesBack(w.published) != nil {
		w.wakeTopics(func(Topic) bool { return true })
	}
	for c := range view.since(w.published) {
		if w.waiters.Len() == 0 {
			break
		}
		w.wakeInstance(c)
	}
	for n := range view.NodesChangedAfter(w.published) {
		w.wakeNode(view, n)
	}
	for _, t := range wholeTopics {
		if at, _ := view.LastChange(t); at > w.published {
			w.waiters.Wake(t, w.published)
		}
	}
	if view.tables.parts.Nodes > w.published { // a removed node is not among the changed ones
		w.wakeTopics(func(t Topic) bool {
			_, known := view.Node(t.Name)
			return !known && (t.Kind == NodeTopic || t.Kind == NodeChecksTopic)
		})
	}
	w.published = view.index
}

// wakeInstance wakes the readers that wait for changes of an instance, its service, or the node where it is. If it
// left a node, that node has changed itself.
func (w *Watchers) wakeInstance(c Change) {
	app := c.Lease.Instance.App
	node, _ := c.Lease.node()
	w.waiters.Wake(Topic{}, w.published)
	w.waiters.Wake(Topic{Name: app}, w.published)
	w.waiters.Wake(Topic{Kind: HealthTopic, Name: app}, w.published)
	w.waiters.Wake(Topic{Kind: NodeChecksTopic, Name: node}, w.published)
	if c.Lease.EvictedAt > 0 || c.Lease.Defined > w.published {
		w.waiters.Wake(Topic{Kind: ServiceTopic, Name: app}, w.published)
		w.waiters.Wake(Topic{Kind: NodeTopic, Name: node}, w.published)
	}
}

// wakeNode wakes the readers that wait for changes of a node, or of a service on it. If it has more services than
// there are readers, all readers of services are woken to look for themselves.
func (w *Watchers) wakeNode(view *View, n *catalog.Node) {
	w.waiters.Wake(Topic{Kind: NodeTopic, Name: n.Name}, w.published)
	w.waiters.Wake(Topic{Kind: NodeChecksTopic, Name: n.Name}, w.published)
	registered := n.ModifyIndex > w.published
	if !registered && n.ChecksChanged <= w.published {
		return
	}
	left := w.waiters.Len()
	for key := range view.tables.catalog.EachServiceOn(n.Name) {
		w.waiters.Wake(Topic{Kind: HealthTopic, Name: key.App}, w.published)
		if registered {
			w.waiters.Wake(Topic{Kind: ServiceTopic, Name: key.App}, w.published)
		}
		if left--; left <= 0 {
			break
		}
	}
	if left <= 0 || n.Name == "" { // the logical node also has Eureka's instances
		w.wakeTopics(func(t Topic) bool { return t.Kind == HealthTopic || registered && t.Kind == ServiceTopic })
	}
}

// wakeTopics wakes the readers of some topics, without saying up to which index nothing was new.
func (w *Watchers) wakeTopics(which func(Topic) bool) {
	for t := range w.waiters.Topics {
		if which(t) {
			w.waiters.Wake(t, 0)
		}
	}
}

// Await implements Service.Changes for a state whose newest view newest returns, at least as new as the last one
// published. With the context's error it returns a View without Items, up to whose Index nothing was selected.
func (w *Watchers) Await(ctx context.Context, newest func() *View, after Index, which Selector) (Changes, error) {
	from := after
	for {
		view := newest()
		items, err := view.ChangesOf(from, which)
		if err != nil || len(items) > 0 {
			return Changes{View: view, Items: items}, err
		}
		wait := w.startWaiting(Topic{Name: which.App}, view.index)
		if newest().index != view.index {
			w.stopWaiting(wait)
			continue
		}
		select {
		case <-wait.Woken():
			from = max(after, wait.Before())
		case <-ctx.Done():
			w.stopWaiting(wait)
			return Changes{View: view}, ctx.Err()
		}
	}
}

// Join begins to wait for a change of a topic. woken is closed at the first one; leave must be called, woken or not.
// A reader first joins, then reads a View, and waits if its LastChange shows nothing new. Rarely, it is woken for
// nothing.
func (w *Watchers) Join(t Topic) (woken <-chan struct{}, leave func()) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	wait, _ := w.waiters.Join(t)
	return wait.Woken(), func() { w.stopWaiting(wait) }
}

// startWaiting begins to wait for changes after an index: the newest there was.
func (w *Watchers) startWaiting(t Topic, after Index) *order.Wait[Topic] {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.waiters.Len() == 0 {
		w.published = after
	}
	wait, _ := w.waiters.Join(t)
	return wait
}

// stopWaiting ends a wait, woken or not.
func (w *Watchers) stopWaiting(wait *order.Wait[Topic]) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.waiters.Leave(wait)
}
