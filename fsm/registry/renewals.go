package registry

import "sync/atomic"

// hearsay reports whether the lease in a slot has not been renewed since the last Doubt. A permanent lease needs no
// renewals.
func (t *renewals) hearsay(l *Lease) bool {
	e := t.at(l.Handle.Slot)
	return !l.Permanent && e.doubts.Load() != t.doubts.Load() && e.isOf(l)
}

// doubt makes hearsay of the last renewal of the lease in a slot.
func (t *renewals) doubt(slot uint32) { t.edit(slot).doubts.Store(t.doubts.Load() - 1) }

// renewalsPerChunk is small: after each freeze, the first renewal in a chunk copies it.
const renewalsPerChunk = 256

// renewal is the last renewal of the lease in one slot, and the lease's history. Generation 0 means that the slot is
// free.
type renewal struct {
	generation  atomic.Uint64
	lease, wall atomic.Int64
	history     atomic.Pointer[past]
	beats       [2]atomic.Uint64 // the last Beat by origin, see beatsOfClients
	doubts      atomic.Uint32    // the number of doubts at the last renewal
	// The last renewals by clients of this datacenter and, for the writer only, by others (lease clock, ms; 0: none).
	renewedByClient atomic.Int64
	renewedByRemote int64
	// Also for the writer: a bit for each status in heartbeats that made the server ask the client to register again;
	// the bit of Unknown stands for a timestamp that was replaced, see keeps.
	asked byte
}

// renewals is the table of last renewals by slot. One goroutine writes; any number of readers look at it without
// locks, through views made before or after a write. A chunk shared with a frozen table is copied before it is
// written: whoever reads it meanwhile reads what was true a moment ago.
type renewals struct {
	chunks  atomic.Pointer[[]renewalPlace]
	beats   atomic.Uint64 // the newest Beat
	doubts  atomic.Uint32 // see Registry.Doubt
	edition uint64        // for the writer only: counts the frozen tables
}

// renewalPlace is the place of a chunk in a table.
type renewalPlace struct {
	chunk   atomic.Pointer[[renewalsPerChunk]renewal]
	edition uint64 // of the table when the chunk was made, for the writer: a frozen table shares older ones
}

func newRenewals() *renewals {
	t := new(renewals)
	t.chunks.Store(new([]renewalPlace))
	return t
}

// grow makes room for slots slots.
func (t *renewals) grow(slots int) {
	old := *t.chunks.Load()
	need := (slots + renewalsPerChunk - 1) / renewalsPerChunk
	if need <= len(old) {
		return
	}
	chunks := sameChunks(old, need)
	for i := len(old); i < need; i++ {
		chunks[i].set(new([renewalsPerChunk]renewal), t.edition)
	}
	t.chunks.Store(&chunks)
}

// sameChunks returns room for need chunks, beginning with those of old.
func sameChunks(old []renewalPlace, need int) []renewalPlace {
	chunks := make([]renewalPlace, need)
	for i := range old {
		chunks[i].set(old[i].chunk.Load(), old[i].edition)
	}
	return chunks
}

func (p *renewalPlace) set(chunk *[renewalsPerChunk]renewal, edition uint64) {
	p.chunk.Store(chunk)
	p.edition = edition
}

// freeze returns the table as it is now; the copy never changes.
func (t *renewals) freeze() *renewals {
	t.edition++
	old := *t.chunks.Load()
	chunks := sameChunks(old, len(old))
	frozen := new(renewals)
	frozen.chunks.Store(&chunks)
	return frozen
}

// at returns a slot for reading. Any slot beyond the table is free.
func (t *renewals) at(slot uint32) *renewal {
	chunks := *t.chunks.Load()
	if slot/renewalsPerChunk >= uint32(len(chunks)) {
		return new(renewal)
	}
	return &chunks[slot/renewalsPerChunk].chunk.Load()[slot%renewalsPerChunk]
}

// edit returns a slot for writing, until the next freeze. A slot beyond the table belongs to no lease, so nobody
// reads what is written to it.
func (t *renewals) edit(slot uint32) *renewal {
	chunks := *t.chunks.Load()
	if slot/renewalsPerChunk >= uint32(len(chunks)) {
		return new(renewal)
	}
	place := &chunks[slot/renewalsPerChunk]
	if place.edition != t.edition {
		place.set(sameRenewals(place.chunk.Load()), t.edition)
	}
	return &place.chunk.Load()[slot%renewalsPerChunk]
}

// isOf reports whether the slot has the lease l. A removed lease has no slot: its handle may come from another run of
// this process or from another node, where it named something else, or it may be the zero Handle.
func (e *renewal) isOf(l *Lease) bool {
	return l.EvictedAt == 0 && l.Handle.Gen != 0 && e.generation.Load() == l.Handle.Gen
}

func sameRenewals(old *[renewalsPerChunk]renewal) *[renewalsPerChunk]renewal {
	same := new([renewalsPerChunk]renewal)
	for i := range old {
		if old[i].generation.Load() != 0 { // else the slot's leftovers mean nothing
			same[i].set(old[i].values())
		}
	}
	return same
}

