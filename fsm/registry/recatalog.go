package registry

import "github.com/seed-20419f34/rollcall/fsm/catalog"

// recatalog keeps services and checks findable, and notes which checks were lost, where l takes the
// place of old, the lease of the same key. Either may be the zero Lease.
func (r *Registry) recatalog(old, l *Lease) {
	if old.Service == l.Service {
		return
	}
	r.tables.catalog.replaceService(old, l)
	var before, after []*catalog.Check
	if old.Service != nil {
		before = old.Service.Checks
	}
	if l.Service != nil {
		after = l.Service.Checks
		r.enterChecks(before, after, l.Key())
	}
	moved := old.Service != nil && l.Service != nil && old.Service.Node != l.Service.Node
	for _, c := range before {
		if _, kept := catalog.FindCheck(after, c.ID); !kept || moved {
			r.leaveCheck(c, old.Key())
		}
	}
}

// renode is recatalog for a node. Either may be nil.
func (r *Registry) renode(old, n *catalog.Node) {
	r.tables.catalog.changed = r.step()
	var before, after []*catalog.Check
	if old != nil {
		before = old.Checks
	}
	if n != nil {
		after = n.Checks
		r.tables.catalog.setNode(n)
		r.enterChecks(before, after, Key{})
	} else {
		r.tables.catalog.deleteNode(old.Name)
	}
	for _, c := range before {
		if _, kept := catalog.FindCheck(after, c.ID); !kept {
			r.leaveCheck(c, Key{})
		}
	}
}

// enterChecks enters the checks that were not there before. One that was may be somebody else's by now,
// and is about to leave.
func (r *Registry) enterChecks(before, after []*catalog.Check, of Key) {
	for _, c := range after {
		if at, ok := catalog.FindCheck(before, c.ID); !ok || before[at] != c {
			r.enterCheck(c, of)
		}
	}
}

// enterCheck has a check found as that of an instance, or of its node. The heartbeats of one that was
// there before go on.
func (r *Registry) enterCheck(c *catalog.Check, of Key) {
	before, known := r.tables.catalog.check(c.Node, c.ID)
	now := checkEntry{check: c, of: of}
	if known {
		r.deleteEnd(before)
		now.beat = before.beat
		if c.Status == catalog.Critical && before.check.Status != catalog.Critical {
			r.lost = append(r.lost, c.Ref())
		}
	}
	switch {
	case c.TTL == 0:
		now.beat = nil
	case now.beat == nil:
		now.beat = new(checkBeat)
		now.beat.heard.Store(r.clock.Lease)
	}
	r.tables.catalog.setCheck(now)
	r.addEnd(now)
}

// leaveCheck is the inverse of enterCheck, unless the check is somebody else's by now.
func (r *Registry) leaveCheck(c *catalog.Check, of Key) {
	e, known := r.tables.catalog.check(c.Node, c.ID)
	if !known || e.of != of {
		return
	}
	r.deleteEnd(e)
	r.tables.catalog.deleteCheck(e)
	r.lost = append(r.lost, c.Ref())
}

// Lost returns what was lost by the operations since the last call. It is no part of the state.
func (r *Registry) Lost() []catalog.CheckRef {
	lost := r.lost
	r.lost = nil
	return lost
}

// CheckState finds a check of a node or of a service on it. The logical node ("") always has serfHealth,
// which is passing.
func (r *Registry) CheckState(node, id string) (status catalog.CheckStatus, known bool) {
	if e, ok := r.tables.catalog.check(node, id); ok {
		return e.check.Status, true
	}
	return catalog.Passing, node == "" && id == catalog.SerfHealth
}

// HasNode says whether a node is registered; "" always is.
func (r *Registry) HasNode(name string) bool {
	_, ok := r.tables.catalog.nodes.Get(name)
	return ok || name == ""
}

// addEnd enters the end of a check, if it has one: a moment at which something is to be done about it. One that
// expects heartbeats has waited for too long then, or one that is critical was so for too long. The former is a
// lower bound: a heartbeat does not touch it, and it is corrected when its time has come.
func (r *Registry) addEnd(e checkEntry) {
	if e.expires() {
		e.beat.due = e.ends(r.established)
	}
	if at, ok := e.end(); ok {
		r.checkEnds.Set(at, e.check.Ref())
	}
}

// deleteEnd is the inverse of addEnd, for the check as it was then.
func (r *Registry) deleteEnd(e checkEntry) {
	if at, ok := e.end(); ok {
		r.checkEnds.Delete(at, e.check.Ref())
	}
}
