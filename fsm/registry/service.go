package registry

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Service is the registry as its users see it, in any mode. Safe for concurrent use.
type Service interface {
	// Apply performs ops in order, one result per op. The context bounds the wait, not the effect:
	// an operation that was sent when it ends has an unknown outcome. Errors: ErrNoLeader,
	// ErrUnknownOutcome, ErrTooLarge, ErrUnreadable, ErrPanicked, ErrClosed.
	Apply(ctx context.Context, origin Origin, ops ...Op) ([]Result, error)
	// View returns the state, at least as new as read demands. Errors: ErrNoLeader, ErrNotOffered,
	// ErrClosed, or the context's; Stale never fails.
	View(ctx context.Context, read Consistency) (*View, error)
	// Changes blocks until something selected changed after an index, and returns it, oldest first: each instance
	// once, at its last change. It also waits for an index that this node has not reached. Errors: ErrTooOld (fetch
	// everything, and go on from that answer's index), ErrClosed, or the context's.
	Changes(ctx context.Context, after Index, which Selector) (Changes, error)
	// Health reports what this node knows about itself, without asking anybody.
	Health() Health
}

// Unrevoked returns what Apply returned, or ErrRevoked if one of the operations got Revoked.
func Unrevoked(results []Result, err error) ([]Result, error) {
	if slices.ContainsFunc(results, func(r Result) bool { return r.Outcome == Revoked }) {
		return nil, ErrRevoked
	}
	return results, err
}

// Health is one node's state as the node itself sees it.
type Health struct {
	// Ready: the node has loaded its state and may serve reads.
	Ready bool
	// Quorum: a leader is known, or this node leads.
	Quorum bool
	// Leads: this node is the established leader.
	Leads bool
	// Unheard: this node has not yet applied everything that the first leader it heard from since its start had
	// applied. What its state lacks may be old, and Age is the difference of two nodes' wall clocks, which has no
	// bound. Without consensus it is always false.
	Unheard bool
	// Age is how old this node's state can be: it contains everything acknowledged longer ago than that. It is small
	// on a leader in touch with a majority, and on a follower that has applied what such a leader has. Without
	// consensus it is the time since the longest silent node of this datacenter sent something (0 if it is the only
	// node).
	Age time.Duration
	// Suspended: no lease ends now, because leadership is too young (or nobody leads).
	Suspended bool
	// Clock is the lease clock, ms: on the leader the running one, at most 100 ms ago, elsewhere the stamp of the
	// newest applied operation, which may be up to 2 s older.
	Clock int64
}

// Errors of a Service that a caller can act on. Messages are never compared.
var (
	// ErrNoLeader: nothing was done, because no leader (or no majority) could be reached in time.
	ErrNoLeader = errors.New("no leader")
	// ErrUnknownOutcome: no node can say whether the operation took effect. It must be reported
	// neither as success nor as failure.
	ErrUnknownOutcome = errors.New("outcome unknown")
	// ErrGivenUp: nothing was done, because the caller's context ended before anything was proposed.
	ErrGivenUp = errors.New("given up")
	// ErrTooLarge: an operation is larger than a log entry may be. Nothing was done.
	ErrTooLarge = errors.New("operation too large")
	// ErrUnreadable: the leader runs another build and does not know the operation. Nothing was done.
	ErrUnreadable = errors.New("operation unknown to the leader")
	// ErrPanicked: the operation, or another in the same call, panicked on this node. Nothing was done. With
	// consensus the nodes stop instead.
	ErrPanicked = errors.New("operation panicked")
	// ErrFull: nothing was done, because the limits leave no room.
	ErrFull = errors.New("no room")
	// ErrName: nothing was done, because something new would have a name that looks like another one.
	ErrName = errors.New("a name that hides what it is")
	// ErrRevoked: nothing was done, because the newest roles and tokens no longer allow it.
	ErrRevoked = errors.New("not allowed any more")
	// ErrTooOld: the change list no longer reaches back to the requested index. Fetch everything.
	ErrTooOld = errors.New("index too old")
	// ErrNotOffered: without consensus no node can say that a read includes what other nodes
	// acknowledged. Only a Stale read is offered.
	ErrNotOffered = errors.New("not offered without consensus")
	// ErrClosed: the node is shutting down. Nothing was done.
	ErrClosed = errors.New("shutting down")
)

// LevelError refuses an operation that not every node of the cluster can read yet, or that nobody may write yet.
// Nothing was done.
type LevelError struct{ Text string } // why, in words for the caller

func (e *LevelError) Error() string { return e.Text }

// Unwrap makes it an ErrUnreadable.
func (e *LevelError) Unwrap() error { return ErrUnreadable }

// Consistency is how fresh a read must be.
type Consistency = order.Consistency

// The consistencies.
const (
	Linearizable = order.Linearizable
	Leader       = order.Leader
	Stale        = order.Stale
)
