package registry

import (
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// Op is one operation of the registry. Every Op has a row in Operations.
type Op interface {
	kind() byte // number in the formats
	// perform applies the operation's rule; term is the Raft term of its log entry.
	perform(r *Registry, term uint64, origin Origin) Result
	// needs returns what a client must be allowed to do to send it, see Needs.
	needs(v *View) []access.Need
}

type Outcome uint8

// The outcomes.
const (
	// Done: the operation took effect, or its effect was already there.
	Done Outcome = iota
	// NotFound: no such lease exists, or (Renew) its status is UNKNOWN. The client registers again.
	NotFound
	// Newer: Renew, the sender's copy is newer than the stored one. The lease was renewed; the sender should
	// register.
	Newer
	// Older: an operation of a replicator, the stored copy is newer (of a Replica: one of its halves is; the other was
	// adopted if it is newer itself); the sender adopts the stored copy.
	Older
	// KeptExisting: Register, the stored instance was newer and stays, in a new lease.
	KeptExisting
	// DeadHandle: Renew by a handle whose generation is dead.
	DeadHandle
	// Refused: an operation of the leader under another epoch; a SelfPreservation that does not fit
	// the present state; a replicated Register, Replica or Renew that is not newer than the cancel of
	// its instance; a Replica whose lease has ended.
	Refused
	// UnknownService: RegisterCatalog, a check names a service that its node does not have.
	UnknownService
	// NameTaken: RegisterCatalog, the application already has another spelling.
	NameTaken
	// NoTTL: SetCheck, the check does not expect heartbeats.
	NoTTL
	// TooManyChecks: RegisterCatalog, it has more than MaxChecks, or a service or node would exceed its limit.
	TooManyChecks
	// AddressTaken: RegisterCatalog, the agent has a service with that id and another address, or another node has a
	// service that is the same instance.
	AddressTaken
	// CheckTaken: RegisterCatalog, the agent has a check with that id for something else.
	CheckTaken
	// Revoked: the client's token was revoked, or its roles no longer allowed the operation, before it took effect.
	Revoked
	// TooMany: level 2 bounds this. RegisterCatalog would exceed catalog.MaxFollowers, or readdress an agent with
	// more than MaxRemoved services and checks; DeregisterCatalog names a node with more than that, some of which
	// must be removed first.
	TooMany
	// Held: the operation would have changed a living instance of this datacenter, or given it one, and Yields; the
	// sender may offer it again when the lease has ended.
	Held
	// Panicked: the operation panicked, which is a defect, and had no effect. Only without consensus, for an
	// operation that another server sent among others; it is in no format.
	Panicked
)

// Result is the answer to one operation.
type Result struct {
	Outcome Outcome
	Index   Index  // of the (last) change; 0 if nothing changed
	Handle  Handle // Register: the lease's handle
	Count   int    // Evict: how many leases went; DeleteOverride, Quarantine: how many acts waiting in a record ended
}

// Fields walks a result. Its first byte holds the outcome and which other fields follow, namely the nonzero ones: the
// answer to a renewal is one byte.
func (r *Result) Fields(c *codec.Codec) {
	const outcomeBits = 4
	has := codec.Bits(r.Index != 0, r.Handle != Handle{}, r.Count != 0)
	first := byte(r.Outcome) | byte(has)<<outcomeBits
	c.Byte(&first)
	if has = uint64(first >> outcomeBits); c.Reading() {
		if r.Outcome = Outcome(first & (1<<outcomeBits - 1)); r.Outcome > Held || has > 7 {
			c.Fail("result of unknown form %#x", first)
			return
		}
	}
	if has&1 != 0 {
		codec.Uint(c, &r.Index)
	}
	if has&2 != 0 {
		r.Handle.fields(c)
	}
	if has&4 != 0 {
		c.Int(&r.Count)
	}
	c.Confirm(has == codec.Bits(r.Index != 0, r.Handle != Handle{}, r.Count != 0))
}
