package registry

import (
	"slices"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// Topic is what can be waited for: a part of the state whose last change View.LastChange knows.
type Topic struct {
	Kind TopicKind
	Name string // an application (upper case) or a node ("": the logical one), where the kind is of one
}

// TopicKind is a kind of topic.
type TopicKind uint8

// The kinds of topics. A service is defined by what is registered of it, see Lease.Defined; its checks and its status are
// no part of that.
const (
	// InstancesTopic is the instances of an application ("": of all).
	InstancesTopic TopicKind = iota
	// AllTopic is all instances, nodes and checks.
	AllTopic
	// ServicesTopic is all services as they are defined.
	ServicesTopic
	// ServicesByNodeTopic is that and all nodes as they are registered, by which services are selected.
	ServicesByNodeTopic
	// NodesTopic is all nodes as they are registered.
	NodesTopic
	// ChecksTopic is all checks of services and of nodes.
	ChecksTopic
	// ServiceTopic is a service as it is defined, with the nodes that it is on as they are registered.
	ServiceTopic
	// HealthTopic is all of a service, and of the nodes that it is on with their checks.
	HealthTopic
	// NodeTopic is a node as it is registered, with its services as they are defined.
	NodeTopic
	// NodeChecksTopic is the checks of a node and of its services.
	NodeChecksTopic
)

// PartIndexes are the Indexes of the last changes of parts of the catalog, also of what is gone by now; 0: there was none.
type PartIndexes struct {
	Services Index // of services as they are defined, see Lease.Defined
	Nodes    Index // of nodes as they are registered
	Checks   Index // of checks, of nodes and of services, or of what is shown with a service's checks
	// LogicalServices is Services, and Logical that of any change, for the services of the logical node alone.
	LogicalServices, Logical Index
}

func (p *PartIndexes) fields(c *codec.Codec) {
	codec.Uint(c, &p.Services)
	codec.Uint(c, &p.Nodes)
	codec.Uint(c, &p.Checks)
	codec.Uint(c, &p.LogicalServices)
	codec.Uint(c, &p.Logical)
}

// newest is the highest of them.
func (p *PartIndexes) newest() Index {
	return max(p.Services, p.Nodes, p.Checks, p.LogicalServices, p.Logical)
}

// mark records that l takes the place of old, by the change of an index. Either may be the zero Lease.
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

// markService records when a service of a node was defined or left, and when anything of it changed.
func (p *PartIndexes) markService(node string, defined, changed Index) {
	p.Services = max(p.Services, defined)
	if node == "" {
		p.LogicalServices, p.Logical = max(p.LogicalServices, defined), max(p.Logical, changed)
	}
}

// markNode records that n takes the place of old, by the change of an index. Either may be nil: there is none.
func (p *PartIndexes) markNode(old, n *catalog.Node, index Index) {
	if old == nil || n == nil || old.ModifyIndex != n.ModifyIndex {
		p.Nodes = index
	}
	if n == nil && len(old.Checks) > 0 || n != nil && n.ChecksChanged == index {
		p.Checks = index
	}
}

// rename records that instances which were registered otherwise are called by another name. They are on the logical node.
func (p *PartIndexes) rename(index Index) {
	p.Checks = max(p.Checks, index)
	p.markService("", index, index)
}

// leftNode is the node on which old was listed, if l, which takes its place, is not. Either may be the zero Lease.
func leftNode(old, l *Lease) (node string, left bool) {
	node, listed := old.node()
	now, still := l.node()
	return node, listed && !(still && now == node)
}

// sameChecks says whether the checks of l are shown as those of old, in whose place it is. Either may be the zero Lease.
func sameChecks(old, l *Lease) bool {
	before, all := old.registeredChecks()
	now, allNow := l.registeredChecks()
	if !all || !allNow || !slices.Equal(before, now) {
		return false
	}
	return len(now) == 0 || old.Service.Name == l.Service.Name && slices.Equal(old.Service.Tags, l.Service.Tags)
}

// registeredChecks are the checks of a service that is listed; all: no others are shown with it, as they are of an instance
// that was registered otherwise, or whose status an operator decided.
func (l *Lease) registeredChecks() (checks []*catalog.Check, all bool) {
	if _, listed := l.node(); !listed {
		return nil, true
	}
	if l.Service == nil || l.Instance.Overridden != Unknown {
		return nil, false
	}
	return l.Service.Checks, true
}
