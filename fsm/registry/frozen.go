package registry

import (
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// Frozen is the whole state of a Registry at one moment, for a snapshot: a few pointers and a copy
// of the renewal times, made in milliseconds and valid while the registry goes on. Everything that
// has an order has a canonical one, so equal registries freeze to equal values.
type Frozen struct {
	Index       Index // of the last change that readers see
	Taken       Index // the last one that Take gave out; 0: none
	Clock       Stamp
	Epoch       Epoch
	Established int64 // lease clock when the epoch was established, ms
	Cluster     string
	Slots       uint32   // size of the handle table
	Generation  uint64   // the last one given out
	Free        []uint32 // free slots, in the order in which they will be used
	Leases      []LeaseState
	Removals    []Removal // records of the change list, by Index ascending
	Pruned      Index     // newest record of removal that was pruned; 0: none
	Registered  []Recent  // newest last
	Canceled    []Recent

	Settings     Settings
	Preservation Preservation
	Transitions  []Preservation // newest last, the present one included; at most 50
	Expectation  ExpectationState

	Links   []Link // by name, as the next two
	Senders []Sender
	Peers   []PeerState

	// Nodes of the catalog, by name: the logical one ("") only if it has checks of its own.
	Nodes []*Node
	// CatalogIndex is View.CatalogIndex.
	CatalogIndex Index
	// Heard are the last heartbeats of checks with a TTL, each once, by node, then id.
	Heard []CheckHeartbeat
}

// Head walks everything of a registry that is one value.
func (f *Frozen) Head(c *codec.Codec) {
	codec.Uint(c, &f.Index)
	f.Clock.Fields(c)
	f.Epoch.Fields(c)
	c.Int64(&f.Established)
	c.String(&f.Cluster)
	c.Uint32(&f.Slots)
	c.Uint64(&f.Generation)
	codec.Uint(c, &f.Pruned)
	f.Settings.Fields(c)
	f.Preservation.Fields(c)
	f.Expectation.fields(c)
	codec.Uint(c, &f.Taken)
	codec.Uint(c, &f.CatalogIndex)
}

// CheckHeartbeat is when (lease clock, ms) a check with a TTL last had a heartbeat.
type CheckHeartbeat struct {
	Node, Check string
	At          int64
}

// Fields walks a heartbeat.
func (h *CheckHeartbeat) Fields(c *codec.Codec) {
	c.String(&h.Node)
	c.String(&h.Check)
	c.Int64(&h.At)
}

// ExpectationState is upstream's bookkeeping, see Expectation.
type ExpectationState struct {
	Clients    uint32
	Minute     int64 // which minute of the lease clock Current belongs to
	Current    uint32
	Last       uint32 // of the minute before
	NextUpdate int64  // lease clock, ms
}

func (e *ExpectationState) fields(c *codec.Codec) {
	c.Uint32(&e.Clients)
	c.Int64(&e.Minute)
	c.Uint32(&e.Current)
	c.Uint32(&e.Last)
	c.Int64(&e.NextUpdate)
}

// LeaseState is a live lease and its last renewal, sorted by application and id.
type LeaseState struct {
	Lease   *Lease
	Renewed Stamp
	History History
	// Client and Remote are the last renewals (lease clock, ms) by a client of this datacenter and by a
	// replicator; 0: none in this life.
	Client, Remote int64
}

// Fields walks a live lease.
func (s *LeaseState) Fields(c *codec.Codec) {
	codec.Ptr(c, &s.Lease).Fields(c)
	s.History.fields(c)
	s.Renewals(c)
}

// Renewals walks when a lease was last renewed.
func (s *LeaseState) Renewals(c *codec.Codec) {
	s.Renewed.Fields(c)
	c.Int64(&s.Client)
	c.Int64(&s.Remote)
}

// Removal is the record of one removal. While the delta still shows it (Full), Lease is the instance
// as it was when it went; of one that was only removed elsewhere (Registered is 0), the delta shows
// nothing. Afterwards it is reduced: of the instance its id, application and
// lastDirtyTimestamp are left, of the lease EvictedAt, Action, Life, Edit, Changed, ChangedLease, Origin,
// Owner and Quarantine.
// A record is dropped when its key is registered again, else kept for 24 h of lease clock; there are
// at most 100,000, of 256 MiB together, about.
type Removal struct {
	Kind    ChangeKind
	Full    bool
	Lease   *Lease
	History History // of the instance, up to and with its removal; kept when the record is reduced
}

// Fields walks the record of a removal.
func (r *Removal) Fields(c *codec.Codec) {
	codec.Enum(c, &r.Kind, Evicted, "kind of removal") // Hidden is the kind of a live instance
	c.Bool(&r.Full)
	codec.Ptr(c, &r.Lease).Fields(c)
	r.History.fields(c)
}

// Freeze captures the state.
func (r *Registry) Freeze() Frozen {
	f := r.frozen()
	f.Free, f.Leases, f.Removals = r.freeSlots(), r.leaseStates(), r.removals()
	return f
}

// FreezeSince captures what was changed after an index, for a disk that has the state up to there: the
// live leases and the records of removals with a newer Index, each by Index ascending, and all else as
// Freeze does, without Free. Where Pruned is newer than the index it is not all: Freeze is needed. Records that
// changed without an Index are those of Amended.
func (r *Registry) FreezeSince(after Index) Frozen {
	f := r.frozen()
	r.tables.live.Ascend(after+1, func(_ Index, l *Lease) bool {
		f.Leases = append(f.Leases, r.leaseState(l))
		return true
	})
	r.tables.removed.Ascend(after+1, func(_ Index, rec Removal) bool {
		f.Removals = append(f.Removals, rec)
		return true
	})
	return f
}

// frozen is all of the state that is no list of leases, slots or records of removals.
func (r *Registry) frozen() Frozen {
	return Frozen{
		Index:       r.index,
		Taken:       r.taken,
		Clock:       r.clock,
		Epoch:       r.epoch,
		Established: r.established,
		Cluster:     r.cluster,
		Slots:       uint32(len(r.handles.leases)),
		Generation:  r.handles.generation,
		Pruned:      r.tables.pruned,
		Registered:  slices.Clone(r.tables.registered),
		Canceled:    slices.Clone(r.tables.canceled),

		Settings:     r.settings,
		Preservation: r.preservation(),
		Transitions:  slices.Clone(r.transitions),
		Expectation:  r.expectation,

		Links:   r.known.links, // never written again, as the next two
		Senders: r.known.senders,
		Peers:   r.known.peers,

		Nodes:        r.nodes(),
		CatalogIndex: r.tables.catalog.changed,
		Heard:        r.heard(),
	}
}

func (r *Registry) nodes() []*Node {
	if r.tables.catalog.nodes.Len() == 0 {
		return nil
	}
	return r.tables.catalog.nodes.Values()
}

func (r *Registry) heard() []CheckHeartbeat {
	var all []CheckHeartbeat
	r.tables.catalog.checks.Scan(func(e checkEntry) bool {
		if e.beat != nil {
			all = append(all, CheckHeartbeat{e.check.Node, e.check.ID, e.beat.heard.Load()})
		}
		return true
	})
	return all
}

func (r *Registry) freeSlots() []uint32 {
	free := slices.Clone(r.handles.free)
	slices.Reverse(free) // the table uses the last one first
	return free
}

func (r *Registry) leaseStates() []LeaseState {
	states := make([]LeaseState, 0, r.tables.live.Len())
	for l := range r.View().All() {
		states = append(states, r.leaseState(l))
	}
	return states
}

// StateOf is the state of the live lease of a handle, as Freeze captures it; ok is false if there is none.
func (r *Registry) StateOf(h Handle) (s LeaseState, ok bool) {
	l := r.handles.byHandle(h)
	if l == nil {
		return LeaseState{}, false
	}
	return r.leaseState(l), true
}

func (r *Registry) leaseState(l *Lease) LeaseState {
	slot := r.tables.renewals.at(l.Handle.Slot)
	return LeaseState{
		Lease: l, Renewed: r.renewed(l), History: History{r.tables.renewals.past(l.Handle)},
		Client: slot.client, Remote: slot.remote,
	}
}

func (r *Registry) removals() []Removal {
	removals := make([]Removal, 0, r.tables.removed.Len())
	r.tables.removed.Scan(func(_ Index, rec Removal) bool {
		removals = append(removals, rec)
		return true
	})
	return removals
}
