package fsm

import (
	"encoding/binary"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// header is the first record of a snapshot: everything that is one value, and how many records of
// each section follow.
type header struct {
	index    uint64 // of the newest applied entry
	tenure   int64  // see Machine
	registry registry.Frozen
	kv       kv.Frozen
	counts   counts
}

// counts are the numbers of records of the sections, in their order. A node's answers follow it, and
// their number is in its record.
type counts struct {
	nodes, free, leases, removals, registered, canceled uint64

	transitions, links, senders, peers                         uint64
	catalog, heard                                             uint64
	entries, deletions, sessions, delays, permits, onceAnswers uint64
}

func (s *Snapshot) header() header {
	f, k := s.registry, s.kv
	return header{index: s.index, tenure: s.tenure, registry: f, kv: k, counts: counts{
		nodes:       uint64(len(s.nodes)),
		free:        uint64(len(f.Free)),
		leases:      uint64(len(f.Leases)),
		removals:    uint64(len(f.Removals)),
		registered:  uint64(len(f.Registered)),
		canceled:    uint64(len(f.Canceled)),
		transitions: uint64(len(f.Transitions)),
		links:       uint64(len(f.Links)),
		senders:     uint64(len(f.Senders)),
		peers:       uint64(len(f.Peers)),
		catalog:     uint64(len(f.Nodes)),
		heard:       uint64(len(f.Heard)),
		entries:     uint64(len(k.Entries)),
		deletions:   uint64(len(k.Deletions)),
		sessions:    uint64(len(k.Sessions)),
		delays:      uint64(len(k.Delays)),
		permits:     uint64(len(k.Permits)),
		onceAnswers: uint64(len(k.Answers)),
	}}
}

func (h header) append(dst []byte) []byte {
	c := h.counts
	dst = appendInt64(binary.AppendUvarint(dst, h.index), h.tenure)
	dst = appendPlace(dst, h.registry)
	dst = appendNumbers(dst, c.nodes, c.free, c.leases, c.removals, c.registered, c.canceled)
	dst = appendNumbers(dst, c.transitions)
	dst = appendConduct(dst, h.registry)
	dst = appendNumbers(dst, c.links, c.senders, c.peers)
	dst = appendNumbers(dst, c.catalog, c.heard, c.entries, c.deletions, c.sessions, c.delays, c.permits, c.onceAnswers)
	return appendKVPlace(appendCatalogPlace(dst, h.registry), h.kv)
}

func (d *decoder) header() header {
	h := header{
		index:    d.uvarint(),
		tenure:   d.int64(),
		registry: d.place(),
		counts: counts{
			nodes:      d.uvarint(),
			free:       d.uvarint(),
			leases:     d.uvarint(),
			removals:   d.uvarint(),
			registered: d.uvarint(),
			canceled:   d.uvarint(),
		},
	}
	c := &h.counts
	c.transitions = d.uvarint()
	d.conduct(&h.registry)
	c.links, c.senders, c.peers = d.uvarint(), d.uvarint(), d.uvarint()
	c.catalog, c.heard, c.entries, c.deletions = d.uvarint(), d.uvarint(), d.uvarint(), d.uvarint()
	c.sessions, c.delays, c.permits, c.onceAnswers = d.uvarint(), d.uvarint(), d.uvarint(), d.uvarint()
	d.catalogPlace(&h.registry)
	h.kv = d.kvPlace(h.registry)
	return h
}

func appendNumbers(dst []byte, numbers ...uint64) []byte {
	for _, n := range numbers {
		dst = binary.AppendUvarint(dst, n)
	}
	return dst
}

// appendPlace encodes where a registry stands: its indexes, clock, epoch and table of handles.
func appendPlace(dst []byte, f registry.Frozen) []byte {
	dst = binary.AppendUvarint(dst, uint64(f.Index))
	dst = appendStamp(dst, f.Clock)
	dst = appendEpoch(dst, f.Epoch)
	dst = appendInt64(dst, f.Established)
	dst = appendString(dst, f.Cluster)
	dst = appendUint32(dst, f.Slots)
	dst = binary.AppendUvarint(dst, f.Generation)
	return binary.AppendUvarint(dst, uint64(f.Pruned))
}

func (d *decoder) place() registry.Frozen {
	return registry.Frozen{
		Index:       d.index(),
		Clock:       d.stamp(),
		Epoch:       d.epoch(),
		Established: d.int64(),
		Cluster:     d.string(),
		Slots:       d.uint32(),
		Generation:  d.uvarint(),
		Pruned:      d.index(),
	}
}

// appendConduct encodes what decides how leases end.
func appendConduct(dst []byte, f registry.Frozen) []byte {
	dst = appendSettings(dst, f.Settings)
	dst = appendPreservation(dst, f.Preservation)
	return appendExpectation(dst, f.Expectation)
}

func (d *decoder) conduct(f *registry.Frozen) {
	f.Settings, f.Preservation, f.Expectation = d.settings(), d.preservation(), d.expectation()
}

func appendNode(dst []byte, n frozenNode) []byte {
	dst = appendString(dst, n.name)
	dst = binary.AppendUvarint(dst, n.boot)
	dst = binary.AppendUvarint(dst, n.answered)
	return binary.AppendUvarint(dst, uint64(len(n.answers)))
}

// node reads a node and the number of its answers, which follow as records of their own.
func (d *decoder) node() (n frozenNode, answers uint64) {
	n.name = d.string()
	n.boot = d.uvarint()
	n.answered = d.uvarint()
	if answers = d.uvarint(); answers > maxAnswers {
		d.fail("%d remembered answers, want at most %d", answers, maxAnswers)
	}
	return n, answers
}

func appendAnswer(dst []byte, a answer) []byte {
	dst = appendResultList(binary.AppendUvarint(dst, a.seq), a.results)
	return appendList(dst, a.kv, appendKVResult)
}

func (d *decoder) answer() answer {
	a := answer{seq: d.uvarint(), results: d.resultList()}
	a.kv = d.kvResults(len(a.results))
	return a
}

func appendLeaseState(dst []byte, l registry.LeaseState) []byte {
	dst = appendStamp(appendLease(dst, l.Lease), l.Renewed)
	dst = appendHistory(dst, l.History.Events())
	return appendInt64(appendInt64(dst, l.Client), l.Remote)
}

func (d *decoder) leaseState() registry.LeaseState {
	return registry.LeaseState{Lease: d.lease(), Renewed: d.stamp(), History: d.history(), Client: d.int64(), Remote: d.int64()}
}

func appendRemoval(dst []byte, r registry.Removal) []byte {
	dst = appendLease(appendBool(append(dst, byte(r.Kind)), r.Full), r.Lease)
	return appendHistory(dst, r.History.Events())
}

func (d *decoder) removal() registry.Removal {
	kind := registry.ChangeKind(d.enum(lastKind, "kind of removal"))
	return registry.Removal{Kind: kind, Full: d.bool(), Lease: d.lease(), History: d.history()}
}

func appendRecent(dst []byte, r registry.Recent) []byte {
	return appendKey(appendInt64(dst, r.Wall), r.Key)
}

func (d *decoder) recent() registry.Recent {
	return registry.Recent{Wall: d.int64(), Key: d.key()}
}

func appendLease(dst []byte, l *registry.Lease) []byte {
	dst = appendInstance(dst, l.Instance)
	dst = appendHandle(dst, l.Handle)
	dst = appendInt32(dst, l.Interval)
	dst = appendInt32(dst, l.Duration)
	dst = appendInt64(dst, l.RegisteredAt)
	dst = appendInt64(dst, l.ServiceUpAt)
	dst = appendInt64(dst, l.EvictedAt)
	dst = appendInt64(dst, l.UpdatedAt)
	dst = appendStamp(dst, l.RenewedAt)
	dst = append(dst, byte(l.Action))
	dst = appendUint32(dst, l.Life)
	dst = binary.AppendUvarint(dst, uint64(l.Registered))
	dst = binary.AppendUvarint(dst, uint64(l.Changed))
	dst = appendInt64(dst, l.ChangedLease)
	dst = appendOrigin(dst, l.Origin)
	dst = appendInt64(dst, l.BeganLease)
	dst = appendInt64(dst, l.StartedLease)
	dst = appendActs(dst, l)
	dst = appendOwnership(dst, l)
	return appendServiceIfAny(appendBool(dst, l.Permanent), l.Service)
}

func (d *decoder) lease() *registry.Lease {
	l := &registry.Lease{
		Instance:     d.instance(),
		Handle:       d.handle(),
		Interval:     d.int32(),
		Duration:     d.int32(),
		RegisteredAt: d.int64(),
		ServiceUpAt:  d.int64(),
		EvictedAt:    d.int64(),
		UpdatedAt:    d.int64(),
		RenewedAt:    d.stamp(),
		Action:       registry.Action(d.enum(lastAction, "action")),
		Life:         d.uint32(),
		Registered:   d.index(),
		Changed:      d.index(),
		ChangedLease: d.int64(),
		Origin:       d.origin(),
		BeganLease:   d.int64(),
		StartedLease: d.int64(),
	}
	d.acts(l)
	d.ownership(l)
	l.Permanent, l.Service = d.bool(), d.serviceIfAny()
	return l
}

// appendOwnership encodes whose a lease is, and what is to be told of it to whom.
func appendOwnership(dst []byte, l *registry.Lease) []byte {
	dst = appendUint32(appendString(dst, l.Owner), l.Edit)
	return appendNumbers(dst, uint64(l.ByClient), uint64(l.ByRemote), uint64(l.Described), uint64(l.Overrode))
}

func (d *decoder) ownership(l *registry.Lease) {
	l.Owner, l.Edit = d.lasting(), d.uint32()
	l.ByClient, l.ByRemote, l.Described, l.Overrode = d.index(), d.index(), d.index(), d.index()
}

func appendOrigin(dst []byte, o registry.Origin) []byte {
	dst = append(dst, byte(o.Kind))
	if o.Kind == registry.RemoteDC {
		dst = appendString(dst, o.DC)
	}
	return dst
}

func (d *decoder) origin() registry.Origin {
	o := registry.Origin{Kind: registry.OriginKind(d.enum(lastOrigin, "origin"))}
	if o.Kind == registry.RemoteDC {
		o.DC = d.lasting()
	}
	return o
}
