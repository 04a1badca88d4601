package registry

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tidwall/btree"

	"github.com/seed-20419f34/rollcall/fsm/order"
)

// catalogTables is what a View shows of nodes, and where services and checks are found. The checks
// themselves are in the leases and nodes that have them.
type catalogTables struct {
	nodes    *btree.Map[string, *Node]
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
	check *Check
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
		nodes:    new(btree.Map[string, *Node]),
		services: order.NewTree(compareServices),
		checks:   order.NewTree(compareChecks),
	}
}

func compareServices(a, b serviceEntry) int {
	return cmp.Or(strings.Compare(a.node, b.node), strings.Compare(a.id, b.id))
}

func compareChecks(a, b checkEntry) int {
	return compareCheckRefs(a.check.ref(), b.check.ref())
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
	return t.checks.Get(checkEntry{check: &Check{Node: node, ID: id}})
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
func (t *catalogTables) setNode(n *Node) {
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

// recatalog keeps services and checks findable, and notes which checks were lost, where l takes the
// place of old, the lease of the same key. Either may be the zero Lease.
func (r *Registry) recatalog(old, l *Lease) {
	if old.Service == l.Service {
		return
	}
	r.tables.catalog.replaceService(old, l)
	var before, after []*Check
	if old.Service != nil {
		before = old.Service.Checks
	}
	if l.Service != nil {
		after = l.Service.Checks
		r.enterChecks(before, after, l.Key())
	}
	moved := old.Service != nil && l.Service != nil && old.Service.Node != l.Service.Node
	for _, c := range before {
		if _, kept := findCheck(after, c.ID); !kept || moved {
			r.leaveCheck(c, old.Key())
		}
	}
}

// renode is recatalog for a node. Either may be nil.
func (r *Registry) renode(old, n *Node) {
	r.tables.catalog.changed = r.step()
	var before, after []*Check
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
		if _, kept := findCheck(after, c.ID); !kept {
			r.leaveCheck(c, Key{})
		}
	}
}

// enterChecks enters the checks that were not there before. One that was may be somebody else's by now,
// and is about to leave.
func (r *Registry) enterChecks(before, after []*Check, of Key) {
	for _, c := range after {
		if at, ok := findCheck(before, c.ID); !ok || before[at] != c {
			r.enterCheck(c, of)
		}
	}
}

// enterCheck has a check found as that of an instance, or of its node. The heartbeats of one that was
// there before go on.
func (r *Registry) enterCheck(c *Check, of Key) {
	before, known := r.tables.catalog.check(c.Node, c.ID)
	now := checkEntry{check: c, of: of}
	if known {
		r.deleteEnd(before)
		now.beat = before.beat
		if c.Status == Critical && before.check.Status != Critical {
			r.lost = append(r.lost, c.ref())
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
func (r *Registry) leaveCheck(c *Check, of Key) {
	e, known := r.tables.catalog.check(c.Node, c.ID)
	if !known || e.of != of {
		return
	}
	r.deleteEnd(e)
	r.tables.catalog.deleteCheck(e)
	r.lost = append(r.lost, c.ref())
}

// Lost returns what was lost by the operations since the last call. It is no part of the state.
func (r *Registry) Lost() []CheckRef {
	lost := r.lost
	r.lost = nil
	return lost
}

// CheckState finds a check of a node or of a service on it. The logical node ("") always has serfHealth,
// which is passing.
func (r *Registry) CheckState(node, id string) (status CheckStatus, known bool) {
	if e, ok := r.tables.catalog.check(node, id); ok {
		return e.check.Status, true
	}
	return Passing, node == "" && id == SerfHealth
}

// HasNode says whether a node is registered; "" always is.
func (r *Registry) HasNode(name string) bool {
	_, ok := r.tables.catalog.nodes.Get(name)
	return ok || name == ""
}

// Nodes yields the registered nodes, by name; the logical one is among them, first, only if checks were
// registered on it.
func (v *View) Nodes() iter.Seq[*Node] {
	return func(yield func(*Node) bool) {
		v.tables.catalog.nodes.Scan(func(_ string, n *Node) bool { return yield(n) })
	}
}

// NodeCount is the number of registered nodes.
func (v *View) NodeCount() int { return v.tables.catalog.nodes.Len() }

// CatalogBytes is what the registered nodes take with their checks, about. Services are instances.
func (v *View) CatalogBytes() int { return v.tables.catalog.bytes }

// CatalogGrowth is by how many bytes, about, a registration would make the nodes larger.
func (v *View) CatalogGrowth(op RegisterCatalog) (bytes int) {
	node := ""
	if op.Node != nil {
		node = op.Node.Name
	}
	old, known := v.Node(node)
	if op.Node != nil && !(known && op.KeepNode) {
		bytes += op.Node.ownWeight()
		if known {
			bytes -= old.ownWeight()
		}
	}
	for _, c := range op.Checks {
		if c.Service != "" {
			continue
		}
		bytes += c.weight()
		if e, ok := v.tables.catalog.check(node, c.ID); ok {
			bytes -= e.check.weight()
		}
	}
	return bytes
}

// Node returns a node.
func (v *View) Node(name string) (*Node, bool) { return v.tables.catalog.nodes.Get(name) }

// ServiceOn returns the lease of a service of a node by its id, quarantined or not. Of the logical node
// ("") these are also the instances that Eureka's clients registered, by their instance id, those
// registered through Consul's API first; ambiguous: several applications have an instance of that id,
// and none of them was registered through Consul's API.
func (v *View) ServiceOn(node, id string) (l *Lease, ambiguous bool) {
	if key, ok := v.tables.catalog.service(node, id); ok {
		l, _ = v.Find(key)
		return l, false
	}
	if node != "" {
		return nil, false
	}
	return v.tables.otherwise(id)
}

// otherwise returns the one lease with an instance id that was not registered through Consul's API.
func (t *tables) otherwise(id string) (l *Lease, ambiguous bool) {
	n := 0
	count := func(found *Lease) {
		if found.Service == nil {
			l = found
			n++
		}
	}
	t.ids.Ascend(Key{ID: id}, func(key Key) bool {
		if key.ID != id {
			return false
		}
		if app, ok := t.apps.Get(key.App); ok {
			found, _ := app.leases.Get(id)
			count(found)
		}
		return n < 2
	})
	t.quarantined.Scan(func(found *Lease) bool {
		if found.Key().ID == id {
			count(found)
		}
		return n < 2
	})
	if n > 1 {
		return nil, true
	}
	return l, false
}

// ServicesOn yields the leases of a node's services, by application and id, without the quarantined; of
// the logical node ("") also those that were registered otherwise, see ServiceOn.
func (v *View) ServicesOn(node string) iter.Seq[*Lease] {
	if node == "" {
		return v.servicesOnLogical
	}
	return func(yield func(*Lease) bool) {
		keys := v.tables.catalog.servicesOn(node)
		slices.SortFunc(keys, compareKeys)
		for _, key := range keys {
			if l, ok := v.Lease(key); ok && !yield(l) {
				return
			}
		}
	}
}

func (v *View) servicesOnLogical(yield func(*Lease) bool) {
	for l := range v.Leases() {
		if (l.Service == nil || l.Service.Node == "") && !yield(l) {
			return
		}
	}
}

// CheckOn returns a stored check by its node and id.
func (v *View) CheckOn(node, id string) (*Check, bool) {
	e, ok := v.tables.catalog.check(node, id)
	return e.check, ok
}

// ServiceName is an application's name in Consul's API: as it was registered there, else in lower case.
func (a *App) ServiceName() string {
	if a.services > 0 {
		return a.service
	}
	return strings.ToLower(a.Name)
}

// CatalogIndex is the Index of the last change of a node or of a check of one; those of services and
// their checks are in their applications' Changed.
func (v *View) CatalogIndex() Index { return v.tables.catalog.changed }

// Heard is when (lease clock, ms) a check with a TTL last had a heartbeat, live as LastRenewal is; 0:
// it has none.
func (v *View) Heard(c *Check) int64 {
	if e, ok := v.tables.catalog.check(c.Node, c.ID); ok && e.beat != nil {
		return e.beat.heard.Load()
	}
	return 0
}
