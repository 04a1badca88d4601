package registry

import (
	"cmp"

	"github.com/tidwall/btree"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// end is the end of an override or a quarantine.
type end struct {
	at     int64 // lease clock, ms
	set    Index // of what ends; no two of a kind share one
	kind   endKind
	handle Handle
	op     func(Epoch, Handle, Index) Op
}

// endKind says what ends.
type endKind uint8

const (
	endOfOverride endKind = iota
	endOfQuarantine
)

// ends are the ends that lie ahead or are due, in the order of time. They are derived from the leases,
// and so no part of a snapshot.
type ends struct{ tree *btree.BTreeG[end] }

func newEnds() ends {
	return ends{order.NewTree(func(a, b end) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.set, b.set), cmp.Compare(a.kind, b.kind))
	})}
}

// replace notes the ends of l instead of those of old, the lease of the same key. Either may be the
// zero Lease: there is none.
func (e ends) replace(old, l *Lease) {
	if old.Override == l.Override && old.Quarantine == l.Quarantine {
		return
	}
	old.ends(func(end end) { e.tree.Delete(end) })
	l.ends(func(end end) { e.tree.Set(end) })
}

func (l *Lease) ends(do func(end)) {
	if o := l.Override; o != nil && o.Until > 0 {
		do(end{o.Until, o.Set, endOfOverride, l.Handle, func(e Epoch, h Handle, set Index) Op { return EndOverride{e, h, set} }})
	}
	if q := l.Quarantine; q != nil {
		do(end{q.Until, q.Set, endOfQuarantine, l.Handle, func(e Epoch, h Handle, set Index) Op { return EndQuarantine{e, h, set} }})
	}
}

// Ending returns what is due at a moment of the lease clock (ms), under the present epoch: an
// EndOverride or EndQuarantine for each override and quarantine whose time has passed, oldest first, then
// an ExpireCheck for each check whose TTL has, and a DeregisterCatalog for each service of which a check
// was critical for longer than its ReapAfter, oldest first. It costs O(due).
func (r *Registry) Ending(now int64) []Op {
	var due []Op
	r.ends.tree.Scan(func(e end) bool {
		if e.at > now {
			return false
		}
		due = append(due, e.op(r.epoch, e.handle, e.set))
		return true
	})
	return append(due, r.checksEnding(now)...)
}
