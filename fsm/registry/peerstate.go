package registry

import (
	"iter"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// AckPeer moves a peer's cursor: every change up to it is known to the peer. It never goes back. It
// takes no Index.
type AckPeer struct {
	Peer   string
	Cursor Index
}

func (AckPeer) kind() Kind { return 15 }

func (op AckPeer) apply(r *Registry, at at) Result { return r.ackPeer(op) }

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

func (PausePeer) kind() Kind { return 16 }

func (op PausePeer) apply(r *Registry, at at) Result { return r.pausePeer(op) }

func (op PausePeer) fields(c *codec.Codec) PausePeer {
	c.String(&op.Peer)
	c.Bool(&op.Paused)
	op.By.fields(c)
	return op
}

// PeerState is what the state keeps of a peer that this side sends to.
type PeerState struct {
	Name   string
	Cursor Index
	Known  bool // a cursor was acknowledged
	Paused bool
	By     Act   // who paused or resumed it
	Since  Stamp // when
}

// Fields walks a peer.
func (p *PeerState) Fields(c *codec.Codec) {
	c.String(&p.Name)
	codec.Uint(c, &p.Cursor)
	c.Bool(&p.Known)
	c.Bool(&p.Paused)
	p.By.fields(c)
	p.Since.Fields(c)
}

// ackPeer moves a peer's cursor, at most to the newest change.
func (r *Registry) ackPeer(op AckPeer) Result {
	p := r.known.peer(op.Peer)
	cursor := min(op.Cursor, r.index)
	if p.Known && cursor <= p.Cursor {
		return Result{}
	}
	p.Cursor, p.Known = cursor, true
	r.learn(func(k *known) { k.peers = with(k.peers, p) })
	return Result{}
}

// pausePeer stops or resumes the sending to a peer.
func (r *Registry) pausePeer(op PausePeer) Result {
	p := r.known.peer(op.Peer)
	if p.Paused == op.Paused {
		return Result{}
	}
	p.Paused, p.By, p.Since = op.Paused, op.By.clone(), r.clock
	r.learn(func(k *known) { k.peers = with(k.peers, p) })
	return Result{}
}

// peer is the state of a peer, to be changed.
func (k *known) peer(name string) PeerState {
	p, ok := find(k.peers, name)
	if !ok {
		p.Name = strings.Clone(name)
	}
	return p
}

// Peer returns what the state keeps of a peer.
func (v *View) Peer(name string) PeerState {
	p, ok := find(v.known.peers, name)
	if !ok {
		p.Name = name
	}
	return p
}

// ReplicaOf is a live lease as it is told to other servers, at a moment of the lease clock (ms).
func (v *View) ReplicaOf(l *Lease, now int64) Replica {
	i := l.Instance
	op := Replica{
		Instance: i.with(l.reported(), Unknown, i.LastDirty), Life: l.Life, Edit: l.Edit, Owner: l.Owner,
		Age: v.Age(l, now), Overridden: i.Overridden, Permanent: l.Permanent,
	}
	if o := l.Override; o != nil {
		op.OverrideBy = o.By
		if o.Until > 0 {
			op.OverrideFor = rest(o.Until, now)
		}
	}
	if q := l.Quarantine; q != nil {
		op.QuarantineBy, op.QuarantineFor = q.By, rest(q.Until, now)
	}
	return op
}

// rest is the time (ms) until an end. One that is due has not ended: 0 would say that there is none.
func rest(until, now int64) int64 { return max(until-now, 1) }

// RemoveOf is a record of removal as it is told to other servers, at a moment of the lease clock (ms).
// Of a reduced one the last renewal is not known; it counts as renewed when it was removed.
func (v *View) RemoveOf(rec Removal, now int64) Remove {
	l := rec.Lease
	return Remove{
		Key: l.Key(), Kind: rec.Kind, Life: l.Life, LastDirty: l.Instance.LastDirty, Owner: l.Owner,
		Age: max(now-rec.renewed(), 0),
	}
}

// renewed is the last renewal (lease clock, ms) of what was removed, or the removal where that is not
// known, or not any more.
func (m Removal) renewed() int64 {
	if m.Full && m.Lease.wasHere() {
		return m.Lease.RenewedAt.Lease
	}
	return m.Lease.ChangedLease
}

// wasHere says of a removed lease that it was stored here, not only known to be removed elsewhere.
func (l *Lease) wasHere() bool { return l.Registered > 0 }

// Removals yields the records of removals, oldest first.
func (v *View) Removals() iter.Seq[Removal] {
	return func(yield func(Removal) bool) {
		v.tables.removed.Scan(func(_ Index, rec Removal) bool { return yield(rec) })
	}
}

// UnknownAge is the age (ms) that is told of a lease whose last renewal is hearsay: whoever has the
// instance takes it for no renewal. A cluster that has it not takes the lease for one that has ended; a node
// without consensus see Registry.WithoutConsensus.
const UnknownAge = 365 * 24 * 60 * 60 * 1000

// Doubt makes hearsay of all renewals so far, because the lease clock stood still for an unknown time: the
// node was down, or its process was paused. Hearsay is as old as the lease clock says, or any older. It
// keeps a lease from ending here, but is told to nobody as a renewal and is no ground to keep what another
// server has seen end. The next renewal of a lease is as good as ever. It is no part of the state, and for
// a registry without consensus only: a cluster's lease clock runs whichever node is down.
func (r *Registry) Doubt() { r.tables.renewals.doubts.Add(1) }

// WithoutConsensus makes this the registry of one node for itself. It enters what it knows nothing of also if
// that is hearsay elsewhere: who told it may have acknowledged it before it was down, and told nobody. It gets
// one lease. What ended meanwhile has a record of removal here.
func (r *Registry) WithoutConsensus() { r.withoutConsensus = true }

// hearsay says whether the lease in a slot was not renewed since the last Doubt. One that is permanent
// needs no renewals.
func (t *renewals) hearsay(l *Lease) bool {
	e := t.at(l.Handle.Slot)
	return !l.Permanent && e.doubts.Load() != t.doubts.Load() && e.generation.Load() == l.Handle.Gen
}

// doubt makes hearsay of the last renewal of the lease in a slot.
func (t *renewals) doubt(slot uint32) { t.at(slot).doubts.Store(t.doubts.Load() - 1) }

// Age is how long ago (ms) a live lease was last renewed, at a moment of the lease clock (ms), as it is
// told to other servers: UnknownAge where that is hearsay.
func (v *View) Age(l *Lease, now int64) int64 {
	if v.tables.renewals.hearsay(l) {
		return UnknownAge
	}
	return max(now-v.LastRenewal(l).Lease, 0)
}
