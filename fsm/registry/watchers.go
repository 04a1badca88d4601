package registry

import "context"

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
type Watchers struct {
}

// Publish tells that view is the newest state. Calls must be in the order of the views.
func (w *Watchers) Publish(view *View) {}

// Await is Service.Changes for a state whose newest view newest returns: views published before the
// call are seen.
func (w *Watchers) Await(ctx context.Context, newest func() *View, after Index, which Selector) (Changes, error) {
	panic("not written")
}
