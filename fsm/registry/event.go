package registry

import "github.com/seed-20419f34/rollcall/fsm/codec"

// ChangeKind says what a Change is.
type ChangeKind uint8

// The kinds. Evicted and Canceled are records of removal; Hidden is a live lease in quarantine, which
// readers take for removed.
const (
	Live ChangeKind = iota
	Canceled
	Evicted
	Hidden
)

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
