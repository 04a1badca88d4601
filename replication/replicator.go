package replication

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Errors that a caller can act on, beside those of registry.Service.
var (
	// ErrMalformed: a message cannot be read. Its text says what is wrong.
	ErrMalformed = errors.New("malformed message")
	// ErrStranger: a message of a datacenter that is no peer of this one.
	ErrStranger = errors.New("not a peer")
	// ErrUnknownPeer: there is no peer of that name.
	ErrUnknownPeer = errors.New("no such peer")
	// ErrNotSending: this node does not send now; another one, or nobody, does.
	ErrNotSending = errors.New("this node does not send")
	// ErrNoDigests: the peer is a Eureka server, which cannot be compared with.
	ErrNoDigests = errors.New("not offered for Eureka servers")
)

// Replicator is a node's side of all replication. Safe for concurrent use.
type Replicator struct {
	config  Config
	eurekas eurekaSenders
}

// New checks the configuration, every mistake at once. It starts nothing.
func New(c Config) (*Replicator, error) { return &Replicator{config: c}, nil }

// Run sends to all peers until ctx ends: with consensus, for one leadership; else for as long as the
// node runs.
func (r *Replicator) Run(ctx context.Context) error { panic("not written") }

// Copy takes over what the other nodes of the own datacenter have, when this one has started. It
// returns nil when it has it, when there is no other node, or when none of the others has been ready
// for some seconds; else an error, after its tries.
func (r *Replicator) Copy(ctx context.Context) error { panic("not written") }

// Receive applies a message of a Rollcall peer and returns the answer. Errors: ErrMalformed,
// ErrStranger, or registry.Service's.
func (r *Replicator) Receive(ctx context.Context, message []byte) (answer []byte, err error) {
	panic("not written")
}

// Compare answers a peer's digests with what differs here. Errors: as Receive.
func (r *Replicator) Compare(ctx context.Context, message []byte) (answer []byte, err error) {
	panic("not written")
}

// State writes everything, for the start-up copy of a node of the own datacenter that names itself.
// Errors before the first byte: ErrStranger; registry.ErrNoLeader while this node is not ready itself.
func (r *Replicator) State(ctx context.Context, datacenter string, w io.Writer) error {
	panic("not written")
}

// Cut is how long a datacenter or Eureka server may be silent before its link counts as cut.
func (r *Replicator) Cut(dc string) time.Duration { panic("not written") }

// Spares says whether leases of another datacenter, whose time has passed, stay for now: its link is
// cut, and that is the peer's policy. Heard is how long ago (lease clock) it was last heard; ok is
// false if it never was.
func (r *Replicator) Spares(dc string, heard time.Duration, ok bool) bool { panic("not written") }

// Age is the time since the node of the own datacenter that was silent longest was last reached; 0 if
// there is none.
func (r *Replicator) Age() time.Duration { panic("not written") }

// Act tells the other nodes of the own datacenter an operator's act that is in no list.
func (r *Replicator) Act(op registry.SelfPreservation) { panic("not written") }

// Status is the state of every peer, in the order of the configuration.
func (r *Replicator) Status() []PeerStatus { panic("not written") }

// Diff compares with a peer and changes nothing. Errors: ErrUnknownPeer, ErrNotSending, ErrNoDigests, or the
// transport's.
func (r *Replicator) Diff(ctx context.Context, peer string) (Diff, error) { panic("not written") }

// Repair compares with a peer and sends what it lacks; for a Eureka server, everything. It returns when the
// comparison is done and what differs is queued. Errors: as Diff.
func (r *Replicator) Repair(ctx context.Context, peer string) (Diff, error) { panic("not written") }

// Pause stops the sending to a peer, or resumes it, whichever node does it now or later.
func (r *Replicator) Pause(ctx context.Context, peer string, paused bool, by registry.Act) error {
	panic("not written")
}
