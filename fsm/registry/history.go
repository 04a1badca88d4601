package registry

import (
	"iter"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// EventsKept is how many events of an instance are remembered, across all its lives.
const EventsKept = 16

// pastLimit is how long a chain of events may become before it is cut to EventsKept.
const pastLimit = 2 * EventsKept

// past is an instance's newest event and those before it. It is immutable, so readers may look at it while the next
// event is put in front; an event costs one small allocation.
type past struct {
	before *past
	at     Stamp
	lasted int64  // Event.For
	cause  *cause // nil: a client that gave no author or reason
	times  uint32
	kind   EventKind
	status Status
	depth  uint8 // of the chain
}

// cause caused an event.
type cause struct {
	origin Origin
	by     Act
}

// History is what is remembered about an instance: immutable, and copied without its events. The zero History is
// empty.
type History struct{ newest *past }

func (h *History) fields(c *codec.Codec) {
	const least = 9 // bytes of an event
	events := h.Events()
	if n := c.Count(len(events), least); c.Reading() {
		if n > EventsKept {
			c.Fail("%d events of an instance, want at most %d", n, EventsKept)
			n = 0
		}
		events = make([]Event, n)
	}
	for i := range events {
		events[i].fields(c)
	}
	if c.Reading() {
		*h = HistoryOf(events)
	}
}

// HistoryOf remembers events, given oldest first; if there are more than EventsKept, the last ones. Their strings are
// copied, because they may be part of a buffer with much else in it.
func HistoryOf(events []Event) History {
	events = slices.Clone(events[max(0, len(events)-EventsKept):])
	for i := range events {
		events[i].Origin.DC, events[i].Origin.Principal = strings.Clone(events[i].Origin.DC), strings.Clone(events[i].Origin.Principal)
		events[i].By = events[i].By.Clone()
	}
	return History{pastOf(events)}
}

// Events returns the remembered events, oldest first, at most EventsKept.
func (h History) Events() []Event { return h.newest.events() }

// pastOf returns the past with these events, oldest first.
func pastOf(events []Event) *past {
	var p *past
	chain := make([]past, len(events))
	for i, e := range events {
		chain[i] = p.followedBy(e)
		p = &chain[i]
	}
	return p
}

// with returns the past after one more event.
func (p *past) with(e Event) *past {
	switch {
	case p == nil:
		return p.link(e)
	case p.repeatedBy(e):
		e.Times += p.times
		return p.before.link(e)
	case p.depth == pastLimit:
		p = pastOf(p.events())
	}
	return p.link(e)
}

// link puts an event in front.
func (p *past) link(e Event) *past {
	n := p.followedBy(e)
	return &n
}

func (p *past) followedBy(e Event) past {
	n := past{before: p, at: e.At, lasted: e.For, times: e.Times, kind: e.Kind, status: e.Status, depth: 1}
	if p != nil {
		n.depth = p.depth + 1
	}
	if w := (cause{e.Origin, e.By}); w != (cause{}) {
		n.cause = &w
	}
	return n
}

// repeatedBy reports whether an event repeats the one before. How late a renewal comes is ignored: it differs each
// time.
func (p *past) repeatedBy(e Event) bool {
	before := p.event()
	return before.Kind == e.Kind && before.Status == e.Status && before.Origin == e.Origin && before.By == e.By &&
		(before.For == e.For || e.Kind == EventRenewedLate)
}

func (p *past) event() Event {
	e := Event{At: p.at, Kind: p.kind, Times: p.times, Status: p.status, For: p.lasted}
	if p.cause != nil {
		e.Origin, e.By = p.cause.origin, p.cause.by
	}
	return e
}

// events returns the last ones, oldest first.
func (p *past) events() []Event {
	n := p.length()
	if n == 0 {
		return nil
	}
	events := make([]Event, n)
	for i := range n {
		events[n-1-i] = p.event()
		p = p.before
	}
	return events
}

// length returns the number of remembered events.
func (p *past) length() int {
	if p == nil {
		return 0
	}
	return min(int(p.depth), EventsKept)
}

// recentLength is the length of the two recent queues.
const recentLength = 1000

// recent holds the newest entries of a queue, newest last. Entries are appended behind what copies of
// the header can see and never overwritten, so a copy is a snapshot; when the array is full, append
// moves what is left to a larger one.
type recent []Recent

func (q recent) with(e Recent) recent {
	if len(q) == recentLength {
		q = q[1:]
	}
	return append(q, e)
}

func (q recent) newestFirst() iter.Seq[Recent] {
	return func(yield func(Recent) bool) {
		for _, e := range slices.Backward(q) {
			if !yield(e) {
				return
			}
		}
	}
}

// Recent is an entry of one of the two recent queues.
type Recent struct {
	Wall int64 // ms since the epoch
	Key  Key
}

func (r *Recent) Fields(c *codec.Codec) {
	c.Int64(&r.Wall)
	r.Key.Fields(c)
}

type ChangeKind uint8

// The kinds. Evicted and Canceled are records of removals; Hidden is a live lease in quarantine, which looks removed
// to readers.
const (
	Live ChangeKind = iota
	Canceled
	Evicted
	Hidden
)

// Event is something that happened to an instance.
type Event struct {
	At     Stamp // the last time, if Times is above 1
	Kind   EventKind
	Times  uint32 // how often in a row; equal events are counted, not recorded again
	Status Status // status afterwards; for an override: the forced one
	Origin Origin // the sender of the operation
	// For is a time in ms: for a late renewal or an eviction, the time since the last renewal; for an override or a
	// quarantine, its length (0: without end).
	For int64
	By  Act // author and reason; of an eviction that self-preservation had withheld: what let it go on
}

func (e *Event) fields(c *codec.Codec) {
	e.At.Fields(c)
	codec.Enum(c, &e.Kind, EventRestored, "event")
	c.Uint32(&e.Times)
	e.Status.fields(c)
	e.Origin.fields(c)
	c.Int64(&e.For)
	e.By.Fields(c)
}

type EventKind uint8

// The kinds of events.
const (
	EventRegistered EventKind = iota
	EventReregistered
	EventKept        // a registration older than what is stored: the stored instance stays, in a new lease
	EventRenewedLate // more than one and a half intervals after the renewal before
	EventStatus      // a renewal or registration changed the status
	EventOverridden
	EventOverrideEnded
	EventQuarantined
	EventQuarantineEnded
	EventMetadata
	EventCanceled
	EventEvicted
	EventOwned    // it moved from another datacenter to this one, where its client renews it
	EventCeded    // it moved to another datacenter, see Lease.Owner
	EventRestored // it came back from a snapshot
)

var eventNames = [...]string{
	EventRegistered: "registered", EventReregistered: "registered again", EventKept: "older registration kept out",
	EventRenewedLate: "renewed late", EventStatus: "status changed", EventOverridden: "overridden",
	EventOverrideEnded: "override ended", EventQuarantined: "quarantined", EventQuarantineEnded: "quarantine ended",
	EventMetadata: "metadata changed", EventCanceled: "canceled", EventEvicted: "evicted",
	EventOwned: "taken over from another datacenter", EventCeded: "given to another datacenter",
	EventRestored: "restored from a snapshot",
}

// String returns the words used in answers.
func (k EventKind) String() string { return eventNames[k] }
