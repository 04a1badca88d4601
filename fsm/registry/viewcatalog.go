package registry

import (
	"cmp"
	"iter"
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
)

// Nodes yields the registered nodes, by name. The logical one comes first, but only if checks were ever
// registered on it.
func (v *View) Nodes() iter.Seq[*catalog.Node] { return v.tables.catalog.Nodes() }

// NodesChangedAfter yields the registered nodes that changed after an Index, oldest change first.
func (v *View) NodesChangedAfter(after Index) iter.Seq[*catalog.Node] {
	return v.tables.catalog.NodesChangedAfter(after)
}

// NodeCount returns the number of registered nodes.
func (v *View) NodeCount() int { return v.tables.catalog.NodeCount() }

// Aliases yields the alias checks, by what they follow.
func (v *View) Aliases() iter.Seq[*catalog.Check] { return v.tables.catalog.Aliases() }

// Followed returns the target of an alias check on a node, named as in catalog.Alias.Reads, or "" if it is missing.
func (v *View) Followed(node string, a *catalog.Alias) string {
	t := a.Target(node)
	if t.Service != "" {
		if l, _ := v.ServiceOn(t.Node, t.Service); l != nil {
			return l.Key().App
		}
		return ""
	}
	if _, there := v.Node(t.Node); !there && t.Node != "" {
		return ""
	}
	return cmp.Or(t.Node, catalog.LogicalNode)
}

// ProbeSource returns the address from which a node's check with a probe was registered, or for a check registered
// below level 3 its agent's address. "" means unknown.
func (v *View) ProbeSource(node string, p *catalog.Probe) string {
	if n, ok := v.Node(node); ok && p.From == "" {
		return n.Address
	}
	return p.From
}

// AliasFigures returns the live figures of alias checks.
func (v *View) AliasFigures() *catalog.AliasFigures { return v.tables.catalog.AliasFigures() }

// CatalogBytes returns roughly how many bytes the registered nodes take with their checks. Services are instances.
func (v *View) CatalogBytes() int { return v.tables.catalog.Bytes() }

// CatalogGrowth returns roughly how many bytes a registration would add to the nodes.
func (v *View) CatalogGrowth(op RegisterCatalog) (bytes int) {
	return v.tables.catalog.Growth(op.registration())
}

func (v *View) Node(name string) (*catalog.Node, bool) { return v.tables.catalog.Node(name) }

// SpelledNode calls catalog.Tables.SpelledNode.
func (v *View) SpelledNode(name string) (spelled string, known bool) {
	return v.tables.catalog.SpelledNode(name)
}

// ServiceOn returns the lease of a node's service by its id, quarantined or not. The logical node ("") also has the
// instances that Eureka's clients registered, by their instance id; those registered through Consul's API come first.
// ambiguous reports that several applications have an instance with that id, none of them registered through Consul's
// API.
func (v *View) ServiceOn(node, id string) (l *Lease, ambiguous bool) {
	if key, _, ok := v.tables.catalog.Service(node, id); ok {
		l, _ = v.Find(key)
		return l, false
	}
	if node != "" {
		return nil, false
	}
	return v.tables.otherwise(id)
}

// ServicesOn yields the leases of a node's services, by application and id, without the quarantined; for the logical
// node ("") also instances not registered through Consul's API, see ServiceOn.
func (v *View) ServicesOn(node string) iter.Seq[*Lease] {
	if node == "" {
		return func(yield func(*Lease) bool) {
			for l := range v.Leases() {
				if (l.Service == nil || l.Service.Node == "") && !yield(l) {
					return
				}
			}
		}
	}
	return func(yield func(*Lease) bool) {
		keys := v.tables.catalog.ServicesOn(node)
		slices.SortFunc(keys, Key.Compare)
		for _, key := range keys {
			if l, ok := v.Lease(key); ok && !yield(l) {
				return
			}
		}
	}
}

// CheckOn returns a stored check by its node and id.
func (v *View) CheckOn(node, id string) (*catalog.Check, bool) {
	row, ok := v.tables.catalog.Check(node, id)
	return row.Check, ok
}

// CatalogIndex returns the Index of the last change of a node or of a node's check; for services and their checks,
// see Changed of their applications.
func (v *View) CatalogIndex() Index { return max(v.tables.catalog.Changed(), v.tables.restored) }

