package replication

import (
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// The sender of a change decides which peers get it: changes of this datacenter's clients go to all peers; those that
// a remote datacenter sent go to the nodes of this datacenter; those that another node of this datacenter sent go
// nowhere. So every change is sent once, and nothing comes back.

// taskOf makes a task from a change that the peer should get; ok is false if it should not, or has it already. now is
// the lease clock, ms.
func (p *peer) taskOf(v *registry.View, c registry.Change, from place, now int64) (t link.Task, ok bool) {
	switch c.Kind {
	case registry.Canceled, registry.Evicted:
		if !p.sendsRemoval(c) {
			return link.Task{}, false
		}
		// A reduced record does not know when it was registered.
		rec := registry.Removal{Kind: c.Kind, Full: c.Lease.Registered > 0, Lease: c.Lease}
		return link.Task{Key: c.Lease.Key(), Facts: link.Canceled, First: c.Index, Remove: v.RemoveOf(rec, now)}, true
	}
	l := c.Lease
	first := oldestAfter(from.after, l.ByClient)
	if p.Kind == link.Node {
		first = oldestAfter(from.after, l.ByClient, l.ByRemote)
	}
	if first == 0 {
		return link.Task{}, false
	}
	t = link.Task{Key: l.Key(), First: first}
	if l.Described > from.after {
		t.Facts |= link.Registered
	}
	if l.Overrode > from.after {
		t.Facts |= link.Overridden
	}
	if t.Facts == 0 {
		t.Facts = link.Registered // such as a quarantine, which is part of the whole state
	}
	// A feed that starts anew after part of this was sent must find the rest.
	t.First = oldestAfter(from.after, l.Described, l.Overrode, first)
	t.NewLife = l.BeganLease >= from.clock
	return t, true
}

// oldestAfter returns the lowest of the changes after an index, or 0.
func oldestAfter(after registry.Index, changes ...registry.Index) registry.Index {
	var oldest registry.Index
	for _, at := range changes {
		if at > after {
			oldest = link.Earlier(oldest, at)
		}
	}
	return oldest
}

// sendsRemoval reports whether a removal is sent. Evictions are sent only where one node decides them for its whole
// datacenter, which has the last word on its own instances only. Nodes without consensus, and Eureka servers, evict
// for themselves.
func (p *peer) sendsRemoval(c registry.Change) bool {
	if c.Kind == registry.Evicted {
		return p.config.Consensus && p.Kind == link.Datacenter && c.Lease.Local()
	}
	switch c.Lease.Origin.Kind {
	case registry.Client:
		return true
	case registry.RemoteDC:
		return p.Kind == link.Node
	}
	return false
}
