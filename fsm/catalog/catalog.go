package catalog

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/order"
)

// Service is what Consul's API says of an instance beyond what Eureka's does. An instance that has one
// has no lease: it never expires by itself, stays outside self-preservation, and goes by a cancel, a
// deregistration or a check. Immutable.
//
// Name and id are also the instance's application (upper case) and id: of a service on another node
// than the logical one the instance's id is node:id. Metadata, address, port and status stand in the
// Instance; its status follows from the checks: passing and warning are UP, critical is DOWN,
// maintenance is OUT_OF_SERVICE.
type Service struct {
	Name    string // as given; names that differ in case only are one application, and refused
	ID      string
	Node    string // "": the logical node
	Tags    []string
	Address string // as given; "": the node's
	Port    int32  // as given
	Tagged  []TaggedAddress
	// Weights for answers that are weighed; 1 and 1 where none are given.
	WeightPassing, WeightWarning int32
	TagOverride                  bool // EnableTagOverride
	Kind, SocketPath             string
	// Locality and Ports are JSON as given, which is echoed; nil: not given.
	Locality, Ports []byte
	Checks          []*Check // by id
	CreateIndex     order.Index
	ModifyIndex     order.Index // of the last change of the service itself, not of its checks
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
}

// TaggedAddress is one of a service's tagged addresses, sorted by tag.
type TaggedAddress struct {
	Tag, Address string
	Port         int32
}

func (a *TaggedAddress) fields(c *codec.Codec) {
	c.String(&a.Tag)
	c.String(&a.Address)
	c.Int32(&a.Port)
}

// CheckStatus is a check's state. Never renumber one.
type CheckStatus uint8

// The states, best first.
const (
	Passing CheckStatus = iota
	Warning
	Critical
)

func (s *CheckStatus) Fields(c *codec.Codec) { codec.Enum(c, s, Critical, "status of a check") }

// Check is a check of a service or of a node. Immutable; a heartbeat that changes nothing is kept
// beside it.
type Check struct {
	Node        string // "": the logical node
	ID          string // unique on its node
	Name        string
	Notes       string
	Output      string
	Status      CheckStatus
	Service     string // service id; "": of the node
	Type        string // ttl, http, tcp, maintenance, or as given
	TTL         int64  // ms; 0: no heartbeats are expected
	ReapAfter   int64  // ms that it may be critical before its service goes (DeregisterCriticalServiceAfter); 0: for ever
	Probe       *Probe // what the leader tries; nil: nothing
	Definition  []byte // JSON as given to the catalog, which is echoed; nil: none
	CreateIndex order.Index
	ModifyIndex order.Index
	// CriticalSince is when (lease clock, ms) it turned critical; meaningless otherwise.
	CriticalSince int64
}

func (k *Check) fields(c *codec.Codec) {
	c.String(&k.Node)
	c.String(&k.ID)
	c.String(&k.Name)
	c.String(&k.Notes)
	c.String(&k.Output)
	k.Status.Fields(c)
	c.String(&k.Service)
	c.String(&k.Type)
	c.Int64(&k.TTL)
	c.Int64(&k.ReapAfter)
	codec.Optional(c, &k.Probe, (*Probe).fields)
	c.Bytes(&k.Definition)
	codec.Uint(c, &k.CreateIndex)
	codec.Uint(c, &k.ModifyIndex)
	c.Int64(&k.CriticalSince)
}

// checks walks checks, of which each takes 15 bytes at least.
func Checks(c *codec.Codec, all *[]*Check) { codec.List(c, all, 15, codec.Each((*Check).fields)) }

// Probe is a check that somebody must run. Immutable.
type Probe struct {
	HTTP, Method, Body string // HTTP: URL
	Header             []codec.Pair
	SkipVerify         bool
	NoRedirects        bool   // a redirect is the answer
	TCP                string // host:port
	Interval, Timeout  int64  // ms
	// How many equal results in a row change the state: to passing, to warning, to critical; 0: one.
	SuccessBeforePassing, FailuresBeforeWarning, FailuresBeforeCritical int32
}

func (p *Probe) fields(c *codec.Codec) {
	c.String(&p.HTTP)
	c.String(&p.Method)
	c.String(&p.Body)
	c.Pairs(&p.Header)
	c.Bool(&p.SkipVerify)
	c.Bool(&p.NoRedirects)
	c.String(&p.TCP)
	c.Int64(&p.Interval)
	c.Int64(&p.Timeout)
	c.Int32(&p.SuccessBeforePassing)
	c.Int32(&p.FailuresBeforeWarning)
	c.Int32(&p.FailuresBeforeCritical)
}

// Node is a node of the catalog other than the logical one, which is not stored unless checks were
// registered on it (its name is then ""). Immutable.
type Node struct {
	ID, Name, Address string
	Tagged, Meta      []codec.Pair
	Checks            []*Check // of the node itself, by id
	CreateIndex       order.Index
	ModifyIndex       order.Index // of the node itself, not of its checks
}

// Fields walks a node of the catalog.
func (n *Node) Fields(c *codec.Codec) {
	c.String(&n.ID)
	c.String(&n.Name)
	c.String(&n.Address)
	c.Pairs(&n.Tagged)
	c.Pairs(&n.Meta)
	Checks(c, &n.Checks)
	codec.Uint(c, &n.CreateIndex)
	codec.Uint(c, &n.ModifyIndex)
}

// CheckRef names a check, or (ID "") a node.
type CheckRef struct{ Node, ID string }