// LastHeartbeat returns when (lease clock, ms) a check with a TTL last had a heartbeat, live as LastRenewal is; 0
// before the first.
func (v *View) LastHeartbeat(c *catalog.Check) int64 {
	row, _ := v.tables.catalog.Check(c.Node, c.ID)
	return row.LastBeat()
}

// LastChange returns the Index of the last change of what a topic covers, which never goes back; absent reports that
// it does not exist. The Index is the same on every node, and after a restart: if the last change of an application
// may have been a removal whose record was pruned, it is the Index of the newest such removal. After a restore,
// everything counts as changed by it.
func (v *View) LastChange(t Topic) (at Index, absent bool) {
	at, absent = v.lastChange(t)
	return max(at, v.tables.restored), absent
}

func (v *View) lastChange(t Topic) (at Index, absent bool) {
	parts := &v.tables.parts
	switch t.Kind {
	case AllTopic:
		return v.index, false
	case ServicesTopic:
		return parts.Services, false
	case ServicesByNodeTopic:
		return max(parts.Services, parts.Nodes), false
	case NodesTopic:
		return parts.Nodes, false
	case ChecksTopic:
		return parts.Checks, false
	case ServiceTopic, HealthTopic:
		return v.lastOfService(t)
	case NodeTopic, NodeChecksTopic:
		return v.lastOfNode(t)
	}
	app, ok := v.App(t.Name)
	if !ok {
		return parts.Services, true
	}
	return max(app.Changed, v.tables.pruned), false
}

// lastOfService is LastChange for a service. A service without instances went with a change of all services.
func (v *View) lastOfService(t Topic) (at Index, absent bool) {
	app, ok := v.App(t.Name)
	if !ok {
		return v.tables.parts.Services, true
	}
	at = max(app.defined, v.tables.pruned)
	if t.Kind == HealthTopic {
		at = max(at, app.Changed)
	}
	on := v.nodesUnder(app)
	at = max(at, on.modified)
	if t.Kind == HealthTopic {
		at = max(at, on.checked)
	}
	return at, false
}

// nodesUnder is when the nodes that an application's instances are on last changed. Immutable.
type nodesUnder struct {
	as                Index // View.CatalogIndex
	modified, checked Index // the nodes, and their checks
}

// nodesUnder walks the instances, unless no node has changed since the last walk.
func (v *View) nodesUnder(app *App) *nodesUnder {
	index := v.CatalogIndex()
	if found := app.on.Load(); found != nil && found.as == index {
		return found
	}
	on := &nodesUnder{as: index}
	first, before := true, ""
	for l := range app.Leases() {
		node, _ := l.node()
		if !first && node == before {
			continue
		}
		first, before = false, node
		if n, ok := v.Node(node); ok {
			on.modified, on.checked = max(on.modified, n.ModifyIndex), max(on.checked, n.ChecksChanged)
		}
	}
	app.on.Store(on)
	return on
}

// lastOfNode is LastChange for a node, from its services and from when one last left. A node that is not registered
// went with a change of all nodes; the logical one is always registered.
func (v *View) lastOfNode(t Topic) (at Index, absent bool) {
	n, known := v.Node(t.Name)
	switch {
	case t.Name == "" && t.Kind == NodeTopic:
		at = v.tables.parts.LogicalServices
	case t.Name == "":
		at = v.tables.parts.Logical
	case !known:
		return v.tables.parts.Nodes, true
	default:
		at = max(n.CreateIndex, n.ServiceLeft, v.lastOfServicesOn(t))
	}
	switch {
	case !known:
		return at, false
	case t.Kind == NodeTopic:
		return max(at, n.ModifyIndex), false
	}
	return max(at, n.ChecksChanged), false
}

// lastOfServicesOn is LastChange for the services listed on a node.
func (v *View) lastOfServicesOn(t Topic) (at Index) {
	for key := range v.tables.catalog.EachServiceOn(t.Name) {
		l, listed := v.Lease(key)
		switch {
		case !listed:
		case t.Kind == NodeTopic:
			at = max(at, l.Defined)
		default:
			at = max(at, l.Changed)
		}
	}
	return at
}
