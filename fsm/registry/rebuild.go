package registry

import "slices"

// Rebuild makes a registry anew with the state of a view, for one of whose operations panicked after that view was
// made: r may have half of what the operation does, and must not be used any more. Renewals that were noted since the
// view are kept. Where the operation had begun to take a lease apart, the lease counts as renewed now, because when
// it was renewed is not known any more. Events of the moment of the last operation are dropped, for it may have
// recorded some. Records of removals that changed without an Index (AmendedRecords) are forgotten: a disk has to be
// written as a whole. It takes as long as Thaw.
func (r *Registry) Rebuild(v *View) (*Registry, error) {
	f := Frozen{
		Index: v.index, Reserved: r.reserved, Clock: r.clock, Epoch: r.epoch, Established: r.established, Cluster: r.cluster,
		Slots: uint32(len(r.handles.leases)), Generation: r.handles.generation,
		Pruned: v.tables.pruned, Restored: v.tables.restored,
		Registered: slices.Clone(v.tables.registered), Canceled: slices.Clone(v.tables.canceled),
		Settings: v.settings, Preservation: v.Preservation(), Transitions: slices.Clone(v.transitions), Expectation: v.expectation,
		Links: v.servers.links, Senders: v.servers.senders, Peers: v.servers.peers,
		Nodes: slices.Collect(v.tables.catalog.Nodes()), CatalogIndex: v.tables.catalog.Changed(), Parts: v.tables.parts,
		CheckHeartbeats: v.tables.catalog.Heartbeats(),
	}
	renewals := v.tables.renewals // the live one, which views of before go on to read
	used := make([]bool, f.Slots)
	for l := range v.All() {
		if _, ok := renewals.last(l.Handle); !ok {
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
	for rec := range v.Removals() {
		f.Removals = append(f.Removals, rec)
	}
	rebuilt, err := Thaw(f)
	if err != nil {
		return nil, err
	}
	rebuilt.tables.renewals, rebuilt.withoutConsensus, rebuilt.shared = renewals, r.withoutConsensus, nil
	return rebuilt, nil
}
