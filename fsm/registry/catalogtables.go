package registry

import (
	"cmp"
	"strings"
	"sync/atomic"

	"github.com/tidwall/btree"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// catalogTables is what a View shows of nodes, and where services and checks are found. The checks
// themselves are in the leases and nodes that have them.
type catalogTables struct {
	nodes    *btree.Map[string, *catalog.Node]
	services *btree.BTreeG[serviceEntry] // by node, then id; quarantined ones too
	checks   *btree.BTreeG[checkEntry]   // by node, then id
	changed  Index                       // of the last change of a node or of a check of one
	bytes    int                         // of all nodes, see Node.Weight
	shared   *catalogTables              // the copy that views get; nil if it changed since it was made
}

// serviceEntry says whose service an id is on a node.
type serviceEntry struct {
	node, id string
	key      Key
}

// checkEntry is a check and the instance that has it; the zero Key: its node has it.
type checkEntry struct {
	check *catalog.Check
	of    Key
	beat  *checkBeat // nil: none is expected
}

// checkBeat is the heartbeats of a check. It outlives changes of the check, and is live for views.
type checkBeat struct {
	heard atomic.Int64 // lease clock of the last one, ms
	due   int64        // of the writer alone: where the check is among those that wait for an end
}

func newCatalogTables() *catalogTables {
	return &catalogTables{
		nodes:    new(btree.Map[string, *catalog.Node]),
		services: order.NewTree(compareServices),
		checks:   order.NewTree(compareChecks),
	}
}

func compareServices(a, b serviceEntry) int {
	return cmp.Or(strings.Compare(a.node, b.node), strings.Compare(a.id, b.id))
}

func compareChecks(a, b checkEntry) int {
	return catalog.CompareCheckRefs(a.check.Ref(), b.check.Ref())
}

// share returns a copy for views: the same one until something changes, for most changes of a registry
// are none of its catalog.
func (t *catalogTables) share() *catalogTables {
	if t.shared == nil {
		t.shared = &catalogTables{nodes: t.nodes.Copy(), services: t.services.Copy(), checks: t.checks.Copy(), changed: t.changed, bytes: t.bytes}
	}
	return t.shared
}

// check finds a check of a node or of a service on it.
func (t *catalogTables) check(node, id string) (checkEntry, bool) {
	return t.checks.Get(checkEntry{check: &catalog.Check{Node: node, ID: id}})
}

// service finds the instance that a node's service is.
func (t *catalogTables) service(node, id string) (key Key, ok bool) {
	e, ok := t.services.Get(serviceEntry{node: node, id: id})
	return e.key, ok
}

// servicesOn returns the instances that a node's services are, by service id.
func (t *catalogTables) servicesOn(node string) []Key {
	var keys []Key
	t.services.Ascend(serviceEntry{node: node}, func(e serviceEntry) bool {
		if e.node != node {
			return false
		}
		keys = append(keys, e.key)
		return true
	})
	return keys
}

// replaceService notes which service l is, which takes the place of old, the lease of the same key.
// Either may be the zero Lease.
func (t *catalogTables) replaceService(old, l *Lease) {
	t.shared = nil
	if s := l.Service; s != nil {
		t.services.Set(serviceEntry{s.Node, s.ID, l.Key()})
	}
	s := old.Service
	if s == nil || l.Service != nil && l.Service.Node == s.Node && l.Service.ID == s.ID {
		return
	}
	if key, _ := t.service(s.Node, s.ID); key == old.Key() { // else the service has moved to another name
		t.services.Delete(serviceEntry{node: s.Node, id: s.ID})
	}
}

// setNode puts a node in the place of the one of its name.
func (t *catalogTables) setNode(n *catalog.Node) {
	t.shared = nil
	if old, ok := t.nodes.Set(n.Name, n); ok {
		t.bytes -= old.Weight()
	}
	t.bytes += n.Weight()
}

func (t *catalogTables) deleteNode(name string) {
	t.shared = nil
	if old, ok := t.nodes.Delete(name); ok {
		t.bytes -= old.Weight()
	}
}

func (t *catalogTables) setCheck(e checkEntry) {
	t.shared = nil
	t.checks.Set(e)
}

func (t *catalogTables) deleteCheck(e checkEntry) {
	t.shared = nil
	t.checks.Delete(e)
}

func (e checkEntry) expires() bool { return e.beat != nil && e.check.Status != catalog.Critical }

func (e checkEntry) reaped() bool {
	return e.check.ReapAfter > 0 && e.check.Service != "" && e.check.Status == catalog.Critical
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
