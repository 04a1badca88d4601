package registry

// eventsKept is how many events of an instance are remembered, over all its lives.
const eventsKept = 16

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
	By  Act // who and why; of an eviction, why if not only because the lease ended
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
)

var eventNames = [...]string{
	EventRegistered: "registered", EventReregistered: "registered again", EventKept: "older registration kept out",
	EventRenewedLate: "renewed late", EventStatus: "status changed", EventOverridden: "overridden",
	EventOverrideEnded: "override ended", EventQuarantined: "quarantined", EventQuarantineEnded: "quarantine ended",
	EventMetadata: "metadata changed", EventCanceled: "canceled", EventEvicted: "evicted",
}

// String returns the words used in answers.
func (k EventKind) String() string { return eventNames[k] }
