package registry

import "sync/atomic"

// hearsay says whether the lease in a slot was not renewed since the last Doubt. One that is permanent
// needs no renewals.
func (t *renewals) hearsay(l *Lease) bool {
	e := t.at(l.Handle.Slot)
	return !l.Permanent && e.doubts.Load() != t.doubts.Load() && e.generation.Load() == l.Handle.Gen
}

// doubt makes hearsay of the last renewal of the lease in a slot.
func (t *renewals) doubt(slot uint32) { t.at(slot).doubts.Store(t.doubts.Load() - 1) }

const renewalsPerChunk = 1024

// renewal is the last renewal of the lease in one slot, and what is remembered of it. Generation 0 means that the slot is free.
type renewal struct {
	generation  atomic.Uint64
	lease, wall atomic.Int64
	history     atomic.Pointer[past]
	beats       [2]atomic.Uint64 // the last one by teller
	doubts      atomic.Uint32    // how many there had been at the last renewal
	// Of the writer alone: the last renewals by clients of this datacenter, and by others (lease
	// clock, ms; 0: none).
	renewedByClient, renewedByRemote int64
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

// assign gives a slot to a lease.
func (t *renewals) assign(h Handle, s Stamp, p *past) {
	e := t.at(h.Slot)
	e.history.Store(p)
	e.lease.Store(s.Lease)
	e.wall.Store(s.Wall)
	e.doubts.Store(t.doubts.Load())
	e.renewedByClient, e.renewedByRemote = 0, 0
	for i := range e.beats {
		e.beats[i].Store(0)
	}
	e.generation.Store(h.Gen)
}

// release frees a slot; from now on readers of its last lease fall back to what the lease says.
func (t *renewals) release(slot uint32) {
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
	// A generation is never used twice, and a reader that knows h came after its beginning: if the slot is
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

// Beat counts the renewals that are to be sent to others, in the order of their arrival at this node.
// It is no part of the state: it begins anew with every start.
type Beat uint64

// The renewals that are sent: those of clients to all peers, those of remote datacenters to nodes of this one. A renewal
// that such a node sends is not sent on.
const (
	beatsOfClients = iota
	beatsOfRemotes
)

// attribute stores whether a renewal of the lease in a slot was by a client of this datacenter or by a remote one. A
// node of this datacenter counts as the clients that renew the lease in general, which are the owner's.
func (e *renewal) attribute(l *Lease, origin Origin, at int64) {
	if origin.Kind == Client || origin.Kind == LocalPeer && l.Local() {
		e.renewedByClient = max(e.renewedByClient, at)
		return
	}
	e.renewedByRemote = max(e.renewedByRemote, at)
}

// recordBeat stores a renewal of a lease that is to be sent, and returns the lease clock of the one before.
func (t *renewals) recordBeat(l *Lease, origin Origin, s Stamp) (before int64) {
	e := t.at(l.Handle.Slot)
	before = t.renew(l.Handle.Slot, s)
	e.attribute(l, origin, s.Lease)
	switch origin.Kind {
	case Client:
		t.count(&e.beats[beatsOfClients])
	case RemoteDC:
		t.count(&e.beats[beatsOfRemotes])
	}
	return before
}

// count makes the next Beat that of a slot. It is in its slot before it is the newest: a reader that
// sees it as the newest, and then walks, sees it in its slot.
func (t *renewals) count(slot *atomic.Uint64) {
	next := t.beats.Load() + 1
	slot.Store(next)
	t.beats.Store(next)
}

// beatAfter says whether a lease has a beat after another one, if its slot has that lease.
func (t *renewals) beatAfter(h Handle, after Beat, remote bool) bool {
	e := t.at(h.Slot)
	beats := e.beats[beatsOfClients].Load()
	if remote {
		beats = max(beats, e.beats[beatsOfRemotes].Load())
	}
	return Beat(beats) > after && e.generation.Load() == h.Gen
}

// keep returns what puts the slot back to where it is now.
func (e *renewal) keep() (restore func()) {
	generation, lease, wall, history := e.generation.Load(), e.lease.Load(), e.wall.Load(), e.history.Load()
	beats, doubts := [2]uint64{e.beats[0].Load(), e.beats[1].Load()}, e.doubts.Load()
	client, remote := e.renewedByClient, e.renewedByRemote
	return func() {
		e.history.Store(history)
		e.lease.Store(lease)
		e.wall.Store(wall)
		e.doubts.Store(doubts)
		e.renewedByClient, e.renewedByRemote = client, remote
		for i := range beats {
			e.beats[i].Store(beats[i])
		}
		e.generation.Store(generation)
	}
}
