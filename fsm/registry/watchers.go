package registry

import (
	"context"
	"sync"
)

// Selector selects changes. The zero Selector selects all.
type Selector struct {
	App string // upper case; "": every application
}

// Selects says whether changes of an instance are wanted.
func (s Selector) Selects(key Key) bool { return s.App == "" || s.App == key.App }

// Changes are what a Selector selected of the changes after an index.
type Changes struct {
	// View contains them; its Index is where to go on. It may be newer than the last of Items.
	View  *View
	Items []Change // oldest first; never empty
}

// Watchers wakes those who wait for changes: each only for what it selected. Whoever orders
// operations publishes every new view; nothing is computed while nobody waits. The zero Watchers is
// ready for use. Safe for concurrent use.
//
// Nothing of the state depends on it: it serves readers, beside the state machine.
type Watchers struct {
	mutex  sync.Mutex
	topics map[topicKey]*topic // what somebody waits for
	told   Index               // topics have been told of changes up to it
}

// topicKey is what can be waited for: changes of an application's instances ("": of all), and with nodes
// also changes of the catalog's nodes.
type topicKey struct {
	app   string
	nodes bool
}

// topic is what one or more wait for, until the next change of it.
type topic struct {
	key     topicKey
	waiting int
	woken   chan struct{} // closed at the change
	// before is set when woken is closed: nothing selected has changed up to it since the wait began.
	before Index
}

// Publish tells that view is the newest state. Calls must be in the order of the views.
func (w *Watchers) Publish(view *View) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if len(w.topics) == 0 {
		w.told = view.index
		return
	}
	// A state that was restored may be an older one, or one whose change list does not reach back.
	if view.index < w.told || view.reachesBack(w.told) != nil {
		w.wakeAll()
	}
	for c := range view.since(w.told) {
		if len(w.topics) == 0 {
			break
		}
		w.wakeChanged("", w.told)
		w.wakeChanged(c.Lease.Instance.App, w.told)
	}
	if view.CatalogIndex() > w.told {
		w.wakeNodes()
	}
	w.told = view.index
}

// wakeChanged wakes those who wait for changes of an application, alone or beside nodes.
func (w *Watchers) wakeChanged(app string, before Index) {
	w.wake(topicKey{app: app}, before)
	w.wake(topicKey{app: app, nodes: true}, before)
}

func (w *Watchers) wake(key topicKey, before Index) {
	if t, ok := w.topics[key]; ok {
		t.before = before
		close(t.woken)
		delete(w.topics, key)
	}
}

// wakeNodes wakes those who wait for changes of nodes.
func (w *Watchers) wakeNodes() {
	// Each is woken alone, in whatever order.
	for key := range w.topics {
		if key.nodes {
			w.wake(key, 0)
		}
	}
}

// wakeAll wakes everybody, without saying how far there was nothing new.
func (w *Watchers) wakeAll() {
	// Each is woken alone, in whatever order.
	for key := range w.topics {
		w.wake(key, 0)
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
		t := w.join(topicKey{app: which.App}, view.index)
		if newest().index != view.index {
			w.leave(t)
			continue
		}
		select {
		case <-t.woken:
			from = max(after, t.before)
		case <-ctx.Done():
			w.leave(t)
			return Changes{View: view}, ctx.Err()
		}
	}
}

// Join begins to wait for a change of an application (upper case; "": of any), or of any node or
// node's check. woken is closed at the first one; leave must be called, woken or not. Whoever waits
// joins first, then reads a View, and waits if that shows nothing new.
func (w *Watchers) Join(app string) (woken <-chan struct{}, leave func()) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	t := w.enter(topicKey{app: app, nodes: true})
	return t.woken, func() { w.leave(t) }
}

// join begins to wait for changes after an index: the newest there was.
func (w *Watchers) join(key topicKey, after Index) *topic {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if len(w.topics) == 0 {
		w.told = after
	}
	return w.enter(key)
}

// enter counts one more who waits. The mutex is held.
func (w *Watchers) enter(key topicKey) *topic {
	if w.topics == nil {
		w.topics = make(map[topicKey]*topic)
	}
	t, ok := w.topics[key]
	if !ok {
		t = &topic{key: key, woken: make(chan struct{})}
		w.topics[key] = t
	}
	t.waiting++
	return t
}

// leave ends a wait before it was over.
func (w *Watchers) leave(t *topic) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if t.waiting--; t.waiting == 0 && w.topics[t.key] == t {
		delete(w.topics, t.key)
	}
}
