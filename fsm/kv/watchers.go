package kv

import (
	"cmp"
	"slices"
	"sync"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

type TopicKind uint8

// The kinds of topics.
const (
	KeyTopic TopicKind = iota
	PrefixTopic
	SessionsTopic // any session; no Name
	LockTopic
	SemaphoreTopic
	// PermitTopic is what one session has of one lock or semaphore; Name is PermitName. It is touched when the
	// session gets a permit out of the queue, and when it loses its place in the queue in another way. A request that
	// waits for a permit waits for this: a lock with a thousand waiters goes from hand to hand without waking the
	// others.
	PermitTopic
	AccessTopic // who may do what; no Name
)

// PermitName is the Name of a PermitTopic. Names and sessions have no control characters.
func PermitName(kind Kind, name, session string) string {
	return string(rune('0'+kind)) + name + "\x00" + session
}

// Topic is what a watcher waits for.
type Topic struct {
	Kind TopicKind
	Name string
}

// Wait is woken once, by the first change of its topic after it was joined.
type Wait struct {
	woken <-chan struct{}
	leave func()
}

// Woken returns a channel that is closed at the change.
func (w *Wait) Woken() <-chan struct{} { return w.woken }

// Leave ends the wait. It must be called, woken or not.
func (w *Wait) Leave() { w.leave() }

// Watchers wakes the watchers of a topic, and no others. The zero value is ready. Safe for concurrent use.
//
// The state does not depend on it: it serves readers, beside the state machine.
type Watchers struct {
	mutex   sync.Mutex
	waiters order.Waiters[Topic]
	lengths []lengthCount // of the PrefixTopics with watchers, ascending
}

// lengthCount says how many prefixes of a length have watchers.
type lengthCount struct{ length, prefixes int }

// Join begins to wait.
func (w *Watchers) Join(t Topic) *Wait {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	wait, first := w.waiters.Join(t)
	if first {
		w.count(t, 1)
	}
	ended := false
	return &Wait{woken: wait.Woken(), leave: func() {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		if !ended && w.waiters.Leave(wait) {
			w.count(t, -1)
		}
		ended = true
	}}
}

// count records, for a PrefixTopic, that one more or one less prefix of its length has watchers.
func (w *Watchers) count(t Topic, change int) {
	if t.Kind != PrefixTopic {
		return
	}
	length := len(t.Name)
	at, ok := slices.BinarySearchFunc(w.lengths, length, func(c lengthCount, length int) int { return cmp.Compare(c.length, length) })
	if !ok {
		w.lengths = slices.Insert(w.lengths, at, lengthCount{length: length})
	}
	w.lengths[at].prefixes += change
	if w.lengths[at].prefixes == 0 {
		w.lengths = slices.Delete(w.lengths, at, at+1)
	}
}

// Wake wakes the watchers of topics that were touched (State.Touched), and the PrefixTopics of touched keys. It must
// be called after the state that shows the changes is visible.
func (w *Watchers) Wake(touched []Topic) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, t := range touched {
		if w.waiters.Len() == 0 {
			return
		}
		w.wake(t)
		if t.Kind != KeyTopic {
			continue
		}
		// Only prefixes of lengths that have watchers: the cost does not grow with the number of watchers.
		for i := len(w.lengths) - 1; i >= 0; i-- { // a length may be removed meanwhile
			if n := w.lengths[i].length; n <= len(t.Name) {
				w.wake(Topic{Kind: PrefixTopic, Name: t.Name[:n]})
			}
		}
	}
}

func (w *Watchers) wake(t Topic) {
	if w.waiters.Wake(t, 0) {
		w.count(t, -1)
	}
}

// WakeAll wakes every watcher, because the state was replaced.
func (w *Watchers) WakeAll() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for t := range w.waiters.Topics {
		w.wake(t)
	}
}

// Len returns the number of watchers.
func (w *Watchers) Len() int {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.waiters.Len()
}
