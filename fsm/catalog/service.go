package catalog

import (
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Service is what Consul's API says about an instance beyond what Eureka's does. An instance that has one has no
// lease: it never expires, stays outside self-preservation, and goes only by a cancel, a deregistration or a check.
// Immutable.
//
// Name and id are also the instance's application (upper case) and id. If the service is not on the logical node, the
// instance's id is node:id. Metadata, address, port and status are in the Instance; its status follows from the
// checks: passing and warning are UP, critical is DOWN, maintenance is OUT_OF_SERVICE.
type Service struct {
	Name    string // as given; names that differ only in case are one application, and refused
	ID      string
	Node    string // "": the logical node
	Tags    []string
	Address string // as given; "" stands for the node's
	Port    int32  // as given
	Tagged  []TaggedAddress
	// Weights for weighted answers; 1 and 1 if not given.
	WeightPassing, WeightWarning int32
	TagOverride                  bool // EnableTagOverride
	Kind, SocketPath             string
	// Locality, Ports and Proxy are JSON as given, which is echoed; nil if not given.
	Locality, Ports, Proxy []byte
	Native                 bool     // it takes part in a service mesh by itself (Connect.Native)
	Checks                 []*Check // by id
	CreateIndex            order.Index
	ModifyIndex            order.Index // of the last change of the service itself, not of its checks
}

func (s *Service) Fields(c *codec.Codec) {
	c.String(&s.Name)
	c.String(&s.ID)
	c.String(&s.Node)
	c.Strings(&s.Tags)
	c.String(&s.Address)
	c.Int32(&s.Port)
	codec.List(c, &s.Tagged, 3, (*TaggedAddress).fields)
	c.Int32(&s.WeightPassing)
	c.Int32(&s.WeightWarning)
	c.Bool(&s.TagOverride)
	c.String(&s.Kind)
	c.String(&s.SocketPath)
	c.Bytes(&s.Locality)
	c.Bytes(&s.Ports)
	Checks(c, &s.Checks)
	codec.Uint(c, &s.CreateIndex)
	codec.Uint(c, &s.ModifyIndex)
	c.Bytes(&s.Proxy)
	c.Bool(&s.Native)
}

// TaggedAddress is one of a service's tagged addresses, which are sorted by tag.
type TaggedAddress struct {
	Tag, Address string
	Port         int32
}

func (a *TaggedAddress) fields(c *codec.Codec) {
	c.String(&a.Tag)
	c.String(&a.Address)
	c.Int32(&a.Port)
}

// LogicalNode is the clients' name for the logical node, whose name is empty here.
const LogicalNode = "rollcall"

// Node is a node of the catalog. The logical node, whose Name is "", is stored only once checks have been registered
// on it. Immutable.
type Node struct {
	ID, Name, Address string
	Tagged, Meta      []codec.Pair
	Checks            []*Check // of the node itself, by id
	CreateIndex       order.Index
	ModifyIndex       order.Index // of the node itself, not of its checks
	ChecksChanged     order.Index // of the last change of its own checks, including removals; 0: it never had one
	ServiceLeft       order.Index // when a service was last removed from it, moved away or hidden; 0: never
}

// changed returns the Index of the last change of the node or its own checks, or of a service's departure.
func (n *Node) changed() order.Index { return max(n.ModifyIndex, n.ChecksChanged, n.ServiceLeft) }

func (n *Node) Fields(c *codec.Codec) {
	c.String(&n.ID)
	c.String(&n.Name)
	c.String(&n.Address)
	c.Pairs(&n.Tagged)
	c.Pairs(&n.Meta)
	Checks(c, &n.Checks)
	codec.Uint(c, &n.CreateIndex)
	codec.Uint(c, &n.ModifyIndex)
	codec.Uint(c, &n.ChecksChanged)
	codec.Uint(c, &n.ServiceLeft)
}

// Alive reports whether a node is an agent's: it has the check SerfHealth.
func (n *Node) Alive() bool {
	_, ok := findCheck(n.Checks, SerfHealth)
	return ok
}

// Roughly how many bytes values take besides their texts.
const (
	nodeWeight  = 512
	checkWeight = 512
	textWeight  = 32 // of each text of a list
)

// Weight returns roughly how many bytes a node takes with its checks.
func (n *Node) Weight() int {
	bytes := n.ownWeight()
	for _, c := range n.Checks {
		bytes += c.Weight()
	}
	return bytes
}

func (n *Node) ownWeight() int {
	return nodeWeight + len(n.ID) + len(n.Name) + len(n.Address) + weightOf(n.Tagged) + weightOf(n.Meta)
}

func weightOf(pairs []codec.Pair) (bytes int) {
	for _, p := range pairs {
		bytes += textWeight + len(p.Key) + len(p.Value)
	}
	return bytes
}

// Weight returns roughly how many bytes a service takes with its checks, besides its instance.
func (s *Service) Weight() int {
	bytes := len(s.Address) + len(s.SocketPath) + len(s.Locality) + len(s.Ports) + len(s.Proxy)
	for _, tag := range s.Tags {
		bytes += textWeight + len(tag)
	}
	for _, t := range s.Tagged {
		bytes += textWeight + len(t.Tag) + len(t.Address)
	}
	for _, c := range s.Checks {
		bytes += c.Weight()
	}
	return bytes
}
