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
	// Sender names whose Clock it is: a cluster (CP) or a node (AP); "": the peer has no such clock.
	Sender string
	// Incarnation is a random number that the sender draws when it begins to send, so that one that goes
	// on with an older copy of its data is not taken for late.
	Incarnation uint64
	Clock       int64 // the sender's lease clock at sending, ms
	Cut         int64 // ms of silence after which the link counts as cut; kept until the next Contact
	Age         int64 // ms ago, for what a node of this datacenter passes on
	// Principal is the name of who sent the message; "": nobody was asked who they are.
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

// ForgetSender forgets what is known of a sender's clock, in all its incarnations and in whatever datacenter,
// and to which principal its name belongs: the next message in its name counts as its first. NotFound: no
// sender of that name is known. It takes no Index.
type ForgetSender struct {
	Sender string
	By     Act // nothing is kept of it but the entry of the log
}

func (ForgetSender) kind() byte { return 17 }

func (op ForgetSender) fields(c *codec.Codec) ForgetSender {
	c.String(&op.Sender)
	op.By.Fields(c)
	return op
}

// Replica is the whole state of an instance as another Rollcall server has it. Applying it replaces
// what is stored where the incoming half is newer; of an instance that is stored equally it is a
// renewal, and no change.
//
// Halves of equal version that differ (two servers decided at the same moment): if only one of the two says
// that it is the owner, both keep theirs, and the owner makes a newer version of its own, which wins; else
// those with the greater Fingerprint win, on both sides.
type Replica struct {
	// Instance is what its client said last: Status is the reported one, Overridden is Unknown.
	Instance *Instance
	Life     uint32
	Edit     uint32
	// Owner is the datacenter that the instance belongs to; "": the sender's. A node of this
	// datacenter may name another. The Owner that a remote datacenter gives for an instance that is not its
	// own decides nothing, unless it is Here and the instance is not stored.
	Owner string
	// Age is how long ago the instance was last renewed, ms; UnknownAge: that is not known. One whose lease
	// has ended by that is refused, unless it is stored already or Permanent.
	Age int64
	// Overridden is the override; Unknown: none. OverrideFor is the rest of its time in ms; 0: it has
	// no end.
	Overridden  Status
	OverrideBy  Act
	OverrideFor int64
	Drain       bool // see Override
	// QuarantineFor is the rest of its quarantine, ms; 0: it is not in quarantine.
	QuarantineFor int64
	QuarantineBy  Act
	// Permanent: it has no lease (Lease.Permanent). Its Service stays with its datacenter.
	Permanent bool
	Said      int64 // see Lease
	// Yields: the sender may not take over: a living instance of this datacenter stays as it is, and none becomes this
	// datacenter's. The receiver decides it, whatever the sender says. From level 3 on.
	Yields bool
}

// Bounds of what another server, or a file, may say of an instance.
const (
	MaxCount = 1 << 31                        // lives, and edits of one: so many are never reached by counting
	MaxSpan  = 10 * 365 * 24 * 60 * 60 * 1000 // ms; no lease clock has run for longer, and no act of an operator holds for it
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

// yields walks the field Yields of an operation of another server.
func yields(c *codec.Codec, does *bool) {
	if c.Since(Level3, false) {
		c.Bool(does)
	}
}

// Here is the Replica.Owner that stands for the receiver's own datacenter. It is no name that a datacenter
// may have.
const Here = "."

// AckPeer moves a peer's cursor: every change up to it is known to the peer. It never goes back. It
// takes no Index.
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

// PausePeer stops or resumes the sending to a peer, on whatever node does it. It takes no Index.
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

// UnknownAge is the age (ms) that is sent for a lease whose last renewal is hearsay. A receiver that has the
// instance counts it as no renewal. A cluster that does not have it counts the lease as ended; for a node
// without consensus see Registry.WithoutConsensus.
const UnknownAge = 365 * 24 * 60 * 60 * 1000

// Remove is a versioned removal that another Rollcall server had first: it removes lives up to Life
// whose lastDirtyTimestamp is not newer, and leaves a record (also where nothing was stored, so that
// what was sent before it and comes after it changes nothing).
//
// A cancel by another datacenter, of an instance of this one that was last renewed before its present life began, is
// about a life of which nothing is known here: this cluster was founded anew. It removes nothing.
//
// An eviction (Kind Evicted) is refused by the owner of the instance, and by a server that a client's renewal reached
// less than Age ago, and not by hearsay. From then on the refusing server's datacenter is the owner.
type Remove struct {
	Key       Key
	Kind      ChangeKind // Canceled or Evicted
	Life      uint32
	LastDirty int64
	Owner     string // as Replica.Owner
	Age       int64  // ms since the last renewal, as the sender knows
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

// Saved is an instance as a snapshot for people has it.
type Saved struct {
	Replica                  // Owner "": this datacenter
	Service *catalog.Service // what was registered through Consul's API of this datacenter; nil: nothing
}

// Check returns an error that says why the instance cannot be restored, or nil: other servers would refuse it, or take
// themselves for its owner.
func (s *Saved) Check() error {
	if s.Owner == Here {
		return fmt.Errorf("owner %q must be the name of a datacenter, or empty", s.Owner)
	}
	return s.Replica.Check()
}

// Fields walks a saved instance.
func (s *Saved) Fields(c *codec.Codec) {
	if read := s.Replica.fields(c); c.Reading() {
		s.Replica = read
	}
	codec.Optional(c, &s.Service, (*catalog.Service).Fields)
}

// Image is what of a registry a snapshot for people has.
type Image struct {
	Nodes     []*catalog.Node // of the catalog, with their checks; by name
	Instances []Saved         // quarantined ones included; by application and id
}

// Fields walks an image.
func (m *Image) Fields(c *codec.Codec) {
	codec.List(c, &m.Nodes, 8, codec.Each((*catalog.Node).Fields))
	codec.List(c, &m.Instances, 8, (*Saved).Fields)
}
