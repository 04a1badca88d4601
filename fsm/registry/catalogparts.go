package registry

import (
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// Topic is a part of the state that callers can wait for; View.LastChange knows when it last changed.
type Topic struct {
	Kind TopicKind
	Name string // an application (upper case) or a node ("": the logical one), if the kind has names
}

type TopicKind uint8

// The kinds of topics. A service's definition is what was registered (see Lease.Defined); its checks and its status
// are not part of it.
const (
	// InstancesTopic covers the instances of an application ("": of all).
	InstancesTopic TopicKind = iota
	// AllTopic covers all instances, nodes and checks.
	AllTopic
	// ServicesTopic covers the definitions of all services.
	ServicesTopic
	// ServicesByNodeTopic covers ServicesTopic and the registrations of all nodes, since queries select services by
	// their nodes.
	ServicesByNodeTopic
	// NodesTopic covers the registrations of all nodes.
	NodesTopic
	// ChecksTopic covers all checks of services and of nodes.
	ChecksTopic
	// ServiceTopic covers the definition of a service and the registrations of its nodes.
	ServiceTopic
	// HealthTopic covers all of a service, and its nodes with their checks.
	HealthTopic
	// NodeTopic covers the registration of a node and the definitions of its services.
	NodeTopic
	// NodeChecksTopic covers the checks of a node and of its services.
	NodeChecksTopic
)

// PartIndexes are the Indexes of the last changes of parts of the catalog, removals included; 0 before the first.
type PartIndexes struct {
	Services Index // of services as they are defined, see Lease.Defined
	Nodes    Index // of nodes as they are registered
	Checks   Index // of checks, of nodes and of services, or of what is shown with a service's checks
	// LogicalServices is Services, and Logical the Index of any change, for the services of the logical node alone.
	LogicalServices, Logical Index
}

func (p *PartIndexes) fields(c *codec.Codec) {
	codec.Uint(c, &p.Services)
	codec.Uint(c, &p.Nodes)
	codec.Uint(c, &p.Checks)
	codec.Uint(c, &p.LogicalServices)
	codec.Uint(c, &p.Logical)
}

// mark records that l replaces old at an index. Either may be the zero Lease.
func (p *PartIndexes) mark(old, l *Lease, index Index) {
	if !sameChecks(old, l) {
		p.Checks = max(p.Checks, index)
	}
	if node, listed := l.node(); listed {
		p.markService(node, l.Defined, l.Changed)
	}
	if node, left := leftNode(old, l); left {
		p.markService(node, index, index)
	}
}

// markService records when a service of a node was defined or left, and when anything about it changed.
func (p *PartIndexes) markService(node string, defined, changed Index) {
	p.Services = max(p.Services, defined)
	if node == "" {
		p.LogicalServices, p.Logical = max(p.LogicalServices, defined), max(p.Logical, changed)
	}
}

// markNode records that n replaces old at an index. Either may be nil.
func (p *PartIndexes) markNode(old, n *catalog.Node, index Index) {
	if old == nil || n == nil || old.ModifyIndex != n.ModifyIndex {
		p.Nodes = index
	}
	if n == nil && len(old.Checks) > 0 || n != nil && n.ChecksChanged == index {
		p.Checks = index
	}
}

// rename records that instances registered outside Consul's API, all on the logical node, get another name.
func (p *PartIndexes) rename(index Index) {
	p.Checks = max(p.Checks, index)
	p.markService("", index, index)
}

// leftNode returns the node that listed old, if l, which replaces it, is not there. Either may be the zero Lease.
func leftNode(old, l *Lease) (node string, left bool) {
	node, listed := old.node()
	now, still := l.node()
	return node, listed && !(still && now == node)
}

// sameChecks reports whether l, which replaces old, is shown with the same checks. Either may be the zero Lease.
func sameChecks(old, l *Lease) bool {
	before, all := old.registeredChecks()
	now, allNow := l.registeredChecks()
	if !all || !allNow || !slices.Equal(before, now) {
		return false
	}
	return len(now) == 0 || old.Service.Name == l.Service.Name && slices.Equal(old.Service.Tags, l.Service.Tags)
}

// registeredChecks returns the checks of a listed service. all reports that no others are shown with it, as happens
// for an instance registered outside Consul's API, or one whose status an operator decided.
func (l *Lease) registeredChecks() (checks []*catalog.Check, all bool) {
	if _, listed := l.node(); !listed {
		return nil, true
	}
	if l.Service == nil || l.Instance.Overridden != Unknown {
		return nil, false
	}
	return l.Service.Checks, true
}
