package registry

import (
	"iter"
	"sync/atomic"
)

// renew is a heartbeat. The lease is renewed before the timestamps are compared, so also where the
// answer is Newer or Older; only an instance without a status is not renewed, and none by what was
// heard of a life that is over.
// Source: com.netflix.eureka.registry.AbstractInstanceRegistry.renew, InstanceResource.renewLease.
func (r *Registry) renew(origin Origin, op Renew) Result {
	l := r.handles.byHandle(op.Handle)
	if op.Handle == (Handle{}) {
		l = r.handles.byKey(op.Key)
		if l == nil {
			return r.renewUnknown(origin, op)
		}
	}
	if l == nil {
		return Result{Outcome: GoneHandle}
	}
	if op.Life != 0 && op.Life < l.Life {
		return Result{Outcome: Older}
	}
	i := l.Instance
	if l.Permanent {
		return r.renewPermanent(origin, op, l)
	}
	status := decide(i.Status, i.Overridden, i.Status, origin.Replicated())
	if status == Unknown {
		return Result{Outcome: NotFound}
	}
	var changed Result
	if r.heartbeatAgo(l, origin, op.Age) {
		r.expectation.Current++
		changed = r.renewOwner(l, origin)
	}
	if status != i.Status {
		i = i.with(status, i.Overridden, i.LastDirty)
		changed = r.change(r.handles.byHandle(l.Handle), i, origin, Event{Kind: EventStatus})
	}
	if op.Life > l.Life {
		changed.Outcome = Newer
		return changed
	}
	return r.compare(origin, op, i, changed)
}

// renewPermanent answers a heartbeat of an instance that has no lease: there is nothing to renew. Another
// server that knows a newer one is to tell it.
func (r *Registry) renewPermanent(origin Origin, op Renew, l *Lease) Result {
	if !origin.Replicated() {
		return Result{}
	}
	if op.Life > l.Life {
		return Result{Outcome: Newer}
	}
	op.Overridden = Unknown // it comes with the registration
	return r.compare(origin, op, l.Instance, Result{})
}

// renewUnknown answers the renewal of an instance that has no lease. What another server heard before it
// heard of the cancel it is to forget; a Eureka server, which tells no lives, may take its own cancel back.
func (r *Registry) renewUnknown(origin Origin, op Renew) Result {
	rec, ok := r.record(op.Key)
	if !ok || rec.Kind != Canceled {
		return Result{Outcome: NotFound}
	}
	if op.Life > 0 && rec.Lease.compareVersion(op.Life, op.LastDirty) >= 0 {
		return Result{Outcome: Refused}
	}
	if op.Life == 0 && origin.Kind == RemoteDC && origin == rec.Lease.Origin && op.LastDirty >= rec.Lease.Instance.LastDirty {
		r.pardon(rec)
	}
	return Result{Outcome: NotFound}
}

// Ignores says that a renewal by name would be answered NotFound and change nothing: there is no such lease, and
// no cancel of it on record that the renewal could say something about.
func (r *Registry) Ignores(origin Origin, op Renew) bool {
	if r.handles.byKey(op.Key) != nil {
		return false
	}
	if op.Life == 0 && !origin.Replicated() {
		return true
	}
	rec, ok := r.record(op.Key)
	return !ok || rec.Kind != Canceled
}

// pardon lets an instance come back that a Eureka server canceled and then renewed: it lives there, and
// the cancel was one of before that was sent again. The Register which the server's sender makes of the
// answer is no newer than the cancel, so the record stops refusing it, and counts a life of which no other
// server has heard that it was canceled. It is no change: readers see none.
func (r *Registry) pardon(rec Removal) {
	if !r.known.any() {
		return // nodes of the version before this one do not know of it
	}
	l := *rec.Lease
	l.Life++
	rec.Kind, rec.Lease = Evicted, &l
	r.amend(rec)
}

