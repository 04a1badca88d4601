package registry

import "sync/atomic"

// hearsay says whether the lease in a slot was not renewed since the last Doubt. One that is permanent
// needs no renewals.
func (t *renewals) hearsay(l *Lease) bool {
	e := t.at(l.Handle.Slot)
	return !l.Permanent && e.doubts.Load() != t.doubts.Load() && e.isOf(l)
}

// doubt makes hearsay of the last renewal of the lease in a slot.
func (t *renewals) doubt(slot uint32) { t.edit(slot).doubts.Store(t.doubts.Load() - 1) }

// renewalsPerChunk is small: after each freeze the first renewal of a chunk copies it.
const renewalsPerChunk = 256

// renewal is the last renewal of the lease in one slot, and what is remembered of it. Generation 0 means that the slot is free.
type renewal struct {
	generation  atomic.Uint64
	lease, wall atomic.Int64
	history     atomic.Pointer[past]
	beats       [2]atomic.Uint64 // the last one by teller
	doubts      atomic.Uint32    // how many there had been at the last renewal
	// The last renewals by clients of this datacenter, and, of the writer alone, by others (lease clock, ms; 0: none).
	renewedByClient atomic.Int64
	renewedByRemote int64
	// Also of the writer: a bit for each status of heartbeats for which the client was asked to register again; that of
	// Unknown for a timestamp that was replaced, see keeps.
	asked byte
}

// renewals is the table of last renewals by slot. One goroutine writes; any number of readers look
// at it without locks, through views made before or after a write. A chunk that a frozen table has, too, is copied
// before it is written: who reads it meanwhile reads what was true a moment ago.
type renewals struct {
	chunks  atomic.Pointer[[]renewalPlace]
	beats   atomic.Uint64 // the newest Beat
	doubts  atomic.Uint32 // see Registry.Doubt
	edition uint64        // of the writer alone: counts the frozen tables
}

// renewalPlace is the place of a chunk in a table.
type renewalPlace struct {
	chunk   atomic.Pointer[[renewalsPerChunk]renewal]
	edition uint64 // of the table when the chunk was made, for the writer: of an older one a frozen table has it, too
}

func newRenewals() *renewals {
	t := new(renewals)
	t.chunks.Store(new([]renewalPlace))
	return t
}

// grow makes room for a number of slots.
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

// sameChunks returns room for a number of chunks that begins with those of old.
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

// freeze returns the table as it is now, which nothing changes any more.
func (t *renewals) freeze() *renewals {
	t.edition++
	old := *t.chunks.Load()
	chunks := sameChunks(old, len(old))
	frozen := new(renewals)
	frozen.chunks.Store(&chunks)
	return frozen
}

// at is a slot to be read. One beyond the table is free.
func (t *renewals) at(slot uint32) *renewal {
	chunks := *t.chunks.Load()
	if slot/renewalsPerChunk >= uint32(len(chunks)) {
		return new(renewal)
	}
	return &chunks[slot/renewalsPerChunk].chunk.Load()[slot%renewalsPerChunk]
}

// edit is a slot to be written, until the next freeze. No lease has one beyond the table, so that nobody
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

// isOf reports whether the slot has a lease. A removed one has no slot: its handle may be of another life of this
// process or of another node, where it named something else, or it may be the zero Handle.
func (e *renewal) isOf(l *Lease) bool {
	return l.EvictedAt == 0 && l.Handle.Gen != 0 && e.generation.Load() == l.Handle.Gen
}

func sameRenewals(old *[renewalsPerChunk]renewal) *[renewalsPerChunk]renewal {
	same := new([renewalsPerChunk]renewal)
	for i := range old {
		if old[i].generation.Load() != 0 { // else what is left in the slot says nothing
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

// renew notes a renewal of the lease in a slot, and returns the lease clock of the one before.
func (t *renewals) renew(slot uint32, s Stamp) (before int64) {
	e := t.edit(slot)
	before = e.lease.Load()
	e.doubts.Store(t.doubts.Load())
	e.lease.Store(s.Lease)
	e.wall.Store(s.Wall)
	return before
}

// last returns the last renewal of a lease, or ok false if its slot is free or has another lease.
// A reader that meets a renewal in the middle may get its lease clock and the wall time of the one
// before; each of the two is right for itself.
func (t *renewals) last(l *Lease) (s Stamp, ok bool) {
	e := t.at(l.Handle.Slot)
	s = Stamp{Lease: e.lease.Load(), Wall: e.wall.Load()}
	// A generation is never used twice, and a reader that knows l came after its beginning: if the slot is
	// l's after reading, it was so all the time.
	return s, e.isOf(l)
}

// past is what is remembered of a lease, nil if its slot is free or has another lease.
func (t *renewals) past(l *Lease) *past {
	e := t.at(l.Handle.Slot)
	p := e.history.Load()
	if !e.isOf(l) {
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
		e.renewedByClient.Store(max(e.renewedByClient.Load(), at))
		return
	}
	e.renewedByRemote = max(e.renewedByRemote, at)
}

// ask sets the bit of a status in renewal.asked, and reports whether it was not set.
func (t *renewals) ask(slot uint32, status Status) bool {
	e := t.edit(slot)
	before := e.asked
	e.asked |= 1 << status
	return e.asked != before
}

// recordBeat stores a renewal of a lease that is to be sent, and returns the lease clock of the one before.
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

// count makes the next Beat that of a slot. It is in its slot before it is the newest: a reader that
// sees it as the newest, and then walks, sees it in its slot.
func (t *renewals) count(slot *atomic.Uint64) {
	next := t.beats.Load() + 1
	slot.Store(next)
	t.beats.Store(next)
}

// beatAfter says whether a lease has a beat after another one, if its slot has that lease.
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

// keep returns what puts the slot back to where it is now.
func (e *renewal) keep() (restore func()) {
	v := e.values()
	return func() { e.set(v) }
}
