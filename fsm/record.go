package fsm

import (
	"encoding/binary"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// header is the first record of a snapshot: everything that is one value, and how many records of
// each section follow.
type header struct {
	version  byte
	index    uint64 // of the newest applied entry
	registry registry.Frozen
	counts   counts
}

// counts are the numbers of records of the sections, in their order. A node's answers follow it, and
// their number is in its record.
type counts struct{ nodes, free, leases, removals, registered, canceled, transitions uint64 }

func (s *Snapshot) header() header {
	f := s.registry
	return header{version: s.version, index: s.index, registry: f, counts: counts{
		nodes:       uint64(len(s.nodes)),
		free:        uint64(len(f.Free)),
		leases:      uint64(len(f.Leases)),
		removals:    uint64(len(f.Removals)),
		registered:  uint64(len(f.Registered)),
		canceled:    uint64(len(f.Canceled)),
		transitions: uint64(len(f.Transitions)),
	}}
}

func (h header) append(dst []byte) []byte {
	f := &h.registry
	dst = binary.AppendUvarint(dst, h.index)
	dst = binary.AppendUvarint(dst, uint64(f.Index))
	dst = appendStamp(dst, f.Clock)
	dst = appendEpoch(dst, f.Epoch)
	dst = appendInt64(dst, f.Established)
	dst = appendString(dst, f.Cluster)
	dst = appendUint32(dst, f.Slots)
	dst = appendUint32(dst, f.Generation)
	dst = binary.AppendUvarint(dst, uint64(f.Pruned))
	c := h.counts
	for _, n := range []uint64{c.nodes, c.free, c.leases, c.removals, c.registered, c.canceled} {
		dst = binary.AppendUvarint(dst, n)
	}
	if h.version < 2 {
		return dst
	}
	dst = binary.AppendUvarint(dst, c.transitions)
	dst = appendSettings(dst, f.Settings)
	dst = appendPreservation(dst, f.Preservation)
	return appendExpectation(dst, f.Expectation)
}

func (d *decoder) header() header {
	h := header{
		version: d.format,
		index:   d.uvarint(),
		registry: registry.Frozen{
			Index:       d.index(),
			Clock:       d.stamp(),
			Epoch:       d.epoch(),
			Established: d.int64(),
			Cluster:     d.string(),
			Slots:       d.uint32(),
			Generation:  d.uint32(),
			Pruned:      d.index(),
		},
		counts: counts{
			nodes:      d.uvarint(),
			free:       d.uvarint(),
			leases:     d.uvarint(),
			removals:   d.uvarint(),
			registered: d.uvarint(),
			canceled:   d.uvarint(),
		},
	}
	if d.format > 1 {
		h.counts.transitions = d.uvarint()
		h.registry.Settings = d.settings()
		h.registry.Preservation = d.preservation()
		h.registry.Expectation = d.expectation()
	}
	return h
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
	return appendResultList(binary.AppendUvarint(dst, a.seq), a.results)
}

func (d *decoder) answer() answer { return answer{seq: d.uvarint(), results: d.resultList()} }

func appendLeaseState(dst []byte, version byte, l registry.LeaseState) []byte {
	dst = appendStamp(appendLease(dst, version, l.Lease), l.Renewed)
	return appendHistory(dst, version, l.History.Events())
}

func (d *decoder) leaseState() registry.LeaseState {
	return registry.LeaseState{Lease: d.lease(), Renewed: d.stamp(), History: d.history()}
}

func appendRemoval(dst []byte, version byte, r registry.Removal) []byte {
	dst = appendLease(appendBool(append(dst, byte(r.Kind)), r.Full), version, r.Lease)
	return appendHistory(dst, version, r.History.Events())
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

func appendLease(dst []byte, version byte, l *registry.Lease) []byte {
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
	if version < 2 {
		return dst
	}
	dst = appendInt64(dst, l.BeganLease)
	dst = appendInt64(dst, l.StartedLease)
	return appendActs(dst, l)
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
	}
	if d.format > 1 {
		l.BeganLease, l.StartedLease = d.int64(), d.int64()
		d.acts(l)
	}
	return l
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
		o.DC = strings.Clone(d.string()) // it outlives the instance, in the record of its removal
	}
	return o
}
