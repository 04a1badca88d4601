package registry

import (
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// reduced returns the record without what only the delta needs. It copies strings, which must not keep alive the
// memory that the instance came in. With waits, the record keeps its waiting override.
func (m Removal) reduced(waits bool) Removal {
	l := m.Lease
	reduced := Removal{Kind: m.Kind, History: m.History, Lease: &Lease{
		Instance: &Instance{
			InstanceID: strings.Clone(l.Instance.ID()),
			App:        strings.Clone(l.Instance.App),
			LastDirty:  l.Instance.LastDirty,
		},
		EvictedAt:    l.EvictedAt,
		Action:       l.Action,
		Life:         l.Life,
		Changed:      l.Changed,
		ChangedLease: l.ChangedLease,
		Origin:       l.Origin,
		Owner:        strings.Clone(l.Owner),
		Edit:         l.Edit,
		Quarantine:   l.Quarantine.clone(),
	}}
	if waits {
		reduced.Lease.Instance.Overridden, reduced.Lease.Override = l.Instance.Overridden, l.Override.clone()
	}
	return reduced
}

// weight returns roughly how many bytes the record of a removal takes.
func (m Removal) weight() int {
	bytes := removalWeight + m.Lease.Instance.weight() + len(m.Lease.Origin.DC) + len(m.Lease.Origin.Principal) + len(m.Lease.Owner)
	if q := m.Lease.Quarantine; q != nil {
		bytes += q.By.weight()
	}
	if o := m.Lease.Override; o != nil && !m.Full {
		bytes += o.By.weight()
	}
	p := m.History.newest
	for range p.length() {
		bytes += eventWeight
		if p.cause != nil {
			bytes += len(p.cause.origin.DC) + len(p.cause.origin.Principal) + p.cause.by.weight()
		}
		p = p.before
	}
	return bytes
}

// Roughly how many bytes records of removals take besides their texts.
const (
	removalWeight = 1024
	eventWeight   = 96
)

// Removal is the record of one removal. While the delta still shows it (Full), Lease is the instance as it was when
// it went; an instance that was only removed elsewhere (Registered is 0) is not in the delta. Afterwards the record
// is reduced. It keeps the instance's id, application and lastDirtyTimestamp, and the lease's EvictedAt, Action,
// Life, Edit, Changed, ChangedLease, Origin, Owner, Quarantine, and an override that outlasts it. A record is dropped
// when its key is registered again, or after 24 h of lease clock; there are at most 100,000, with about 256 MiB in
// all.
type Removal struct {
	Kind    ChangeKind
	Full    bool
	Lease   *Lease
	History History // of the instance, including its removal; kept when the record is reduced
}

// Fields walks the record of a removal.
func (r *Removal) Fields(c *codec.Codec) {
	codec.Enum(c, &r.Kind, Evicted, "kind of removal") // Hidden is the kind of a live instance
	c.Bool(&r.Full)
	codec.Ptr(c, &r.Lease).Fields(c)
	r.History.fields(c)
}

// waiting returns the override that the instance gets if it comes back, see Lease.outlasts, or nil.
func (m Removal) waiting(level byte, now int64) *Override {
	o := m.Lease.Override
	if level < Level3 || !m.Lease.outlasts() || o.Until != 0 && o.Until <= now {
		return nil
	}
	return o
}

// renewed returns the last renewal (lease clock, ms) of what was removed, or the time of the removal if the renewal
// is not, or no longer, known.
func (m Removal) renewed() int64 {
	if m.Full && storedHere(m.Lease) {
		return m.Lease.RenewedAt.Lease
	}
	return m.Lease.ChangedLease
}

// storedHere reports whether a removed lease was stored here, not only known to be removed elsewhere.
func storedHere(l *Lease) bool { return l.Registered > 0 }

// editAfter returns the number of edits with which a life goes on. A cancel also removes what operators decided, on
// every node; an instance evicted by one node may have its override elsewhere, and gets it back from there.
func (m Removal) editAfter() uint32 {
	if m.Kind == Canceled && m.Lease.Edit > 0 {
		return m.Lease.Edit + 1
	}
	return m.Lease.Edit
}

// The delta window and its steps, in ms of lease clock.
const (
	deltaWindow = 180_000
	deltaStep   = 30_000
)

// deltaCut returns the lease clock of the oldest change that the delta shows at a moment.
func deltaCut(now int64) int64 { return now/deltaStep*deltaStep - deltaWindow }
