package registry

import (
	"cmp"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// Incarnation is by how much the Index rises at least when a new incarnation begins. What was acknowledged after the
// state was saved, and is lost, took fewer indexes than that, so none of them is given out again. Package kv keeps the sum
// below 2^53, up to which a number in JSON is exact.
const Incarnation Index = 1 << 32

const (
	start2026 = 1_767_225_600_000 // ms since the epoch
	msPerHour = 3_600_000         // ms
	mostHours = 1 << 20           // half of the incarnations there are: a wrong clock must leave some
)

// Raise begins a new incarnation: the Index rises to Incarnation above the newest there was, here or (beyond) where the
// state comes from. Readers of the change list have to read everything again, and everything counts as changed.
//
// Where the state is an old copy, incarnations may have begun since that nothing here knows of. Then wall (ms since the epoch,
// 0: nothing is unknown) is the time, and the incarnation is at least the number of hours since 2026: those that were
// begun one by one stay behind it.
func (r *Registry) Raise(beyond Index, wall int64) Index {
	r.index = max(r.Next()-1, beyond) + Incarnation
	if hours := (wall - start2026) / msPerHour; hours > 0 {
		r.index = max(r.index, Index(min(hours, mostHours))*Incarnation)
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

// Saved is an instance as a snapshot for people has it.
type Saved struct {
	Replica                  // Owner "": this datacenter
	Service *catalog.Service // what was registered through Consul's API of this datacenter; nil: nothing
}

// Fields walks a saved instance.
func (s *Saved) Fields(c *codec.Codec) {
	if read := s.Replica.fields(c); c.Reading() {
		s.Replica = read
	}
	codec.Optional(c, &s.Service, (*catalog.Service).Fields)
}

// Image is what of a registry a snapshot for people has.
type Image struct {
	Nodes     []*catalog.Node // of the catalog, with their checks; by name
	Instances []Saved         // quarantined ones included; by application and id
}

// Fields walks an image.
func (m *Image) Fields(c *codec.Codec) {
	codec.List(c, &m.Nodes, 8, codec.Each((*catalog.Node).Fields))
	codec.List(c, &m.Instances, 8, (*Saved).Fields)
}

// SavedOf is a live lease as a snapshot for people has it.
func (v *View) SavedOf(l *Lease) Saved { return Saved{v.ReplicaOf(l, v.stamp.Lease), l.Service} }

// Readmit brings back what an image has and the registry has not; what is registered now is newer and stays. An instance
// that comes back gets one full lease, and a version that is newer than that of its removal. It returns how many instances
// came back, and the checks and nodes that were lost by it (see Lost).
func (r *Registry) Readmit(m Image, by Act) (returned int, lost []catalog.CheckRef) {
	for _, n := range m.Nodes {
		op := RegisterCatalog{Node: n, Checks: n.Checks}
		if n.Name == "" {
			op.Node = nil // the logical one
		}
		if _, there := r.catalog.Node(n.Name); !there {
			r.registerCatalog(FromClient, op)
			r.followUp(FromClient)
		}
	}
	for _, s := range m.Instances {
		if r.readmit(s, by) {
			returned++
		}
	}
	return returned, r.Lost()
}

// readmit brings back an instance, and says whether it was not there.
func (r *Registry) readmit(s Saved, by Act) bool {
	key := s.Instance.Key()
	rec, removed := r.record(key)
	if key.ID == "" || key.App == "" || key.App != strings.ToUpper(key.App) { // no instance that a registry has
		return false
	}
	if r.handles.byKey(key) != nil || s.Service != nil && !r.readmitService(s) {
		return false
	}
	s.Life = max(s.Life, 1)
	if removed {
		s.Life = max(s.Life, rec.Lease.Life+1)
	}
	if s.Service == nil {
		r.readmitLease(s, rec)
	} else if l := r.handles.byKey(key); s.Life > l.Life || s.Overridden != Unknown || s.QuarantineFor > 0 {
		next := *l
		r.decideAs(&next, s.Replica)
		next.Life = max(l.Life, s.Life)
		describe(&next, l.Instance, l.reported(), s.Overridden)
		r.exchange(l, &next, ActionAdded, FromClient, decisions(l, &next, s.Replica)...)
	}
	r.recordEvent(r.handles.byKey(key), FromClient, Event{Kind: EventRestored, By: by})
	return true
}

// readmitLease enters an instance that was not registered through Consul's API; rec is the record of its removal, if there is one.
func (r *Registry) readmitLease(s Saved, rec Removal) {
	origin := FromClient
	if s.Owner != "" {
		origin = Origin{Kind: RemoteDC, DC: s.Owner}
	}
	l := &Lease{Life: s.Life, Origin: origin, Owner: s.Owner, Permanent: s.Permanent}
	r.decideAs(l, s.Replica)
	describe(l, s.Instance, s.Instance.Status, s.Overridden)
	if rec.Lease != nil {
		l.Quarantine = cmp.Or(l.Quarantine, quarantineAgain(rec.Lease.Quarantine, r.clock.Lease, r.Next()))
		r.supersede(s.Instance.Key())
	}
	r.enter(origin, l, r.clock, rec.History)
	r.recordEvents(l, origin, decisions(&Lease{Instance: &Instance{}}, l, s.Replica))
}

// readmitService registers a service as Consul's API would, and says whether it did: not where its id is another one's by
// now, or its node is not there. Checks whose ids are others' by now stay away.
func (r *Registry) readmitService(s Saved) bool {
	service := *s.Service
	node, there := r.catalog.Node(service.Node)
	if _, _, taken := r.catalog.Service(service.Node, service.ID); taken || !there && service.Node != "" ||
		strings.ToUpper(service.Name) != s.Instance.App {
		return false
	}
	op := RegisterCatalog{Node: node, KeepNode: true, Service: &service, Instance: s.Instance}
	if service.Node == "" {
		op.Node = nil
	}
	for _, check := range service.Checks {
		if _, taken := r.catalog.Check(service.Node, check.ID); !taken {
			op.Checks = append(op.Checks, check)
		}
	}
	service.Checks = nil
	res := r.registerCatalog(FromClient, op)
	r.followUp(FromClient)
	return res.Outcome == Done
}
