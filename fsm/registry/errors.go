package registry

import (
	"errors"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Errors of a Service that a caller can act on. Messages are never compared.
var (
	// ErrNoLeader: nothing was done, because no leader (or no majority) could be reached in time.
	ErrNoLeader = errors.New("no leader")
	// ErrUnknownOutcome: no node can say whether the operation took effect. It must be reported
	// neither as success nor as failure.
	ErrUnknownOutcome = errors.New("outcome unknown")
	// ErrTooLarge: an operation is larger than a log entry may be. Nothing was done.
	ErrTooLarge = errors.New("operation too large")
	// ErrUnreadable: the leader runs another build and does not know the operation. Nothing was done.
	ErrUnreadable = errors.New("operation unknown to the leader")
	// ErrFull: nothing was done, because there is no room for more.
	ErrFull = errors.New("no room")
	// ErrTooOld: the change list no longer reaches back to the index asked for. Fetch everything.
	ErrTooOld = errors.New("index too old")
	// ErrNotOffered: without consensus no node can say that a read includes what other nodes
	// acknowledged. Only a Stale read is offered.
	ErrNotOffered = errors.New("not offered without consensus")
	// ErrClosed: the node is shutting down. Nothing was done.
	ErrClosed = errors.New("shutting down")
)

// Consistency is how fresh a read must be.
type Consistency = order.Consistency

// The consistencies.
const (
	Linearizable = order.Linearizable
	Leader       = order.Leader
	Stale        = order.Stale
)
