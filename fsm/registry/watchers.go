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
	topics map[string]*topic // what somebody waits for, by application; "": all
	told   Index             // topics have been told of changes up to it
}

// topic is what one or more wait for, until the next change of it.
type topic struct {
	app     string
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
		w.wake("", w.told)
		w.wake(c.Lease.Instance.App, w.told)
	}
	w.told = view.index
}

func (w *Watchers) wake(app string, before Index) {
	if t, ok := w.topics[app]; ok {
		t.before = before
		close(t.woken)
		delete(w.topics, app)
	}
}

// wakeAll wakes everybody, without saying how far there was nothing new.
func (w *Watchers) wakeAll() {
	// Each is woken alone, in whatever order.
	for app := range w.topics {
		w.wake(app, 0)
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
		t := w.join(which.App, view.index)
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

// join begins to wait for changes of an application after an index: the newest there was.
func (w *Watchers) join(app string, after Index) *topic {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if len(w.topics) == 0 {
		w.topics, w.told = make(map[string]*topic), after
	}
	t, ok := w.topics[app]
	if !ok {
		t = &topic{app: app, woken: make(chan struct{})}
		w.topics[app] = t
	}
	t.waiting++
	return t
}

// leave ends a wait before it was over.
func (w *Watchers) leave(t *topic) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if t.waiting--; t.waiting == 0 && w.topics[t.app] == t {
		delete(w.topics, t.app)
	}
}
