package registry

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
)

// Captured is the state at one moment. Making it takes microseconds, however many instances there are, and it stays
// valid while the registry goes on.
type Captured struct {
	rest     Frozen // all but Leases and Removals
	view     *View
	renewals *renewals
}

// Capture captures the state.
func (r *Registry) Capture() *Captured {
	c := &Captured{rest: r.frozen(), view: r.View(), renewals: r.tables.renewals.freeze()}
	c.rest.Free = slices.Clone(r.handles.free)
	slices.Reverse(c.rest.Free) // the table uses the last one first
	return c
}

// makeWayAfter is how many leases are listed before other goroutines may run: renewals arrive meanwhile.
const makeWayAfter = 1024

// Frozen makes the lists of what was captured, which takes long if they are long.
func (c *Captured) Frozen() Frozen {
	f, tables := c.rest, c.view.tables
	f.Leases = make([]LeaseState, 0, tables.live.Len())
	for l := range c.view.All() {
		f.Leases = append(f.Leases, c.renewals.stateOf(l))
		if len(f.Leases)%makeWayAfter == 0 {
			runtime.Gosched()
		}
	}
	f.Removals = make([]Removal, 0, tables.removed.Len())
	for rec := range c.view.Removals() {
		f.Removals = append(f.Removals, rec)
	}
	return f
}

// Freeze captures the state and makes its lists.
func (r *Registry) Freeze() Frozen { return r.Capture().Frozen() }

// FreezeSince captures what changed after an index, for a disk that has the state up to there: the live leases and
// the records of removals with a newer Index, each by Index ascending, and everything else as Freeze does, without
// Free. If Pruned is newer than the index, this is incomplete and Freeze is needed. It leaves out records that
// changed without an Index; AmendedRecords has those.
func (r *Registry) FreezeSince(after Index) Frozen {
	f := r.frozen()
	r.tables.live.Ascend(after+1, func(_ Index, l *Lease) bool {
		f.Leases = append(f.Leases, r.tables.renewals.stateOf(l))
		return true
	})
	r.tables.removed.Ascend(after+1, func(_ Index, rec Removal) bool {
		f.Removals = append(f.Removals, rec)
		return true
	})
	return f
}

// frozen returns all of the state except the lists of leases, slots and records of removals.
func (r *Registry) frozen() Frozen {
	return Frozen{
		Index:       r.index,
		Reserved:    r.reserved,
		Clock:       r.clock,
		Epoch:       r.epoch,
		Established: r.established,
		Cluster:     r.cluster,
		Slots:       uint32(len(r.handles.leases)),
		Generation:  r.handles.generation,
		Pruned:      r.tables.pruned,
		Restored:    r.tables.restored,
		Registered:  slices.Clone(r.tables.registered),
		Canceled:    slices.Clone(r.tables.canceled),

		Settings:     r.settings,
		Preservation: r.preservation(),
		Transitions:  slices.Clone(r.transitions),
		Expectation:  r.expectation,

		Links:   r.servers.links, // never written again, like the next two
		Senders: r.servers.senders,
		Peers:   r.servers.peers,

		Nodes:           slices.Collect(r.catalog.Nodes()),
		CatalogIndex:    r.catalog.Changed(),
		Parts:           r.tables.parts,
		CheckHeartbeats: r.catalog.Heartbeats(),
	}
}

// StateOf returns the state of the live lease of a handle, as Freeze captures it; ok is false if the handle is dead.
func (r *Registry) StateOf(h Handle) (s LeaseState, ok bool) {
	l := r.handles.byHandle(h)
	if l == nil {
		return LeaseState{}, false
	}
	return r.tables.renewals.stateOf(l), true
}

// stateOf is for the writer, or for a frozen table.
func (t *renewals) stateOf(l *Lease) LeaseState {
	slot := t.at(l.Handle.Slot)
	renewed, _ := t.last(l)
	return LeaseState{
		Lease: l, Renewed: renewed, History: History{t.past(l)},
		Client: slot.renewedByClient.Load(), Remote: slot.renewedByRemote, Asked: slot.asked,
	}
}

// Thaw builds a registry from a frozen state and verifies what can be verified (handles unique and inside the table,
// order, indexes not above Index): an inconsistent snapshot is refused as a whole.
func Thaw(f Frozen) (*Registry, error) {
	r := New()
	err := f.verify()
	if err == nil {
		err = r.thaw(f)
	}
	if err != nil {
		return nil, fmt.Errorf("frozen registry: %w", err)
	}
	return r, nil
}

