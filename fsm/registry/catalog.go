package registry

import (
	"cmp"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/codec"
)

// CatalogService is what Consul's API says of an instance beyond what Eureka's does. An instance that has one
// has no lease: it never expires by itself, stays outside self-preservation, and goes by a cancel, a
// deregistration or a check. Immutable.
//
// Name and id are also the instance's application (upper case) and id: of a service on another node
// than the logical one the instance's id is node:id. Metadata, address, port and status stand in the
// Instance; its status follows from the checks: passing and warning are UP, critical is DOWN,
// maintenance is OUT_OF_SERVICE.
type CatalogService struct {
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
	CreateIndex     Index
	ModifyIndex     Index // of the last change of the service itself, not of its checks
}

func (s *CatalogService) fields(c *codec.Codec) {
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
	checks(c, &s.Checks)
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

func (s *CheckStatus) fields(c *codec.Codec) { codec.Enum(c, s, Critical, "status of a check") }

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
	CreateIndex Index
	ModifyIndex Index
	// CriticalSince is when (lease clock, ms) it turned critical; meaningless otherwise.
	CriticalSince int64
}

func (k *Check) fields(c *codec.Codec) {
	c.String(&k.Node)
	c.String(&k.ID)
	c.String(&k.Name)
	c.String(&k.Notes)
	c.String(&k.Output)
	k.Status.fields(c)
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
func checks(c *codec.Codec, all *[]*Check) { codec.List(c, all, 15, codec.Each((*Check).fields)) }

// Probe is a check that somebody must run. Immutable.
type Probe struct {
	HTTP, Method, Body string // HTTP: URL
	Header             []Pair
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
	pairs(c, &p.Header)
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
	Tagged, Meta      []Pair
	Checks            []*Check // of the node itself, by id
	CreateIndex       Index
	ModifyIndex       Index // of the node itself, not of its checks
}

// Fields walks a node of the catalog.
func (n *Node) Fields(c *codec.Codec) {
	c.String(&n.ID)
	c.String(&n.Name)
	c.String(&n.Address)
	pairs(c, &n.Tagged)
	pairs(c, &n.Meta)
	checks(c, &n.Checks)
	codec.Uint(c, &n.CreateIndex)
	codec.Uint(c, &n.ModifyIndex)
}

// RegisterCatalog registers a node, a service and checks, in one step. Outcomes: Done (Index is 0 if
// nothing changed), UnknownService (a check names a service that is not on the node), NameTaken
// (another application has that name in other letters), TooManyChecks, AddressTaken and CheckTaken (of the logical
// node: the service's id, or a check's, is another's). An absent node is created.
type RegisterCatalog struct {
	// Node is the node; nil: the logical one. KeepNode: if it is registered, it stays as it is.
	Node     *Node
	KeepNode bool
	// Service and Instance go together; nil: none. The Instance's key is what Service says. A service of
	// the same node and id and another name is replaced.
	Service  *CatalogService
	Instance *Instance
	Checks   []*Check
	// ReplaceChecks: those of the service that are not among Checks go. KeepStatus: a check that exists
	// already keeps its state and output.
	ReplaceChecks, KeepStatus bool
}

func (RegisterCatalog) kind() Kind { return 18 }

func (op RegisterCatalog) apply(r *Registry, at at) Result { return r.registerCatalog(at.origin, op) }

func (op RegisterCatalog) fields(c *codec.Codec) RegisterCatalog {
	has := c.Mask(codec.Bits(op.Node != nil, op.KeepNode, op.Service != nil, op.ReplaceChecks, op.KeepStatus), 5, "registration")
	op.KeepNode, op.ReplaceChecks, op.KeepStatus = has&2 != 0, has&8 != 0, has&16 != 0
	if has&1 != 0 {
		codec.Ptr(c, &op.Node).Fields(c)
	}
	if has&4 != 0 {
		codec.Ptr(c, &op.Service).fields(c)
		body(c, &op.Instance)
	}
	checks(c, &op.Checks)
	return op
}

// DeregisterCatalog removes a service with its checks (Service given), a check (Check given), or a node
// with everything on it. It is final: a record of the removal stays. Outcome NotFound: there was
// nothing to remove. If Epoch is given the leader proposed it, because Check has been critical since
// CriticalSince: it takes effect only if that is still so.
type DeregisterCatalog struct {
	Node, Service, Check string
	Epoch                Epoch
	CriticalSince        int64
}

func (DeregisterCatalog) kind() Kind { return 19 }

func (op DeregisterCatalog) apply(r *Registry, at at) Result {
	return r.deregisterCatalog(at.term, at.origin, op)
}

func (op DeregisterCatalog) fields(c *codec.Codec) DeregisterCatalog {
	c.String(&op.Node)
	c.String(&op.Service)
	c.String(&op.Check)
	op.Epoch.Fields(c)
	c.Int64(&op.CriticalSince)
	return op
}

// SetCheck sets a check's state and output, and starts its TTL anew. What changes nothing takes no
// Index. Outcomes: NotFound, NoTTL (TTL is set, and the check has none).
type SetCheck struct {
	Node, Check string
	Status      CheckStatus
	Output      string
	TTL         bool  // only if the check has one
	Epoch       Epoch // of the leader who ran the probe; zero: a client said it
}

func (SetCheck) kind() Kind { return 20 }

func (op SetCheck) apply(r *Registry, at at) Result { return r.setCheck(at.term, at.origin, op) }

func (op SetCheck) fields(c *codec.Codec) SetCheck {
	c.String(&op.Node)
	c.String(&op.Check)
	op.Status.fields(c)
	c.String(&op.Output)
	c.Bool(&op.TTL)
	op.Epoch.Fields(c)
	return op
}

// ExpireCheck turns a check critical whose TTL has passed. The leader proposes it; it takes effect only
// if the last heartbeat was at RenewedAt (lease clock, ms). Output becomes "TTL expired", with the last
// one behind it.
type ExpireCheck struct {
	Epoch       Epoch
	Node, Check string
	RenewedAt   int64
}

func (ExpireCheck) kind() Kind { return 21 }

func (op ExpireCheck) apply(r *Registry, at at) Result { return r.expireCheck(at.term, at.origin, op) }

func (op ExpireCheck) fields(c *codec.Codec) ExpireCheck {
	op.Epoch.Fields(c)
	c.String(&op.Node)
	c.String(&op.Check)
	c.Int64(&op.RenewedAt)
	return op
}

// CheckRef names a check, or (ID "") a node.
type CheckRef struct{ Node, ID string }

func compareCheckRefs(a, b CheckRef) int {
	return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.ID, b.ID))
}

// SerfHealth is the id of the check that the logical node always has.
const SerfHealth = "serfHealth"
