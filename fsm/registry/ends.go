package registry

import (
	"cmp"
)

// leaseEnd is what ends of a lease beside itself: an override or a quarantine.
type leaseEnd struct {
	set    Index // of what ends; no two of a kind share one
	kind   endKind
	handle Handle
}

// endKind says what ends.
type endKind uint8

const (
	endOfOverride endKind = iota
	endOfQuarantine
)

func compareLeaseEnds(a, b leaseEnd) int {
	return cmp.Or(cmp.Compare(a.set, b.set), cmp.Compare(a.kind, b.kind))
}

// replaceEnds notes the ends of l instead of those of old, the lease of the same key. Either may be the
// zero Lease: there is none.
func (r *Registry) replaceEnds(old, l *Lease) {
	if old.Override == l.Override && old.Quarantine == l.Quarantine {
		return
	}
	old.ends(r.ends.Delete)
	l.ends(r.ends.Set)
}

func (l *Lease) ends(do func(at int64, e leaseEnd)) {
	if o := l.Override; o != nil && o.Until > 0 {
		do(o.Until, leaseEnd{o.Set, endOfOverride, l.Handle})
	}
	if q := l.Quarantine; q != nil {
		do(q.Until, leaseEnd{q.Set, endOfQuarantine, l.Handle})
	}
}

// Ending returns what is due at a moment of the lease clock (ms), under the present epoch: an
// EndOverride or EndQuarantine for each override and quarantine whose time has passed, oldest first, then
// an ExpireCheck for each check whose TTL has, and a DeregisterCatalog for each service of which a check
// was critical for longer than its ReapAfter, oldest first. It costs O(due).
func (r *Registry) Ending(now int64) []Op {
	var due []Op
	for _, e := range r.ends.Due(now) {
		if e.kind == endOfOverride {
			due = append(due, EndOverride{r.epoch, e.handle, e.set})
		} else {
			due = append(due, EndQuarantine{r.epoch, e.handle, e.set})
		}
	}
	return append(due, r.checksEnding(now)...)
}
