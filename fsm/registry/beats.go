package registry

import (
	"iter"
	"sync/atomic"
)

// Beat counts the renewals that are to be told to others, in the order of their arrival at this node.
// It is no part of the state: it begins anew with every start.
type Beat uint64

// Whose renewals are told: those of clients to all peers, those of remote datacenters to nodes of the
// own one. What such a node tells goes nowhere.
const (
	toldByClient = iota
	toldByRemote
)

// hear notes when whose renewal of the lease in a slot was the last. A node of the own datacenter speaks
// for those who renew the lease in general, which are the owner's clients.
func (e *renewal) hear(l *Lease, origin Origin, at int64) {
	if origin.Kind == Client || origin.Kind == LocalPeer && l.Local() {
		e.client = max(e.client, at)
		return
	}
	e.remote = max(e.remote, at)
}

// beat notes a renewal of a lease that is to be told, and returns the lease clock of the one before.
func (t *renewals) beat(l *Lease, origin Origin, s Stamp) (before int64) {
	e := t.at(l.Handle.Slot)
	before = t.renew(l.Handle.Slot, s)
	e.hear(l, origin, s.Lease)
	switch origin.Kind {
	case Client:
		t.count(&e.beats[toldByClient])
	case RemoteDC:
		t.count(&e.beats[toldByRemote])
	}
	return before
}

// count makes the next Beat that of a slot. It is there before it counts as the newest: whoever sees
// it as such, and then walks, sees it in its slot.
func (t *renewals) count(slot *atomic.Uint64) {
	next := t.beats.Load() + 1
	slot.Store(next)
	t.beats.Store(next)
}

// beatAfter says whether a lease has a beat after another one, if its slot has that lease.
func (t *renewals) beatAfter(h Handle, after Beat, remote bool) bool {
	e := t.at(h.Slot)
	beats := e.beats[toldByClient].Load()
	if remote {
		beats = max(beats, e.beats[toldByRemote].Load())
	}
	return Beat(beats) > after && e.generation.Load() == h.Gen
}

// Beats is the newest Beat, live.
func (v *View) Beats() Beat { return Beat(v.tables.renewals.beats.Load()) }

// RenewedAfter yields the leases that were renewed after a beat, live: by clients of this datacenter
// and, if remote is set, by remote datacenters too (which is told to nodes of the own datacenter
// only). It walks all leases. Whoever notes Beats before the walk misses none.
func (v *View) RenewedAfter(after Beat, remote bool) iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		if v.Beats() <= after {
			return
		}
		v.tables.live.Scan(func(_ Index, l *Lease) bool {
			return !v.tables.renewals.beatAfter(l.Handle, after, remote) || yield(l)
		})
	}
}
