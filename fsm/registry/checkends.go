package registry

import (
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// ref names the check.
func (c *Check) ref() CheckRef { return CheckRef{c.Node, c.ID} }

func (e checkEntry) expires() bool { return e.beat != nil && e.check.Status != Critical }
func (e checkEntry) reaped() bool {
	return e.check.ReapAfter > 0 && e.check.Service != "" && e.check.Status == Critical
}

// addEnd enters the end of a check, if it has one: a moment at which something is to be done about it. One that
// expects heartbeats has waited for too long then, or one that is critical was so for too long. The former is a
// lower bound: a heartbeat does not touch it, and it is corrected when its time has come.
func (r *Registry) addEnd(e checkEntry) {
	if e.expires() {
		e.beat.due = e.ends(r.established)
	}
	if at, ok := e.end(); ok {
		r.checkEnds.Set(at, e.check.ref())
	}
}

// deleteEnd is the inverse of addEnd, for the check as it was then.
func (r *Registry) deleteEnd(e checkEntry) {
	if at, ok := e.end(); ok {
		r.checkEnds.Delete(at, e.check.ref())
	}
}

// end is the end that is entered for a check (lease clock, ms).
func (e checkEntry) end() (at int64, ok bool) {
	switch {
	case e.expires():
		return e.beat.due, true
	case e.reaped():
		return order.Later(e.check.CriticalSince, e.check.ReapAfter), true
	}
	return 0, false
}

// checkGrace is what a check is given (ms) after a leadership was established, beyond half its TTL:
// clients send their heartbeats twice per TTL.
const checkGrace = 2000

// ends is the last moment of a check that expects heartbeats.
func (e checkEntry) ends(established int64) int64 {
	ttl := e.check.TTL
	return max(order.Later(e.beat.heard.Load(), ttl), order.Later(established, min(ttl, ttl/2+checkGrace)))
}

// checksEnding is Ending for checks: an ExpireCheck for each whose TTL has passed, a DeregisterCatalog
// for each service with one that is critical for too long.
func (r *Registry) checksEnding(now int64) []Op {
	var found []checkEntry
	for _, ref := range r.checkEnds.Due(now - 1) {
		e, _ := r.tables.catalog.check(ref.Node, ref.ID)
		found = append(found, e)
	}
	for _, e := range found { // heartbeats came since they were entered
		r.deleteEnd(e)
		r.addEnd(e)
	}
	var due []Op
	for _, ref := range r.checkEnds.Due(now - 1) {
		e, _ := r.tables.catalog.check(ref.Node, ref.ID)
		due = append(due, r.atEnd(e))
	}
	return due
}

// atEnd is what is to be done at the end of a check.
func (r *Registry) atEnd(e checkEntry) Op {
	c := e.check
	if e.reaped() {
		return DeregisterCatalog{Node: c.Node, Service: c.Service, Check: c.ID, Epoch: r.epoch, CriticalSince: c.CriticalSince}
	}
	return ExpireCheck{Epoch: r.epoch, Node: c.Node, Check: c.ID, RenewedAt: e.beat.heard.Load()}
}

// NeedsClock says that something waits for the lease clock: a lease, self-preservation, an override or
// quarantine that ends, a check that expects heartbeats or is to be reaped.
func (r *Registry) NeedsClock() bool {
	return r.expiry.Len() > 0 || r.preservation().State != PreservationOff || r.ends.Len() > 0 || r.checkEnds.Len() > 0
}
