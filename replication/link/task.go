package link

import (
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Facts is what a task says of one instance.
type Facts uint8

const (
	Registered Facts = 1 << iota // what the client says of itself, new or changed
	Overridden                   // an override was set, ended or deleted
	Heartbeat                    // it was renewed
	Canceled                     // it was removed; never combined with others
)

// Task is what a peer must be told of one instance. Everything but a removal is read from the registry when it is
// sent, so that the newest state goes out and the queue holds no copies. Its id in the dispatcher is its key: there
// is one task per instance, and none while one is in flight (upstream's id contains the action, so a Register can
// overtake the Cancel of its instance).
type Task struct {
	Key   registry.Key
	Facts Facts
	// First is the oldest change in the task, or 0 (a heartbeat): the cursor stays below it until the task has been
	// transmitted.
	First registry.Index
	// NewLife is set if the instance's life started after the cursor, so a Eureka server may know an older one.
	NewLife bool
	// Remove is the removal, with Canceled.
	Remove registry.Remove
	// Tries counts how often a reply turned this task into a new one.
	Tries int
	// Above is the dirty timestamp (ms) that a Eureka server has of the instance and that the registration must
	// exceed. If it is 0, the registration is sent with its own.
	Above int64
	// Queued is when the task, or the oldest that was merged into it, was queued; AsOf is the time that the ages in
	// Remove refer to.
	Queued, AsOf time.Time
}

// Merge returns a task that does what two tasks of one instance do; newer was made later. A cancel clears everything
// before it, a registration clears a cancel and a heartbeat, and a heartbeat is dropped beside anything else, which
// renews as well.
func Merge(older, newer Task) Task {
	if newer.Facts == Heartbeat {
		return older.with(newer, older)
	}
	if newer.Facts&Canceled != 0 {
		return older.with(newer, newer)
	}
	live := newer
	live.Facts |= older.Facts &^ (Canceled | Heartbeat)
	live.Facts &^= Heartbeat
	if older.Facts&Canceled != 0 {
		live.Facts |= Registered
		live.NewLife = true
	}
	live.NewLife = live.NewLife || older.NewLife
	return older.with(newer, live)
}

// with returns merged with what all merged tasks have.
func (older Task) with(newer, merged Task) Task {
	merged.First = Earlier(older.First, newer.First)
	merged.Tries = max(older.Tries, newer.Tries)
	merged.Above = max(older.Above, newer.Above)
	merged.Queued = older.Queued
	return merged
}

// Earlier returns the lower of two changes; 0 means none.
func Earlier(a, b registry.Index) registry.Index {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// MaxTries bounds how often a reply turns a task into a new one: a server that immediately loses what it gets would
// get it forever.
const MaxTries = 3
