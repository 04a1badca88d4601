package kv

// TopicKind says what somebody waits for.
type TopicKind uint8

// The kinds of topics.
const (
	KeyTopic TopicKind = iota
	PrefixTopic
	SessionsTopic // any session; no Name
	LockTopic
	SemaphoreTopic
	// PermitTopic is what one session has of one lock or semaphore; Name is PermitName. It is touched when
	// a permit is given to the session out of the queue, and when the session loses its place in the queue
	// without leaving it. Who waits for a permit waits for this: a lock for which a thousand wait goes
	// from hand to hand without waking the others.
	PermitTopic
)

// PermitName is the Name of a PermitTopic. Names and sessions have no control characters.
func PermitName(kind Kind, name, session string) string {
	return string(rune('0'+kind)) + name + "\x00" + session
}

// Topic is what somebody waits for.
type Topic struct {
	Kind TopicKind
	Name string
}

// Wait is woken once, by the first change of its topic after it was joined.
type Wait struct {
	woken chan struct{}
	leave func()
}

// Woken is closed at the change.
func (w *Wait) Woken() <-chan struct{} { return w.woken }

// Leave ends the wait. It must be called, woken or not.
func (w *Wait) Leave() { w.leave() }

// Watchers wakes those who wait for a topic, and nobody else. The zero value is ready. Safe for
// concurrent use.
type Watchers struct{}

// Join begins to wait.
func (w *Watchers) Join(t Topic) *Wait { panic("not written") }

// Wake wakes those whose topics were touched (State.Touched), PrefixTopics by the keys that begin with
// them. It must be called after the state that shows the changes is visible.
func (w *Watchers) Wake(touched []Topic) { panic("not written") }

// WakeAll wakes everybody: the state was replaced.
func (w *Watchers) WakeAll() { panic("not written") }

// Len is how many wait.
func (w *Watchers) Len() int { panic("not written") }
