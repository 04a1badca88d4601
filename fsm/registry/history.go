package registry

import "github.com/seed-20419f34/rollcall/fsm/codec"

// EventsKept is how many events of an instance are remembered, over all its lives.
const EventsKept = 16

// Event is something that happened to an instance.
type Event struct {
	At     Stamp // of the last time, if Times is above 1
	Kind   EventKind
	Times  uint32 // how often in a row; an equal event is counted instead of noted again
	Status Status // of the instance afterwards; overridden: the one forced
	Origin Origin // who sent the operation
	// For is a time in ms: of a late renewal and an eviction, the time since the last renewal; of an
	// override and a quarantine, its length (0: without end).
	For int64
	By  Act // who and why; of an eviction, what let it go on, if self-preservation withheld it
}

func (e *Event) fields(c *codec.Codec) {
	e.At.Fields(c)
	codec.Enum(c, &e.Kind, EventCeded, "event")
	c.Uint32(&e.Times)
	e.Status.fields(c)
	e.Origin.Fields(c)
	c.Int64(&e.For)
	e.By.fields(c)
}

// EventKind says what an Event is.
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
	EventOwned // it belonged to another datacenter, and belongs to the own one now, where its client renews it
	EventCeded // it belongs to another datacenter now, see Lease.Owner
)

var eventNames = [...]string{
	EventRegistered: "registered", EventReregistered: "registered again", EventKept: "older registration kept out",
	EventRenewedLate: "renewed late", EventStatus: "status changed", EventOverridden: "overridden",
	EventOverrideEnded: "override ended", EventQuarantined: "quarantined", EventQuarantineEnded: "quarantine ended",
	EventMetadata: "metadata changed", EventCanceled: "canceled", EventEvicted: "evicted",
	EventOwned: "taken over from another datacenter", EventCeded: "given to another datacenter",
}

// String returns the words used in answers.
func (k EventKind) String() string { return eventNames[k] }

// note remembers an event of a live lease, as it is afterwards.
func (r *Registry) note(l *Lease, origin Origin, e Event) {
	history := &r.tables.renewals.at(l.Handle.Slot).history
	history.Store(history.Load().with(r.event(l, origin, e)))
}

// event fills in what is the same for all events: the time, who sent the operation, and the status.
func (r *Registry) event(l *Lease, origin Origin, e Event) Event {
	e.At, e.Times, e.Origin, e.Status = r.clock, 1, origin, l.Instance.Status
	if e.Kind == EventOverridden {
		e.Status = l.Instance.Overridden
	}
	return e
}

// History returns what is remembered of an instance, live or gone, oldest first; live as LastRenewal
// is. It is empty if the instance went after the view was made.
func (v *View) History(key Key) []Event {
	if l, ok := v.Find(key); ok {
		return v.tables.renewals.past(l.Handle).events()
	}
	rec, _ := v.Removal(key)
	return rec.History.Events()
}
