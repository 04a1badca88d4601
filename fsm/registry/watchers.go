package registry

import (
	"context"
	"sync"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Watchers wakes readers that wait for changes, each only for what it selected. The store that orders
// operations publishes every new view; nothing is computed while no reader waits. The zero Watchers is
// ready for use. Safe for concurrent use.
//
// Nothing of the state depends on it: it serves readers, beside the state machine.
type Watchers struct {
	mutex     sync.Mutex
	waiters   order.Waiters[topic]
	published Index // waiters were woken for the changes up to it
}

// topic is what can be waited for: changes of an application's instances ("": of all), and with nodes
// also changes of the catalog's nodes.
type topic struct {
	app   string
	nodes bool
}

// Publish makes view the newest state, and wakes the readers for whom something changed. Calls must be in the order of the views.
func (w *Watchers) Publish(view *View) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.waiters.Len() == 0 {
		w.published = view.index
		return
	}
	// A state that was restored may be an older one, or one whose change list does not reach back.
	if view.index < w.published || view.reachesBack(w.published) != nil {
		w.wakeTopics(func(topic) bool { return true })
	}
	for c := range view.since(w.published) {
		if w.waiters.Len() == 0 {
			break
		}
		w.wakeChanged("", w.published)
		w.wakeChanged(c.Lease.Instance.App, w.published)
	}
	if view.CatalogIndex() > w.published {
		w.wakeTopics(func(t topic) bool { return t.nodes })
	}
	w.published = view.index
}

// wakeChanged wakes the readers that wait for changes of an application, alone or beside nodes.
func (w *Watchers) wakeChanged(app string, before Index) {
	w.waiters.Wake(topic{app: app}, before)
	w.waiters.Wake(topic{app: app, nodes: true}, before)
}

// wakeTopics wakes the readers of some topics, without saying up to which index there was nothing new.
func (w *Watchers) wakeTopics(which func(topic) bool) {
	for t := range w.waiters.Topics {
		if which(t) {
			w.waiters.Wake(t, 0)
		}
	}
}

// Await is Service.Changes for a state whose newest view newest returns, at least as new as the last
// one published. With the context's error it returns a View up to whose Index nothing was selected,
// without Items.
func (w *Watchers) Await(ctx context.Context, newest func() *View, after Index, which Selector) (Changes, error) {
	from := after
	for {
		view := newest()
		items, err := view.ChangesOf(from, which)
		if err != nil || len(items) > 0 {
			return Changes{View: view, Items: items}, err
		}
		wait := w.startWaiting(topic{app: which.App}, view.index)
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

// Join begins to wait for a change of an application (upper case; "": of any), or of any node or
// node's check. woken is closed at the first one; leave must be called, woken or not. A reader that waits
// joins first, then reads a View, and waits if that shows nothing new.
func (w *Watchers) Join(app string) (woken <-chan struct{}, leave func()) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	wait, _ := w.waiters.Join(topic{app: app, nodes: true})
	return wait.Woken(), func() { w.stopWaiting(wait) }
}

// startWaiting begins to wait for changes after an index: the newest there was.
func (w *Watchers) startWaiting(t topic, after Index) *order.Wait[topic] {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.waiters.Len() == 0 {
		w.published = after
	}
	wait, _ := w.waiters.Join(t)
	return wait
}

// stopWaiting ends a wait, woken or not.
func (w *Watchers) stopWaiting(wait *order.Wait[topic]) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.waiters.Leave(wait)
}