// SerfHealth is the id of the check that the logical node always has.
const SerfHealth = "serfHealth"

// Ids of the checks by which operators take a service, or all of a node, out of service.
const (
	NodeMaintenance    = "_node_maintenance"
	ServiceMaintenance = "_service_maintenance:" // and the service's id
)

// Maintenance says that the check takes what it is of out of service.
func (c *Check) Maintenance() bool {
	return c.ID == NodeMaintenance || strings.HasPrefix(c.ID, ServiceMaintenance)
}

// Bounds of checks, with which the cost of every operation on one is bounded too: those of a service, those of a
// node itself, and those that one registration may have.
const (
	MaxServiceChecks = 64
	MaxNodeChecks    = 256
	MaxChecks        = 256
)

// equal compares two checks in what was registered and reported.
func (c *Check) Equal(o *Check) bool {
	return c == o || c.sameIdentity(o) && c.sameState(o) && c.sameDefinition(o)
}

func (c *Check) sameIdentity(o *Check) bool {
	return c.Node == o.Node && c.ID == o.ID && c.Service == o.Service
}

func (c *Check) sameState(o *Check) bool { return c.Status == o.Status && c.Output == o.Output }

func (c *Check) sameDefinition(o *Check) bool {
	return c.Name == o.Name && c.Notes == o.Notes && c.Type == o.Type && c.TTL == o.TTL && c.ReapAfter == o.ReapAfter &&
		c.Probe.equal(o.Probe) && bytes.Equal(c.Definition, o.Definition)
}

func (p *Probe) equal(o *Probe) bool {
	if p == nil || o == nil {
		return p == o
	}
	return p.HTTP == o.HTTP && p.Method == o.Method && p.Body == o.Body && slices.Equal(p.Header, o.Header) &&
		p.SkipVerify == o.SkipVerify && p.NoRedirects == o.NoRedirects && p.TCP == o.TCP && p.Interval == o.Interval && p.Timeout == o.Timeout &&
		p.SuccessBeforePassing == o.SuccessBeforePassing && p.FailuresBeforeWarning == o.FailuresBeforeWarning &&
		p.FailuresBeforeCritical == o.FailuresBeforeCritical
}

// ref names the check.
func (c *Check) Ref() CheckRef { return CheckRef{c.Node, c.ID} }

// maintenanceOf is the id of the check that takes a service out of service; "": the node itself.
func MaintenanceOf(service string) string {
	if service == "" {
		return NodeMaintenance
	}
	return ServiceMaintenance + service
}

// findCheck finds a check by its id, in a list sorted by it.
func FindCheck(checks []*Check, id string) (at int, ok bool) {
	return slices.BinarySearchFunc(checks, id, func(c *Check, id string) int { return strings.Compare(c.ID, id) })
}

// withCheck returns a list with a check in the place of the one of its id.
func WithCheck(checks []*Check, c *Check) []*Check {
	at, ok := FindCheck(checks, c.ID)
	changed := slices.Clone(checks)
	if ok {
		changed[at] = c
		return changed
	}
	return slices.Insert(changed, at, c)
}

// withoutCheck returns a list without the check of an id; nil if that was the last one.
func WithoutCheck(checks []*Check, id string) []*Check {
	at, ok := FindCheck(checks, id)
	if !ok {
		return checks
	}
	if len(checks) == 1 {
		return nil
	}
	return slices.Delete(slices.Clone(checks), at, at+1)
}

// withoutChecks returns a list without the checks of some ids; nil if those were all.
func WithoutChecks(checks []*Check, gone map[string]bool) (left []*Check) {
	for _, c := range checks {
		if !gone[c.ID] {
			left = append(left, c)
		}
	}
	return left
}

// CheckHeartbeat is when (lease clock, ms) a check with a TTL last had a heartbeat.
type CheckHeartbeat struct {
	Node, Check string
	At          int64
}

// Fields walks a heartbeat.
func (h *CheckHeartbeat) Fields(c *codec.Codec) {
	c.String(&h.Node)
	c.String(&h.Check)
	c.Int64(&h.At)
}

func CompareCheckRefs(a, b CheckRef) int {
	return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.ID, b.ID))
}

// What things take beside their texts, in bytes, about.
const (
	nodeWeight  = 512
	checkWeight = 512
	textWeight  = 32 // of each text of a list
)

// Weight is what a node takes with its checks, in bytes, about.
func (n *Node) Weight() int {
	bytes := n.OwnWeight()
	for _, c := range n.Checks {
		bytes += c.Weight()
	}
	return bytes
}

func (n *Node) OwnWeight() int {
	return nodeWeight + len(n.ID) + len(n.Name) + len(n.Address) + weightOf(n.Tagged) + weightOf(n.Meta)
}

func (c *Check) Weight() int {
	bytes := checkWeight + len(c.ID) + len(c.Name) + len(c.Notes) + len(c.Output) + len(c.Type) + len(c.Definition)
	if p := c.Probe; p != nil {
		bytes += len(p.HTTP) + len(p.Method) + len(p.Body) + len(p.TCP) + weightOf(p.Header)
	}
	return bytes
}

func weightOf(pairs []codec.Pair) (bytes int) {
	for _, p := range pairs {
		bytes += textWeight + len(p.Key) + len(p.Value)
	}
	return bytes
}

// weight is what a service takes with its checks beside its instance, in bytes, about.
func (s *Service) Weight() int {
	bytes := len(s.Address) + len(s.SocketPath) + len(s.Locality) + len(s.Ports)
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
