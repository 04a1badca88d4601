package replication

import (
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// facts are what a task tells a peer of one instance.
type facts uint8

const (
	registered facts = 1 << iota // what the client says of itself, changed or new
	overridden                   // an override was set, ended or deleted
	heartbeat                    // it was renewed
	canceled                     // it was removed; alone
)

// task is what a peer is to be told of one instance. All but a removal is read from the registry when
// it is sent, so that the newest state goes and the queue holds no copies. Its id in the dispatcher is
// its key: there is one task per instance, and none while one is on its way (upstream's id has the
// action in it, so that a Register can overtake the Cancel of its instance).
type task struct {
	key   registry.Key
	facts facts
	// first is the oldest change that the task tells, 0 if it tells none (a heartbeat): the cursor stays
	// below it until the task was transmitted.
	first registry.Index
	// began: the instance's life began after the cursor, so that a Eureka server may know an older one.
	began bool
	// remove is the removal, with canceled.
	remove registry.Remove
	// tries counts how often an answer made a new task of this one.
	tries int
	// queued is when the task, or the oldest that was merged into it, was queued; asOf is when remove was
	// right.
	queued, asOf time.Time
}

// merge is the task that tells what two tasks of one instance do, of which newer was made later: a
// cancel clears everything before it, a registration clears a cancel and a heartbeat, and a heartbeat
// is dropped beside anything else, for all of that renews as well.
func merge(older, newer task) task {
	if newer.facts == heartbeat {
		return older.with(newer, older)
	}
	if newer.facts&canceled != 0 {
		return older.with(newer, newer)
	}
	live := newer
	live.facts |= older.facts &^ (canceled | heartbeat)
	live.facts &^= heartbeat
	if older.facts&canceled != 0 {
		live.facts |= registered
		live.began = true
	}
	live.began = live.began || older.began
	return older.with(newer, live)
}

// with is merged, with what two tasks have in common whatever they tell.
func (older task) with(newer, merged task) task {
	merged.first = earlier(older.first, newer.first)
	merged.tries = max(older.tries, newer.tries)
	merged.queued = older.queued
	return merged
}

// earlier is the lower of two changes, of which 0 is none.
func earlier(a, b registry.Index) registry.Index {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// maxTries bounds how often an answer makes a new task of one: a server that forgets at once what it
// was told would be told for ever.
const maxTries = 3
