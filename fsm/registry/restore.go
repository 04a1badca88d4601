package registry

// Incarnation is by how much the Index rises at least when a new incarnation begins. What was acknowledged after the
// state was saved, and is lost, took fewer indexes than that, so none of them is given out again. Package kv keeps the sum
// below 2^53, up to which a number in JSON is exact.
const Incarnation Index = 1 << 32

const (
	start2026 = 1_767_225_600_000       // ms since the epoch
	msPerHour = 3_600_000               // ms
	mostHours = 1 << 20                 // half of the incarnations there are: a wrong clock must leave some
	perMs     = Incarnation / msPerHour // more indexes than a cluster gives out in one
)

// Raise begins a new incarnation: the Index rises to Incarnation above the newest there was, here or (beyond) where the
// state comes from. Readers of the change list have to read everything again, and everything counts as changed.
//
// Where the state is an old copy, incarnations may have begun since that nothing here knows of. Then wall (ms since the epoch,
// 0: nothing is unknown) is the time, and the incarnation is at least the number of hours since 2026, fractions included: those
// that were begun one by one stay behind it, and what an earlier one gave out since does, too.
func (r *Registry) Raise(beyond Index, wall int64) Index {
	r.index = max(r.Next()-1, beyond) + Incarnation
	if ms := wall - start2026; ms > 0 {
		r.index = max(r.index, Index(min(ms/msPerHour, mostHours))*Incarnation+Index(ms%msPerHour)*perMs)
	}
	r.tables.restored = r.index
	r.shared = nil
	return r.index
}

// RenewAll gives every lease one full duration from now on.
func (r *Registry) RenewAll() {
	for _, l := range r.handles.leases {
		if l != nil && !l.Permanent {
			r.tables.renewals.renew(l.Handle.Slot, r.clock)
		}
	}
}
