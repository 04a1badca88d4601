package registry

import (
	"encoding/binary"
	"iter"
	"slices"
)

// Digest sums up an application's instances; equal sets have equal digests.
type Digest struct {
	Count uint32
	Sum   uint64 // of each Lease.Sum, modulo 2^64
}

// Sum returns an instance's part of a digest, over its id, version, reported status, override, quarantine (yes or no)
// and Fingerprint. Two servers with equal copies have equal sums.
func (l *Lease) Sum() uint64 {
	var space [256]byte
	id := l.Key().ID
	b := append(binary.AppendUvarint(space[:0], uint64(len(id))), id...)
	b = binary.AppendUvarint(b, uint64(l.Life))
	b = binary.AppendVarint(b, l.Instance.LastDirty)
	b = binary.AppendUvarint(b, uint64(l.Edit))
	b = append(b, byte(l.reported()), byte(l.Instance.Overridden), byte(one(l.Quarantine != nil)))
	return hashOf(binary.BigEndian.AppendUint64(b, l.Instance.Fingerprint()))
}

// ReplicaOf returns a live lease in the form for other servers, at a moment of the lease clock (ms).
func (v *View) ReplicaOf(l *Lease, now int64) Replica {
	i := l.Instance
	op := Replica{
		Instance: i.with(l.reported(), Unknown, i.LastDirty), Life: l.Life, Edit: l.Edit, Owner: l.Owner,
		Age: v.Age(l, now), Overridden: i.Overridden, Permanent: l.Permanent, Said: l.Said,
	}
	if o := l.Override; o != nil {
		op.OverrideBy, op.Drain = o.By, o.Drain
		if o.Until > 0 {
			op.OverrideFor = rest(o.Until, now)
		}
	}
	if q := l.Quarantine; q != nil {
		op.QuarantineBy, op.QuarantineFor = q.By, rest(q.Until, now)
	}
	return op
}

// SavedOf returns a live lease in the form of a snapshot for people.
func (v *View) SavedOf(l *Lease) Saved { return Saved{v.ReplicaOf(l, v.stamp.Lease), l.Service} }

// rest returns the time (ms) until an end, at least 1: 0 would mean no end, and one that is due has not ended yet.
func rest(until, now int64) int64 { return max(until-now, 1) }

// RemoveOf returns the record of a removal in the form for other servers, at a moment of the lease clock (ms). A
// reduced record does not know its last renewal; it counts as renewed when it was removed.
func (v *View) RemoveOf(rec Removal, now int64) Remove {
	l := rec.Lease
	return Remove{
		Key: l.Key(), Kind: rec.Kind, Life: l.Life, LastDirty: l.Instance.LastDirty, Owner: l.Owner,
		Age: max(now-rec.renewed(), 0),
	}
}

// Age returns how long ago (ms) a live lease was last renewed, at a moment of the lease clock (ms), for other
// servers: UnknownAge if that is hearsay here. This datacenter's permanent leases always have age 0: no client renews
// them, and they must be able to come back if another server believed them ended.
func (v *View) Age(l *Lease, now int64) int64 {
	if l.Permanent && l.Local() {
		return 0
	}
	if v.tables.renewals.hearsay(l) {
		return UnknownAge
	}
	return max(now-v.LastRenewal(l).Lease, 0)
}

// comparisonWait is how long (ms of lease clock) after a change of an instance two servers need not agree on it yet.
const comparisonWait = 10_000

// Comparable yields the live leases, including the quarantined, on which two servers should agree at a moment of the
// lease clock (ms): unchanged for 10 s, and not ended. They are sorted by application and id. Unless all is set, it
// yields only the leases of one owner ("": this datacenter).
func (v *View) Comparable(now int64, all bool, owner string) iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		for l := range v.All() {
			if (all || l.Owner == owner) && now-l.ChangedLease >= comparisonWait && v.Ends(l) >= now && !yield(l) {
				return
			}
		}
	}
}

// ComparableIndex returns the newest index of the change list up to which two servers can agree on all changes at a
// moment of the lease clock (ms). Comparisons may leave out newer changes; readers of the list must send them.
func (v *View) ComparableIndex(now int64) Index {
	newest, fresh := v.tables.pruned, v.index+1 // fresh: the oldest change that is too new
	old := func(l *Lease) bool {
		if now-l.ChangedLease < comparisonWait {
			fresh = min(fresh, l.Changed)
			return true
		}
		newest = max(newest, l.Changed)
		return false
	}
	v.tables.live.Reverse(func(_ Index, l *Lease) bool { return old(l) })
	v.tables.removed.Reverse(func(_ Index, m Removal) bool { return old(m.Lease) })
	return min(newest, fresh-1) // the limit on records may have dropped some that were made after it
}

// Timing returns by how much (ms) a message of a sender, stamped with its clock, is older than its newest known
// message: a replayed or delayed message renews nothing. It also returns by how much that clock is ahead of what it
// can show: more time has passed on it than here, by both the lease clock and the wall clock.
//
// Incarnations have no order, and nothing said in one counts in another: a message in the name of another server, or
// one with a broken clock, must not make this side ignore it. If an incarnation's message comes after a newer one, it
// is late by the time that passed here but not on its own clock.
func (v *View) Timing(dc, name string, incarnation uint64, clock int64, now Stamp) (late, ahead int64) {
	return v.servers.timing(Sender{DC: dc, Name: name, Incarnation: incarnation, Clock: clock}, now)
}

// Link returns what is known about the link from a datacenter; ok is false if there was never contact.
func (v *View) Link(dc string) (l Link, ok bool) { return find(v.servers.links, dc) }

// Senders returns everything known about senders' clocks, by name, datacenter and incarnation. Do not change it.
func (v *View) Senders() []Sender { return v.servers.senders }

// Sender returns what is known about a sender's clock in an incarnation; ok is false if nothing is. last reports that
// no other incarnation had a later message.
func (v *View) Sender(dc, name string, incarnation uint64) (s Sender, last, ok bool) {
	s = Sender{DC: dc, Name: name, Incarnation: incarnation}
	others := v.servers.incarnations(s)
	s, ok = find(v.servers.senders, s.name())
	return s, !slices.ContainsFunc(others, func(o Sender) bool { return o.LastMessage.Lease > s.LastMessage.Lease }), ok
}

// SenderPrincipal returns the principal that a sender's name belongs to, or "" if nobody has used it yet.
func (v *View) SenderPrincipal(dc, name string) string { return v.servers.principal(dc, name) }

// Peer returns what the state keeps about a peer.
func (v *View) Peer(name string) PeerState {
	p, ok := find(v.servers.peers, name)
	if !ok {
		p.Name = name
	}
	return p
}

// NewestBeat returns the newest Beat, live.
func (v *View) NewestBeat() Beat { return Beat(v.tables.renewals.beats.Load()) }

// RenewedAfter yields the leases that were renewed after a beat, live: by clients of this datacenter and, with
// remote, by remote datacenters too (which goes only to nodes of this datacenter). It walks all leases. A caller that
// reads NewestBeat before the walk misses none.
func (v *View) RenewedAfter(after Beat, remote bool) iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		if v.NewestBeat() <= after {
			return
		}
		v.tables.live.Scan(func(_ Index, l *Lease) bool {
			return !v.tables.renewals.beatAfter(l, after, remote) || yield(l)
		})
	}
}
