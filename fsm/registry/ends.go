package registry

import (
	"slices"
)

// Ending returns the operations due at a moment of the lease clock (ms), under the present epoch: an EndOverride or
// EndQuarantine for each override and quarantine whose time has passed, oldest first, then an ExpireCheck for each
// check whose TTL has passed, and a DeregisterCatalog for each service with a check that has been critical for longer
// than its ReapAfter, oldest first. It costs O(due).
func (r *Registry) Ending(now int64) []Op {
	var due []Op
	for _, e := range r.ends.Due(now) {
		if e.kind == endOfOverride {
			due = append(due, EndOverride{r.epoch, e.handle, e.set})
		} else {
			due = append(due, EndQuarantine{r.epoch, e.handle, e.set})
		}
	}
	for _, row := range r.catalog.Due(now, r.established) {
		c := row.Check
		if row.Reaped() {
			due = append(due, DeregisterCatalog{Node: c.Node, Service: c.Service, Check: c.ID, Epoch: r.epoch, CriticalSince: c.CriticalSince})
		} else {
			due = append(due, ExpireCheck{Epoch: r.epoch, Node: c.Node, Check: c.ID, RenewedAt: row.LastBeat()})
		}
	}
	return due
}

// Expired returns leases that have ended at now (lease clock, ms) according to Ends, oldest end first, at most limit.
// It costs O(due leases), not a walk; a lease that is returned but not evicted is returned again.
func (r *Registry) Expired(now int64, limit int) []EvictItem {
	due := r.expiry.Ended(now, r.slotEndsAt)
	slices.SortFunc(due, r.expiry.Compare)
	due = due[:min(len(due), max(limit, 0))]
	items := make([]EvictItem, len(due))
	for i, slot := range due {
		l := r.handles.leases[slot]
		items[i] = EvictItem{Handle: l.Handle, Registered: l.Registered, RenewedAt: r.renewed(l).Lease}
	}
	return items
}

// NeedsClock reports whether anything waits for the lease clock: a lease, self-preservation, an override or
// quarantine with an end, a check that expects heartbeats or will be reaped.
func (r *Registry) NeedsClock() bool {
	return r.expiry.Len() > 0 || r.preservation().State != PreservationOff || r.ends.Len() > 0 || r.catalog.Ends() > 0
}
