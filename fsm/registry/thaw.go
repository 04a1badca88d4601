package registry

import (
	"errors"
	"fmt"
	"slices"
)

// Thaw builds a registry from a frozen state, verifying what can be verified (handles unique and
// inside the table, order, indexes not above Index): a snapshot that lies is refused as a whole.
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
	r.index, r.taken, r.clock, r.epoch = f.Index, f.Taken, f.Clock, f.Epoch
	r.established, r.cluster = f.Established, f.Cluster
	r.known = &known{links: f.Links, senders: f.Senders, peers: f.Peers}
	r.settings, r.transitions = f.Settings, slices.Clone(f.Transitions)
	r.returned = returned(f.Transitions)
	r.tables.registered, r.tables.canceled = slices.Clone(f.Registered), slices.Clone(f.Canceled)
	r.thawHandles(f)
	if err := r.thawNodes(f); err != nil {
		return err
	}
	for _, s := range f.Leases {
		if err := (catalogVerifier{&f, r.tables.catalog}).lease(s.Lease); err != nil {
			return fmt.Errorf("lease %s: %w", s.Lease.Key(), err)
		}
		r.thawLease(s)
	}
	r.expectation = f.Expectation // which counts the leases already
	r.thawRemovals(f)
	return r.thawHeard(f)
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

func (r *Registry) thawNodes(f Frozen) error {
	if f.CatalogIndex > f.Index {
		return fmt.Errorf("a node changed at %d, but the last change was at %d", f.CatalogIndex, f.Index)
	}
	t := r.tables.catalog
	t.changed = f.CatalogIndex
	for i, n := range f.Nodes {
		if i > 0 && f.Nodes[i-1].Name >= n.Name {
			return errors.New("nodes are not in ascending order of their names")
		}
		if err := (catalogVerifier{&f, t}).node(n); err != nil {
			return fmt.Errorf("node %q: %w", n.Name, err)
		}
		t.setNode(n)
		r.enterChecks(nil, n.Checks, Key{})
	}
	return nil
}

// thawHeard enters the heartbeats of checks, which nodes and leases brought.
func (r *Registry) thawHeard(f Frozen) error {
	if err := f.verifyHeard(r.heard()); err != nil {
		return err
	}
	t := r.tables.catalog
	for _, h := range f.Heard {
		e, _ := t.check(h.Node, h.Check)
		r.deleteEnd(e)
		e.beat.heard.Store(h.At)
		r.addEnd(e)
	}
	r.shared, t.shared = nil, nil
	return nil
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