func (r *Registry) thaw(f Frozen) error {
	r.index, r.reserved, r.clock, r.epoch = f.Index, f.Reserved, f.Clock, f.Epoch
	r.established, r.cluster = f.Established, f.Cluster
	r.servers = &otherServers{links: f.Links, senders: f.Senders, peers: f.Peers}
	r.settings, r.transitions = f.Settings, slices.Clone(f.Transitions)
	r.resumed = evictionsResumed(f.Transitions)
	r.tables.registered, r.tables.canceled = slices.Clone(f.Registered), slices.Clone(f.Canceled)
	r.handles.leases = make([]*Lease, f.Slots)
	r.handles.slots = make(map[Key]uint32, len(f.Leases))
	r.handles.generation = f.Generation
	r.handles.free = slices.Clone(f.Free)
	slices.Reverse(r.handles.free) // the table uses the last one first
	r.tables.renewals.grow(int(f.Slots))
	at := catalog.Frozen{Moment: r.moment(), Newest: f.Index}
	if err := r.catalog.Thaw(f.Nodes, f.CatalogIndex, at); err != nil {
		return err
	}
	for _, s := range f.Leases {
		if err := r.verifyService(s.Lease, at); err != nil {
			return fmt.Errorf("lease %s: %w", s.Lease.Key(), err)
		}
		r.tables.renewals.assign(s.Lease.Handle, s.Renewed, s.History.newest)
		slot := r.tables.renewals.edit(s.Lease.Handle.Slot)
		slot.renewedByClient.Store(s.Client)
		slot.renewedByRemote, slot.asked = s.Remote, s.Asked
		r.replaceLease(nil, s.Lease, s.Lease.Changed)
	}
	r.expectation = f.Expectation // which already counts the leases
	r.thawRemovals(f)
	r.tables.restored = f.Restored
	r.tables.parts = f.Parts  // which say more than what is left
	r.catalog.ForgetTouched() // alias checks had followed
	return r.catalog.ThawHeartbeats(f.CheckHeartbeats, at.Moment)
}

func (r *Registry) thawRemovals(f Frozen) {
	r.tables.pruned = f.Pruned
	for _, rec := range f.Removals {
		r.setRecord(rec)
		r.tables.touch(rec.Lease.Instance.App, rec.Lease.Changed)
	}
	for l := range r.View().Quarantined {
		r.tables.touch(l.Instance.App, l.Changed)
	}
	// A record that was pruned may have been an application's last change. Nobody knows which one's, so all
	// applications count as changed then: at worst a document is built once more.
	for app := range r.View().Apps() {
		r.tables.touch(app.Name, f.Pruned)
	}
	r.shared = nil
}

// verifyService verifies a lease's registration through Consul's API before it enters the catalog.
func (r *Registry) verifyService(l *Lease, at catalog.Frozen) error {
	switch {
	case l.Service == nil:
		return nil
	case !l.Permanent:
		return errors.New("registered through Consul's API, with a lease")
	case strings.ToUpper(l.Service.Name) != l.Instance.App:
		return fmt.Errorf("service %q is not of this application", l.Service.Name)
	}
	return r.catalog.VerifyService(l.Service, at)
}

// Rebuild returns a registry with the state of a view, after an operation has panicked since that view was made: r
// may hold half of the operation's effect, and must not be used again. Renewals noted since the view are kept. A
// lease that the operation had begun to take apart counts as renewed now, because its last renewal is lost. Events at
// the moment of the last operation are dropped, because that operation may have recorded some. Records of removals
// that changed without an Index (AmendedRecords) are forgotten, so the disk has to be written as a whole. It takes as
// long as Thaw.
func (r *Registry) Rebuild(v *View) (*Registry, error) {
	before := *r
	before.index, before.tables, before.catalog = v.index, *v.tables, &catalog.Catalog{Tables: *v.tables.catalog}
	before.settings, before.transitions, before.expectation, before.servers = v.settings, v.transitions, v.expectation, v.servers
	f := before.frozen()
	renewals := v.tables.renewals // the live one, which views of before go on to read
	used := make([]bool, f.Slots)
	for l := range v.All() {
		if _, ok := renewals.last(l); !ok {
			renewals.assign(l.Handle, f.Clock, nil)
		}
		history := &renewals.edit(l.Handle.Slot).history
		for p := history.Load(); p != nil && p.at == f.Clock; p = history.Load() {
			history.Store(p.before)
		}
		used[l.Handle.Slot] = true
		f.Leases = append(f.Leases, renewals.stateOf(l))
	}
	for slot := range f.Slots {
		if !used[slot] {
			renewals.grow(int(slot) + 1)
			renewals.release(slot)
			f.Free = append(f.Free, slot)
		}
	}
	f.Removals = slices.Collect(v.Removals())
	rebuilt, err := Thaw(f)
	if err != nil {
		return nil, err
	}
	rebuilt.tables.renewals, rebuilt.withoutConsensus, rebuilt.level, rebuilt.shared = renewals, r.withoutConsensus, r.level, nil
	return rebuilt, nil
}