// assign gives a slot to a lease.
func (t *renewals) assign(h Handle, s Stamp, p *past) {
	e := t.edit(h.Slot)
	e.history.Store(p)
	e.lease.Store(s.Lease)
	e.wall.Store(s.Wall)
	e.doubts.Store(t.doubts.Load())
	e.renewedByClient.Store(0)
	e.renewedByRemote, e.asked = 0, 0
	for i := range e.beats {
		e.beats[i].Store(0)
	}
	e.generation.Store(h.Gen)
}

// release frees a slot; from now on readers of its last lease fall back to what the lease says.
func (t *renewals) release(slot uint32) {
	e := t.edit(slot)
	e.generation.Store(0)
	e.history.Store(nil)
}

// renew records a renewal of the lease in a slot, and returns the lease clock of the one before.
func (t *renewals) renew(slot uint32, s Stamp) (before int64) {
	e := t.edit(slot)
	before = e.lease.Load()
	e.doubts.Store(t.doubts.Load())
	e.lease.Store(s.Lease)
	e.wall.Store(s.Wall)
	return before
}

// last returns the last renewal of a lease, or ok false if its slot is free or has another lease. A reader that meets
// a renewal halfway may get its lease clock with the previous wall time; each of the two is right on its own.
func (t *renewals) last(l *Lease) (s Stamp, ok bool) {
	e := t.at(l.Handle.Slot)
	s = Stamp{Lease: e.lease.Load(), Wall: e.wall.Load()}
	// A generation is never used twice, and a reader that knows l came after its beginning: if the slot is l's after
	// reading, it was l's all the time.
	return s, e.isOf(l)
}

// past returns the history of a lease, or nil if its slot is free or has another lease.
func (t *renewals) past(l *Lease) *past {
	e := t.at(l.Handle.Slot)
	p := e.history.Load()
	if !e.isOf(l) {
		return nil
	}
	return p
}

// Beat counts the renewals that other servers must be sent, in the order of their arrival at this node. It is not
// part of the state: it starts again at every start.
type Beat uint64

// The renewals that are sent on: those by clients go to all peers, those by remote datacenters to the nodes of this
// one. A renewal sent by a node of this datacenter goes no further.
const (
	beatsOfClients = iota
	beatsOfRemotes
)

// attribute records whether a client of this datacenter or a remote one renewed the lease in a slot. A node of this
// datacenter counts as the clients that usually renew the lease, which are the owner's.
func (e *renewal) attribute(l *Lease, origin Origin, at int64) {
	if origin.Kind == Client || origin.Kind == LocalPeer && l.Local() {
		e.renewedByClient.Store(max(e.renewedByClient.Load(), at))
		return
	}
	e.renewedByRemote = max(e.renewedByRemote, at)
}

// ask sets the bit of a status in renewal.asked, and reports whether it was clear.
func (t *renewals) ask(slot uint32, status Status) bool {
	e := t.edit(slot)
	before := e.asked
	e.asked |= 1 << status
	return e.asked != before
}

// recordBeat stores a renewal that other servers may have to be sent, and returns the lease clock of the one before.
func (t *renewals) recordBeat(l *Lease, origin Origin, s Stamp) (before int64) {
	before = t.renew(l.Handle.Slot, s)
	e := t.edit(l.Handle.Slot)
	e.attribute(l, origin, s.Lease)
	switch origin.Kind {
	case Client:
		t.count(&e.beats[beatsOfClients])
	case RemoteDC:
		t.count(&e.beats[beatsOfRemotes])
	}
	return before
}

// count gives the next Beat to a slot. It is in its slot before it counts as the newest: a reader that sees it as the
// newest, and then walks, sees it in its slot.
func (t *renewals) count(slot *atomic.Uint64) {
	next := t.beats.Load() + 1
	slot.Store(next)
	t.beats.Store(next)
}

// beatAfter reports whether a lease has a beat after another, if its slot still has that lease.
func (t *renewals) beatAfter(l *Lease, after Beat, remote bool) bool {
	e := t.at(l.Handle.Slot)
	beats := e.beats[beatsOfClients].Load()
	if remote {
		beats = max(beats, e.beats[beatsOfRemotes].Load())
	}
	return Beat(beats) > after && e.isOf(l)
}

// renewalValues are the values of a slot.
type renewalValues struct {
	generation     uint64
	lease, wall    int64
	history        *past
	beats          [2]uint64
	doubts         uint32
	client, remote int64
	asked          byte
}

func (e *renewal) values() renewalValues {
	return renewalValues{
		generation: e.generation.Load(), lease: e.lease.Load(), wall: e.wall.Load(), history: e.history.Load(),
		beats: [2]uint64{e.beats[0].Load(), e.beats[1].Load()}, doubts: e.doubts.Load(),
		client: e.renewedByClient.Load(), remote: e.renewedByRemote, asked: e.asked,
	}
}

// set is the inverse of values. The generation comes last, see last.
func (e *renewal) set(v renewalValues) {
	e.history.Store(v.history)
	e.lease.Store(v.lease)
	e.wall.Store(v.wall)
	e.doubts.Store(v.doubts)
	e.renewedByClient.Store(v.client)
	e.renewedByRemote, e.asked = v.remote, v.asked
	for i := range e.beats {
		e.beats[i].Store(v.beats[i])
	}
	e.generation.Store(v.generation)
}