// compare answers a renewal by the timestamps of the sender's and the stored instance. A server that
// has a newer one tells the override with it, which is stored at once.
func (r *Registry) compare(origin Origin, op Renew, stored *Instance, res Result) Result {
	switch {
	case op.LastDirty == 0 || op.LastDirty == stored.LastDirty:
		return res
	case op.LastDirty > stored.LastDirty:
		if origin.Replicated() && op.Overridden != Unknown && op.Overridden != stored.Overridden {
			l := r.handles.byKey(stored.Key())
			i := stored.with(stored.Status, op.Overridden, stored.LastDirty)
			res = r.edit(l, i, origin, Event{Kind: EventOverridden})
		}
		res.Outcome = Newer
	case origin.Replicated():
		res.Outcome = Older
	}
	return res
}

const renewalsPerChunk = 1024

// renewal is the last renewal of the lease in one slot, and what is remembered of it. Generation 0 means that the slot is free.
type renewal struct {
	generation  atomic.Uint64
	lease, wall atomic.Int64
	history     atomic.Pointer[past]
	beats       [2]atomic.Uint64 // the last one by teller
	doubts      atomic.Uint32    // how many there had been at the last renewal
	// Of the writer alone: the last renewals by clients of the own datacenter, and by others (lease
	// clock, ms; 0: none).
	client, remote int64
}

// renewals is the table of last renewals by slot. One goroutine writes; any number of readers look
// at it without locks, through views made before or after a write. It grows by chunks that never
// move, so that a reader's chunk stays the live one.
type renewals struct {
	chunks atomic.Pointer[[]*[renewalsPerChunk]renewal]
	beats  atomic.Uint64 // the newest Beat
	doubts atomic.Uint32 // see Registry.Doubt
}

func newRenewals() *renewals {
	t := new(renewals)
	t.chunks.Store(new([]*[renewalsPerChunk]renewal))
	return t
}

// grow makes room for a number of slots.
func (t *renewals) grow(slots int) {
	old := *t.chunks.Load()
	need := (slots + renewalsPerChunk - 1) / renewalsPerChunk
	if need <= len(old) {
		return
	}
	chunks := make([]*[renewalsPerChunk]renewal, need)
	for i := copy(chunks, old); i < need; i++ {
		chunks[i] = new([renewalsPerChunk]renewal)
	}
	t.chunks.Store(&chunks)
}

func (t *renewals) at(slot uint32) *renewal {
	return &(*t.chunks.Load())[slot/renewalsPerChunk][slot%renewalsPerChunk]
}

// begin gives a slot to a lease.
func (t *renewals) begin(h Handle, s Stamp, p *past) {
	e := t.at(h.Slot)
	e.history.Store(p)
	e.lease.Store(s.Lease)
	e.wall.Store(s.Wall)
	e.doubts.Store(t.doubts.Load())
	e.client, e.remote = 0, 0
	for i := range e.beats {
		e.beats[i].Store(0)
	}
	e.generation.Store(h.Gen)
}

// end frees a slot; from now on readers of its last lease fall back to what the lease says.
func (t *renewals) end(slot uint32) {
	e := t.at(slot)
	e.generation.Store(0)
	e.history.Store(nil)
}

// renew notes a renewal of the lease in a slot, and returns the lease clock of the one before.
func (t *renewals) renew(slot uint32, s Stamp) (before int64) {
	e := t.at(slot)
	before = e.lease.Load()
	e.doubts.Store(t.doubts.Load())
	e.lease.Store(s.Lease)
	e.wall.Store(s.Wall)
	return before
}

// last returns the last renewal of a lease, or ok false if its slot is free or has another lease.
// A reader that meets a renewal in the middle may get its lease clock and the wall time of the one
// before; each of the two is right for itself.
func (t *renewals) last(h Handle) (s Stamp, ok bool) {
	e := t.at(h.Slot)
	s = Stamp{Lease: e.lease.Load(), Wall: e.wall.Load()}
	// A generation is never used twice, and whoever knows h came after its beginning: if the slot is
	// h's after reading, it was so all the time.
	return s, e.generation.Load() == h.Gen
}

// past is what is remembered of a lease, nil if its slot is free or has another lease.
func (t *renewals) past(h Handle) *past {
	e := t.at(h.Slot)
	p := e.history.Load()
	if e.generation.Load() != h.Gen {
		return nil
	}
	return p
}

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
