package registry

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// checkEnd is a moment at which something is to be done about a check: one that expects heartbeats has
// waited for too long, or one that is critical was so for too long. The former is a lower bound: a
// heartbeat does not touch it, and it is corrected when its time has come.
type checkEnd struct {
	at       int64 // lease clock, ms
	node, id string
}

// checkEnds are those that lie ahead or are due, in the order of time. They are derived, and so no part
// of a snapshot.
type checkEnds struct{ tree *btree.BTreeG[checkEnd] }

func newCheckEnds() checkEnds {
	return checkEnds{order.NewTree(compareCheckEnds)}
}

func compareCheckEnds(a, b checkEnd) int {
	return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.node, b.node), strings.Compare(a.id, b.id))
}

func (e checkEntry) expires() bool { return e.beat != nil && e.check.Status != Critical }
func (e checkEntry) reaped() bool {
	return e.check.ReapAfter > 0 && e.check.Service != "" && e.check.Status == Critical
}

// add enters the end of a check, if it has one, under a leadership that was established at a moment.
func (t checkEnds) add(e checkEntry, established int64) {
	if e.expires() {
		e.beat.due = e.ends(established)
	}
	if end, ok := e.end(); ok {
		t.tree.Set(end)
	}
}

// delete is the inverse of add, for the check as it was then.
func (t checkEnds) delete(e checkEntry) {
	if end, ok := e.end(); ok {
		t.tree.Delete(end)
	}
}

// end is the end that is entered for a check.
func (e checkEntry) end() (end checkEnd, ok bool) {
	c := e.check
	switch {
	case e.expires():
		return checkEnd{e.beat.due, c.Node, c.ID}, true
	case e.reaped():
		return checkEnd{order.Later(c.CriticalSince, c.ReapAfter), c.Node, c.ID}, true
	}
	return checkEnd{}, false
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
	r.checkEnds.tree.Scan(func(end checkEnd) bool {
		if end.at >= now {
			return false
		}
		e, _ := r.tables.catalog.check(end.node, end.id)
		found = append(found, e)
		return true
	})
	for _, e := range found { // heartbeats came since they were entered
		r.checkEnds.delete(e)
		r.checkEnds.add(e, r.established)
	}
	slices.SortFunc(found, func(a, b checkEntry) int { return compareCheckEnds(a.mustEnd(), b.mustEnd()) })
	var due []Op
	for _, e := range found {
		if e.mustEnd().at < now {
			due = append(due, r.atEnd(e))
		}
	}
	return due
}

// mustEnd is the end of a check that has one.
func (e checkEntry) mustEnd() checkEnd {
	end, _ := e.end()
	return end
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
	return r.expiry.Len() > 0 || r.preservation().State != PreservationOff || r.ends.tree.Len() > 0 || r.checkEnds.tree.Len() > 0
}
