package replication

import (
	"sync"

	"github.com/seed-20419f34/rollcall/fsm/order"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// everything is the first change of a task that belongs to a repair without a known cursor: as if it held every
// change there ever was. If such a task is given up, the cursor is unknown again.
const everything registry.Index = 1

// cursor knows how far a peer is along the change list: what was read, and which changes are in tasks that were not
// transmitted yet. A task that is given up sets the reading back to before it.
//
// Reading the list once is not enough. An instance stands in it at its last change, so one that was changed at 5 and
// again at 9 is found only at 9, and a reader that has come to 7 has not seen the change at 5. So a change counts as
// read when the reader has caught up with the newest state. Until then a feed that starts anew reads from where this
// one started.
type cursor struct {
	mu      sync.Mutex
	known   bool
	place   place
	rewinds int // how often a task that was given up set place back
	waiting order.Map[registry.Index, waiting]
}

// place is how far the change list was read.
type place struct {
	after registry.Index // every change up to it was read; newer ones are to be sent
	upto  registry.Index // elements of the list up to it were read since
	// clock is the lease clock (ms) when everything up to after was read: lives that started later are new to the
	// peer. It is 0 if not known.
	clock   int64
	rewinds int
}

// waiting is a change in a task that was not transmitted yet.
type waiting struct {
	tasks int   // tasks whose first change it is
	since int64 // lease clock of the change, ms
}

// newCursor starts from what is known of the peer; known is false if nothing is.
func newCursor(at registry.Index, known bool) *cursor {
	return &cursor{known: known, place: place{after: at, upto: at}, waiting: order.NewBoxedMap[registry.Index, waiting](0)}
}

// reading returns where to read on; ok is false if the list does not show what the peer lacks.
func (c *cursor) reading() (at place, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at = c.place
	at.rewinds = c.rewinds
	return at, c.known
}

// read records that elements of the list up to upto were read, starting at from, from a view made at a moment of the
// lease clock (ms); all says that this was the end of the list. It records nothing if something read before was given
// up meanwhile.
func (c *cursor) read(from place, upto registry.Index, clock int64, all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rewinds != from.rewinds || !c.known {
		return
	}
	c.place.upto = upto
	if all {
		c.place = place{after: upto, upto: upto, clock: clock}
	}
}

// markUnknown records that the list no longer shows what the peer lacks.
func (c *cursor) markUnknown() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = false
}

// compared records that a comparison found what the peer lacks of a view, and that tasks with it are queued. Reading
// goes on after what was compared: recent changes were not.
func (c *cursor) compared(view *registry.View) {
	now := view.Stamp().Lease
	comparable := view.ComparableIndex(now)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = true
	// Nothing says which lives were new to the peer at that time.
	c.place = place{after: comparable, upto: comparable}
}

// add records a task that holds changes from first on, the last made at a moment of the lease clock (ms).
func (c *cursor) add(first registry.Index, since int64) {
	if first == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w, ok := c.waiting.Get(first)
	if !ok {
		w.since = since
	}
	w.tasks++
	c.waiting.Set(first, w)
}

// done records that a task which was added no longer exists: it was transmitted, or merged into another one.
func (c *cursor) done(first registry.Index) {
	if first == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(first)
}

// giveUp sets the reading back to before a task that was not transmitted.
func (c *cursor) giveUp(first registry.Index) {
	if first == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(first)
	c.rewinds++
	if first == everything {
		c.known = false
	}
	// Nothing says which lives were new to the peer at that time.
	c.place.after, c.place.upto, c.place.clock = min(c.place.after, first-1), min(c.place.upto, first-1), 0
}

func (c *cursor) remove(first registry.Index) {
	w, ok := c.waiting.Get(first)
	if w.tasks--; ok && w.tasks > 0 {
		c.waiting.Set(first, w)
		return
	}
	c.waiting.Delete(first)
}

// reached returns the cursor: the peer knows every change up to it. It is 0 if nothing is known of the peer.
func (c *cursor) reached() registry.Index {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return 0
	}
	if first, _, ok := c.waiting.Min(); ok {
		return min(first-1, c.place.after)
	}
	return c.place.after
}

// queued returns how many tasks wait with changes that will not be read again, and the lease clock (ms) of the oldest
// change of any task, or 0 without tasks.
func (c *cursor) queued() (tasks int, since int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting.Scan(func(first registry.Index, w waiting) bool {
		if first <= c.place.upto {
			tasks += w.tasks
		}
		if since == 0 || w.since < since {
			since = w.since
		}
		return true
	})
	return tasks, since
}
