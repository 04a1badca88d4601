package replication

import (
	"sync"

	"github.com/seed-20419f34/rollcall/fsm/order"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// everything is the first change of a task that belongs to a repair without a known cursor: as if it
// held every change there ever was. If it is given up the cursor is unknown again.
const everything registry.Index = 1

// cursor knows how far a peer has the change list: what was read, and which changes are in tasks that were
// not transmitted yet. A task that is given up sets the reading back to before it.
//
// Reading the list once is not a straight way. An instance stands in it at its last change, so one
// that was changed at 5 and again at 9 is found at 9 only, and a reader that has come to 7 has not seen
// the change at 5. So a change counts as read when the reader has caught up with the newest state, and
// until then a feed that starts anew reads from where this one started.
type cursor struct {
	mu      sync.Mutex
	known   bool
	place   place
	rewinds int // how often a task that was given up set place back
	waiting order.Map[registry.Index, waiting]
}

// place is where the reading of the change list is.
type place struct {
	after registry.Index // every change up to it was read; newer ones are to be sent
	upto  registry.Index // elements of the list up to it were read since
	// clock is the lease clock (ms) at which everything up to after was read: lives that started later are
	// new to the peer. 0: not known.
	clock   int64
	rewinds int
}

// waiting is a change in a task that was not transmitted yet.
type waiting struct {
	tasks int   // whose first change it is
	since int64 // lease clock of the change, ms
}

// newCursor goes on from what is known of the peer; known is false if nothing is.
func newCursor(at registry.Index, known bool) *cursor {
	return &cursor{known: known, place: place{after: at, upto: at}, waiting: order.NewBoxedMap[registry.Index, waiting](0)}
}

// reading is where to read on; ok is false if the list does not say what the peer lacks.
func (c *cursor) reading() (at place, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at = c.place
	at.rewinds = c.rewinds
	return at, c.known
}

// read records that elements of the list up to upto were read, starting at from, from a view made at a
// moment of the lease clock (ms); all says that this was its end. It records nothing if something read
// before was given up meanwhile.
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

// markUnknown says that the list no longer shows what the peer lacks.
func (c *cursor) markUnknown() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = false
}

// compared says that a comparison found what the peer lacks of a view, and that tasks with it wait.
// Reading goes on after what was compared: what had changed only lately was not.
func (c *cursor) compared(view *registry.View) {
	now := view.Stamp().Lease
	comparable := view.ComparableIndex(now)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = true
	// Which lives are new to the peer is not known of that time.
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

// done records that a task which was added is no more: it was transmitted, or is part of another one.
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
	// Which lives are new to the peer is not known of that time.
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

// reached is the cursor: the peer knows every change up to it. 0: nothing is known of it.
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

// queued is how many tasks wait with changes that reading will not come to again, and the lease clock (ms)
// of the oldest change of any task; 0: there is none.
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
