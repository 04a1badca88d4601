package registry

import (
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// Contact records a message of a peer, at most once per second and peer. It takes no Index.
type Contact struct {
	// DC is the remote datacenter (or Eureka server) whose link is alive; "": a node of this one.
	DC string
	// Sender names the owner of Clock: a cluster (CP) or a node (AP); "" if the peer has no such clock.
	Sender string
	// Incarnation is a random number that the sender draws when it begins to send, so that a sender that goes on with
	// an older copy of its data is not taken for late.
	Incarnation uint64
	Clock       int64 // the sender's lease clock at sending, ms
	Cut         int64 // ms of silence after which the link counts as cut; kept until the next Contact
	Age         int64 // ms ago, when a node of this datacenter passes it on
	// Principal is the name of whoever sent the message; "" if nobody was asked who they are.
	Principal string
}

func (Contact) kind() byte { return 14 }

func (op Contact) fields(c *codec.Codec) Contact {
	c.String(&op.DC)
	c.String(&op.Sender)
	c.Uint64(&op.Incarnation)
	c.Int64(&op.Clock)
	c.Int64(&op.Cut)
	c.Int64(&op.Age)
	c.BoundedText(&op.Principal, maxActText)
	return op
}

// ForgetSender forgets a sender's clock, in all its incarnations and in any datacenter, and which principal its name
// belongs to: the next message in its name counts as its first. NotFound: no sender of that name is known. It takes
// no Index.
type ForgetSender struct {
	Sender string
	By     Act // kept only in the log entry
}

func (ForgetSender) kind() byte { return 17 }

func (op ForgetSender) fields(c *codec.Codec) ForgetSender {
	c.String(&op.Sender)
	op.By.Fields(c)
	return op
}

// Replica is the whole state of an instance as another Rollcall server has it. Applying it replaces the stored halves
// that are older. If the stored instance is equal, it is only a renewal, and no change.
//
// If two halves have equal versions but differ (two servers decided at the same moment) and just one server claims to
// be the owner, both keep theirs, and the owner makes a newer version of its own, which wins; otherwise the half with
// the greater Fingerprint wins, on both sides.
type Replica struct {
	// Instance is what its client said last: Status is the reported one, Overridden is Unknown.
	Instance *Instance
	Life     uint32
	Edit     uint32
	// Owner is the datacenter that the instance belongs to; "" is the sender's. A node of this datacenter may name
	// another. The Owner that a remote datacenter gives for an instance that is not its own decides nothing, unless it
	// is Here and the instance is not stored.
	Owner string
	// Age is how long ago the instance was last renewed, ms, or UnknownAge. If the lease has ended by that, the
	// instance is refused, unless it is stored already or Permanent.
	Age int64
	// Overridden is the override; Unknown: none. OverrideFor is how long it has left, ms; 0: for ever.
	Overridden  Status
	OverrideBy  Act
	OverrideFor int64
	Drain       bool // see Override
	// QuarantineFor is how long its quarantine has left, ms; 0: it is not in quarantine.
	QuarantineFor int64
	QuarantineBy  Act
	// Permanent: it has no lease (Lease.Permanent). Its Service stays with its datacenter.
	Permanent bool
	Said      int64 // see Lease
	// Yields: the sender may not take over. A living instance of this datacenter stays as it is, and no instance
	// becomes this datacenter's. The receiver decides this, whatever the sender says. From level 3 on.
	Yields bool
}

// Bounds on what another server, or a file, may say about an instance.
const (
	MaxCount = 1 << 31 // lives, and edits of one: counting never gets there
	// MaxSpan is in ms; no lease clock has run for longer, and no operator's act lasts longer.
	MaxSpan = 10 * 365 * 24 * 60 * 60 * 1000
)

// Check returns an error that names a number beyond its bounds, or nil.
func (op Replica) Check() error {
	switch {
	case op.Life == 0 || op.Life > MaxCount || op.Edit > MaxCount:
		return fmt.Errorf("life %d must be 1 to %d, and edit %d at most that", op.Life, MaxCount, op.Edit)
	case op.OverrideFor < 0 || op.OverrideFor > MaxSpan:
		return fmt.Errorf("override: %d ms are not in 0 to %d", op.OverrideFor, int64(MaxSpan))
	case op.QuarantineFor < 0 || op.QuarantineFor > MaxSpan:
		return fmt.Errorf("quarantine: %d ms are not in 0 to %d", op.QuarantineFor, int64(MaxSpan))
	}
	return nil
}

func (Replica) kind() byte { return 12 }

func (op Replica) fields(c *codec.Codec) Replica {
	body(c, &op.Instance)
	c.Uint32(&op.Life)
	c.Uint32(&op.Edit)
	c.String(&op.Owner)
	c.Int64(&op.Age)
	op.Overridden.fields(c)
	op.OverrideBy.Fields(c)
	c.Int64(&op.OverrideFor)
	c.Int64(&op.QuarantineFor)
	op.QuarantineBy.Fields(c)
	c.Bool(&op.Permanent)
	if c.Since(3, false) {
		c.Bool(&op.Drain)
		c.Int64(&op.Said)
	}
	yields(c, &op.Yields)
	return op
}

// yields walks the field Yields of an operation from another server.
func yields(c *codec.Codec, does *bool) {
	if c.Since(Level3, false) {
		c.Bool(does)
	}
}

// Here is the Replica.Owner that stands for the receiver's own datacenter. No datacenter may have that name.
const Here = "."

// AckPeer moves a peer's cursor: the peer knows every change up to it. It never goes back. It takes no Index.
type AckPeer struct {
	Peer   string
	Cursor Index
}

func (AckPeer) kind() byte { return 15 }

func (op AckPeer) fields(c *codec.Codec) AckPeer {
	c.String(&op.Peer)
	codec.Uint(c, &op.Cursor)
	return op
}

// PausePeer stops or resumes sending to a peer, whichever node does the sending. It takes no Index.
type PausePeer struct {
	Peer   string
	Paused bool
	By     Act
}

func (PausePeer) kind() byte { return 16 }

func (op PausePeer) fields(c *codec.Codec) PausePeer {
	c.String(&op.Peer)
	c.Bool(&op.Paused)
	op.By.Fields(c)
	return op
}

// UnknownAge is the age (ms) sent for a lease whose last renewal is hearsay. A receiver that has the instance does
// not count it as a renewal. A cluster that does not have it counts the lease as ended; for a node without consensus
// see Registry.WithoutConsensus.
const UnknownAge = 365 * 24 * 60 * 60 * 1000

// Remove is a versioned removal that another Rollcall server had first: it removes lives up to Life whose
// lastDirtyTimestamp is not newer, and leaves a record (even if nothing was stored, so that anything sent before it
// that arrives after it changes nothing).
//
// A cancel from another datacenter of an instance of this one that was last renewed before its present life began is
// about a life that nobody here knows: this cluster was founded anew. It removes nothing.
//
// An eviction (Kind Evicted) is refused by the owner of the instance, and by a server that got a client's renewal,
// not hearsay, less than Age ago. From then on the refusing server's datacenter is the owner.
type Remove struct {
	Key       Key
	Kind      ChangeKind // Canceled or Evicted
	Life      uint32
	LastDirty int64
	Owner     string // as Replica.Owner
	Age       int64  // ms since the last renewal that the sender knows of
	Yields    bool   // see Replica
}

func (Remove) kind() byte { return 13 }

func (op Remove) fields(c *codec.Codec) Remove {
	op.Key.Fields(c)
	evicted := op.Kind == Evicted
	if c.Bool(&evicted); c.Reading() {
		op.Kind = Canceled
		if evicted {
			op.Kind = Evicted
		}
	}
	c.Uint32(&op.Life)
	c.Int64(&op.LastDirty)
	c.String(&op.Owner)
	c.Int64(&op.Age)
	yields(c, &op.Yields)
	return op
}

// Saved is an instance in a snapshot for people.
type Saved struct {
	Replica                  // Owner "": this datacenter
	Service *catalog.Service // registration through Consul's API of this datacenter, or nil
}

// Check returns an error that says why the instance cannot be restored, or nil. Other servers would refuse it, or
// take themselves for its owner.
func (s *Saved) Check() error {
	if s.Owner == Here {
		return fmt.Errorf("owner %q must be the name of a datacenter, or empty", s.Owner)
	}
	return s.Replica.Check()
}

func (s *Saved) Fields(c *codec.Codec) {
	if read := s.Replica.fields(c); c.Reading() {
		s.Replica = read
	}
	codec.Optional(c, &s.Service, (*catalog.Service).Fields)
}

// Image is a registry's part of a snapshot for people.
type Image struct {
	Nodes     []*catalog.Node // of the catalog, with their checks; by name
	Instances []Saved         // quarantined ones included; by application and id
}

func (m *Image) Fields(c *codec.Codec) {
	codec.List(c, &m.Nodes, 8, codec.Each((*catalog.Node).Fields))
	codec.List(c, &m.Instances, 8, (*Saved).Fields)
}
