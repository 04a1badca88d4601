package registry

import "iter"

// Version says which of two copies of an instance, on two servers, is the newer one: what the client
// says of itself by life, then lastDirtyTimestamp; what operators decided of it by life, then Edit.
// The two halves are compared, and merged, each for itself, so that an override set on one side of a
// cut and a registration on the other both survive it.
type Version struct {
	Life      uint32
	LastDirty int64  // ms by the client's clock
	Edit      uint32 // Lease.Edit
}

// Replica is the whole state of an instance as another Rollcall server has it. Applying it replaces
// what is stored where the incoming half is newer; of an instance that is stored equally it is a
// renewal, and no change.
//
// Halves of equal version that differ (two servers decided at the same moment) are settled alike on
// both sides: those of the owner's datacenter win, else those with the greater Fingerprint.
type Replica struct {
	// Instance is what its client said last: Status is the reported one, Overridden is Unknown.
	Instance *Instance
	Life     uint32
	Edit     uint32
	// Owner is the datacenter that the instance belongs to; "": the sender's own. Only a server of the
	// own datacenter may name another.
	Owner string
	// Age is how long ago the instance was last renewed, ms. One whose lease has ended by that is
	// refused, unless it is stored already.
	Age int64
	// Overridden is the override; Unknown: none. OverrideFor is the rest of its time in ms; 0: it has
	// no end.
	Overridden  Status
	OverrideBy  Act
	OverrideFor int64
	// QuarantineFor is the rest of its quarantine, ms; 0: there is none.
	QuarantineFor int64
	QuarantineBy  Act
}

// Remove is a versioned removal that another Rollcall server had first: it removes lives up to Life
// whose lastDirtyTimestamp is not newer, and leaves a record (also where nothing was stored, so that
// what was sent before it and comes after it changes nothing).
//
// An eviction (Kind Evicted) is refused by whoever owns the instance or has heard a client's renewal
// less than Age ago; the owner of an instance that was refused so is the own datacenter from then on.
type Remove struct {
	Key       Key
	Kind      ChangeKind // Canceled or Evicted
	Life      uint32
	LastDirty int64
	Owner     string // as Replica.Owner
	Age       int64  // ms since the last renewal, as the sender knows
}

// Contact notes that a peer was heard, at most once per second and peer. It takes no Index.
type Contact struct {
	// DC is the remote datacenter (or Eureka server) whose link is alive; "": a node of the own one.
	DC string
	// Sender names whose Clock it is: a cluster (CP) or a node (AP); "": the peer has no such clock.
	Sender string
	Boot   uint64 // of the sender: a clock of an older boot is from the past, whatever it shows
	Clock  int64  // the sender's lease clock at sending, ms
	Cut    int64  // ms of silence after which the link counts as cut; kept until the next Contact
	Age    int64  // ms ago, for what a node of the own datacenter passes on
}

// AckPeer moves a peer's cursor: every change up to it is known to the peer. It never goes back. It
// takes no Index.
type AckPeer struct {
	Peer   string
	Cursor Index
}

// PausePeer stops or resumes the sending to a peer, on whatever node does it. It takes no Index.
type PausePeer struct {
	Peer   string
	Paused bool
	By     Act
}

func (Replica) isOp()   {}
func (Remove) isOp()    {}
func (Contact) isOp()   {}
func (AckPeer) isOp()   {}
func (PausePeer) isOp() {}

// Link is what is known of the link from a remote datacenter. Times are lease clock, ms.
type Link struct {
	DC    string
	Heard int64 // last contact
	Since int64 // when the present contact began: a silence of more than Cut ends one
	Cut   int64
}

// Silent says whether the link counts as cut at a moment of the lease clock.
func (l Link) Silent(now int64) bool { return now-l.Heard > l.Cut }

// Sender is the newest that was heard of a sender's clock.
type Sender struct {
	Name  string
	Boot  uint64
	Clock int64 // the sender's lease clock, ms
}

// Late is by how much (ms) a message of the sender, stamped with its boot and lease clock, is older
// than the newest that is known of it: what is played again, or was held up on its way, renews
// nothing. A message of an older boot is as late as can be.
func (s Sender) Late(boot uint64, clock int64) int64 {
	switch {
	case boot < s.Boot:
		return maxLead
	case boot > s.Boot:
		return 0
	}
	return max(0, s.Clock-clock)
}

// PeerState is what the state keeps of a peer that this side sends to.
type PeerState struct {
	Name   string
	Cursor Index
	Known  bool // a cursor was acknowledged
	Paused bool
	By     Act   // who paused it
	Since  Stamp // when it was paused or resumed
}

// Link returns what is known of the link from a datacenter; ok is false if nothing was ever heard.
func (v *View) Link(dc string) (l Link, ok bool) { panic("not written") }

// Sender returns what is known of a sender's clock; the zero Sender if nothing was heard.
func (v *View) Sender(name string) Sender { panic("not written") }

// Peer returns what the state keeps of a peer.
func (v *View) Peer(name string) PeerState { panic("not written") }

// Beat counts the renewals that are to be told to others, in the order of their arrival at this node.
// It is no part of the state: it begins anew with every start.
type Beat uint64

// Beats is the newest Beat, live.
func (v *View) Beats() Beat { panic("not written") }

// RenewedAfter yields the leases that were renewed after a beat, live: by clients of this datacenter
// and, if remote is set, by remote datacenters too (which is told to nodes of the own datacenter
// only). It walks all leases. Whoever notes Beats before the walk misses none.
func (v *View) RenewedAfter(after Beat, remote bool) iter.Seq[*Lease] { panic("not written") }

// Version is that of the lease's instance.
func (l *Lease) Version() Version {
	return Version{Life: l.Life, LastDirty: l.Instance.LastDirty, Edit: l.Edit}
}

// ReplicaOf is a live lease as it is told to other servers, at a moment of the lease clock (ms).
func (v *View) ReplicaOf(l *Lease, now int64) Replica { panic("not written") }

// RemoveOf is a record of removal as it is told to other servers, at a moment of the lease clock (ms).
func (v *View) RemoveOf(rec Removal, now int64) Remove { panic("not written") }

// Removals yields the records of removals, oldest first.
func (v *View) Removals() iter.Seq[Removal] { panic("not written") }

// Fingerprint is a number that differs, in all likelihood, where two instances do: over everything
// that their clients say (with the lease times as they count), but the status and the override.
func (i *Instance) Fingerprint() uint64 { panic("not written") }

// Sum is an instance's part of a digest: over its id, version, reported status, override, quarantine
// (there or not) and Fingerprint. Two servers with equal copies have equal sums.
func (l *Lease) Sum() uint64 { panic("not written") }

// Digest sums up an application's instances; equal sets have equal digests.
type Digest struct {
	Count uint32
	Sum   uint64 // of Lease.Sum, modulo 2^64
}

// Settled yields the live leases, quarantined ones included, that two servers can be expected to
// agree on at a moment of the lease clock (ms): unchanged for 10 s, and not ended. all is false: only
// those of an owner ("": the own datacenter).
func (v *View) Settled(now int64, all bool, owner string) iter.Seq[*Lease] { panic("not written") }
