package registry

import (
	"fmt"
	"slices"
)

// Thaw builds a registry from a frozen state, verifying what can be verified (handles unique and
// inside the table, order, indexes not above Index): a snapshot that lies is refused as a whole.
func Thaw(f Frozen) (*Registry, error) {
	if err := f.verify(); err != nil {
		return nil, fmt.Errorf("frozen registry: %w", err)
	}
	r := New()
	r.index, r.taken, r.clock, r.epoch = f.Index, f.Taken, f.Clock, f.Epoch
	r.established, r.cluster = f.Established, f.Cluster
	r.known = &known{links: f.Links, senders: f.Senders, peers: f.Peers}
	r.settings, r.transitions = f.Settings, slices.Clone(f.Transitions)
	r.returned = returned(f.Transitions)
	r.tables.registered, r.tables.canceled = slices.Clone(f.Registered), slices.Clone(f.Canceled)
	r.thawHandles(f)
	for _, s := range f.Leases {
		r.thawLease(s)
	}
	r.expectation = f.Expectation // which counts the leases already
	r.thawRemovals(f)
	r.thawCatalog(f)
	return r, nil
}

func (r *Registry) thawHandles(f Frozen) {
	r.handles.leases = make([]*Lease, f.Slots)
	r.handles.slots = make(map[Key]uint32, len(f.Leases))
	r.handles.generation = f.Generation
	r.handles.free = slices.Clone(f.Free)
	slices.Reverse(r.handles.free) // the table uses the last one first
	r.tables.renewals.grow(int(f.Slots))
}

func (r *Registry) thawLease(s LeaseState) {
	r.tables.renewals.begin(s.Lease.Handle, s.Renewed, s.History.newest)
	slot := r.tables.renewals.at(s.Lease.Handle.Slot)
	slot.client, slot.remote = s.Client, s.Remote
	r.put(nil, s.Lease, s.Lease.Changed)
}

// thawCatalog enters nodes, and the heartbeats of checks, which the leases brought.
func (r *Registry) thawCatalog(f Frozen) {
	t := r.tables.catalog
	for _, n := range f.Nodes {
		t.setNode(n)
		r.enterChecks(nil, n.Checks, Key{})
	}
	for _, h := range f.Heard {
		e, _ := t.check(h.Node, h.Check)
		r.deleteEnd(e)
		e.beat.heard.Store(h.At)
		r.addEnd(e)
	}
	t.changed = f.CatalogIndex
	r.shared, t.shared = nil, nil
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
	// A record that was pruned may have been an application's last change. Which one is not known
	// any more, so all applications count as changed then: at worst a document is built once more.
	for app := range r.View().Apps() {
		r.tables.touch(app.Name, f.Pruned)
	}
	r.shared = nil
}
