package consul

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Service is a service of the catalog, however it was registered, before it gets the form of a response.
type Service struct {
	Node              string // as the registry names it
	ID, Name          string
	Kind, SocketPath  string
	Tags              []string
	Address           string
	Port              int32
	Tagged            map[string]Address
	Meta              map[string]string
	Weights           Weights
	EnableTagOverride bool
	Locality, Ports   json.RawMessage
	Proxy             *Proxy
	Native            bool
	CreateIndex       registry.Index
	ModifyIndex       registry.Index
	Checks            []Check // its own ones, without those of its node
}

// Address is one of a service's tagged addresses.
type Address struct {
	Address string
	Port    int32
}

// Weights are a service's weights in weighted responses.
type Weights struct{ Passing, Warning int32 }

// ServiceOf returns a lease as a service, with the name that its application has in Consul's API.
func ServiceOf(l *registry.Lease, name string) Service {
	var s Service
	if l.Service != nil {
		s = fromCatalog(l)
	} else {
		s = fromEureka(l, name)
	}
	s.Checks = checksOf(l, s)
	return s
}

func fromCatalog(l *registry.Lease) Service {
	c := l.Service
	port := c.Port
	if len(c.Ports) > 0 && port == 0 { // the instance has the default one
		shown, _ := l.Instance.MainPort()
		port = int32(shown.Number)
	}
	return Service{
		Node: c.Node, ID: c.ID, Name: c.Name, Kind: c.Kind, SocketPath: c.SocketPath, Tags: tagsOf(c.Tags), Address: c.Address, Port: port,
		Tagged: taggedOf(c.Tagged), Meta: metaOf(l.Instance), Weights: Weights{c.WeightPassing, c.WeightWarning}, EnableTagOverride: c.TagOverride,
		Locality: c.Locality, Ports: c.Ports, Proxy: proxyOf(c), Native: c.Native, CreateIndex: c.CreateIndex, ModifyIndex: c.ModifyIndex,
	}
}

// fromEureka returns an instance that a client of Eureka registered. It is on the logical node. Clients of
// Eureka register again with each change of status; that does not change the service's indexes unless it says
// something new.
func fromEureka(l *registry.Lease, name string) Service {
	i := l.Instance
	port, secure := i.MainPort()
	s := Service{
		ID: i.ID(), Name: name, Tags: []string{}, Address: cmp.Or(i.IPAddr, i.HostName), Port: int32(port.Number),
		Meta: metaOf(i), Weights: Weights{1, 1}, Proxy: noProxy, CreateIndex: l.Defined, ModifyIndex: l.Defined,
	}
	if _, said := s.Meta[secureMeta]; secure && !said {
		s.Meta[secureMeta] = "true"
	}
	return s
}

func tagsOf(tags []string) []string {
	if tags == nil {
		return []string{} // shown as an empty list, not as null
	}
	return tags
}

func taggedOf(tagged []catalog.TaggedAddress) map[string]Address {
	if len(tagged) == 0 {
		return nil
	}
	m := make(map[string]Address, len(tagged))
	for _, t := range tagged {
		m[t.Tag] = Address{t.Address, t.Port}
	}
	return m
}

// metaOf returns an instance's metadata, never nil.
func metaOf(i *registry.Instance) map[string]string {
	m := registry.MapOf(i.Metadata)
	if m == nil {
		return map[string]string{}
	}
	return m
}

// HasTags reports whether the service has all of tags, in any case.
func (s Service) HasTags(tags []string) bool {
	return !slices.ContainsFunc(tags, func(want string) bool {
		return !slices.ContainsFunc(s.Tags, func(has string) bool { return strings.EqualFold(has, want) })
	})
}

// Itself returns the service "consul", which stands for the cluster's servers.
func (h Home) Itself() Service {
	return Service{
		ID: ItselfID, Name: ItselfID, Tags: []string{}, Port: int32(h.Port), Meta: map[string]string{}, Weights: Weights{1, 1},
		Proxy: noProxy, CreateIndex: 1, ModifyIndex: 1,
	}
}

// AgentService is a service in responses of agent/services.
type AgentService struct {
	Kind              string `json:",omitempty"`
	ID                string
	Service           string
	Tags              []string
	Meta              map[string]string
	Port              int32
	Ports             json.RawMessage `json:",omitempty"`
	Address           string
	SocketPath        string             `json:",omitempty"`
	TaggedAddresses   map[string]Address `json:",omitempty"`
	Weights           Weights
	EnableTagOverride bool
	ContentHash       string   `json:",omitempty"`
	Proxy             *Proxy   `json:",omitempty"`
	Connect           *Connect `json:",omitempty"`
	Datacenter        string
	Locality          json.RawMessage `json:",omitempty"`
}

// Agent returns the service as the agent shows it. Only proxies and gateways show a proxy's settings.
func (h Home) Agent(s Service) AgentService {
	shown := AgentService{
		Kind: s.Kind, ID: s.ID, Service: s.Name, Tags: s.Tags, Meta: s.Meta, Port: s.Port, Ports: s.Ports, Address: s.Address, SocketPath: s.SocketPath,
		TaggedAddresses: s.Tagged, Weights: s.Weights, EnableTagOverride: s.EnableTagOverride, Datacenter: h.Datacenter, Locality: s.Locality,
	}
	if _, gateway := gateways[s.Kind]; gateway || s.Kind == connectProxy {
		shown.Proxy = s.Proxy
	}
	if s.Native {
		shown.Connect = &Connect{Native: true}
	}
	return shown
}

// NodeService is a service in responses of catalog/node and health/service. Proxy is never nil: clients compare it.
type NodeService struct {
	Kind              string `json:",omitempty"`
	ID                string
	Service           string
	Tags              []string
	Address           string
	TaggedAddresses   map[string]Address `json:",omitempty"`
	Meta              map[string]string  // nil if empty: Consul shows null here, but {} in other responses
	Port              int32              `json:",omitempty"`
	Ports             json.RawMessage    `json:",omitempty" bexpr:"-"`
	SocketPath        string             `json:",omitempty"`
	Weights           Weights
	EnableTagOverride bool
	Locality          json.RawMessage `json:",omitempty" bexpr:"-"`
	Proxy             *Proxy
	Connect           Connect
	PeerName          string
	CreateIndex       registry.Index `bexpr:"-"`
	ModifyIndex       registry.Index `bexpr:"-"`
}

// OnNode returns the service as its node shows it.
func (s Service) OnNode() NodeService {
	if len(s.Meta) == 0 {
		s.Meta = nil
	}
	return NodeService{
		Kind: s.Kind, ID: s.ID, Service: s.Name, Tags: s.Tags, Address: s.Address, TaggedAddresses: s.Tagged, Meta: s.Meta, Port: s.Port, Ports: s.Ports,
		SocketPath: s.SocketPath, Weights: s.Weights, EnableTagOverride: s.EnableTagOverride, Locality: s.Locality, Proxy: s.Proxy, Connect: Connect{s.Native},
		CreateIndex: s.CreateIndex, ModifyIndex: s.ModifyIndex,
	}
}

// CatalogService is a service with its node, in responses of catalog/service.
type CatalogService struct {
	ID                       string // the node's
	Node                     string
	Address                  string
	Datacenter               string
	TaggedAddresses          map[string]string
	NodeMeta                 map[string]string
	ServiceKind              string
	ServiceID                string
	ServiceName              string
	ServiceTags              []string
	ServiceAddress           string
	ServiceTaggedAddresses   map[string]Address `json:",omitempty"`
	ServiceWeights           Weights
	ServiceMeta              map[string]string
	ServicePort              int32
	ServicePorts             json.RawMessage `bexpr:"-"`
	ServiceSocketPath        string
	ServiceEnableTagOverride bool
	ServiceProxy             *Proxy
	ServiceConnect           Connect
	ServiceLocality          json.RawMessage `bexpr:"-"`
	PeerName                 string          `json:"-"` // always empty: the services of no other cluster are here
	CreateIndex              registry.Index  `bexpr:"-"`
	ModifyIndex              registry.Index  `bexpr:"-"`
}

// With returns the service with its node.
func (s Service) With(n Node) CatalogService {
	return CatalogService{
		ID: n.ID, Node: n.Node, Address: n.Address, Datacenter: n.Datacenter, TaggedAddresses: n.TaggedAddresses, NodeMeta: n.Meta,
		ServiceKind: s.Kind, ServiceID: s.ID, ServiceName: s.Name, ServiceTags: s.Tags, ServiceAddress: s.Address, ServiceTaggedAddresses: s.Tagged,
		ServiceWeights: s.Weights, ServiceMeta: s.Meta, ServicePort: s.Port, ServicePorts: s.Ports, ServiceSocketPath: s.SocketPath,
		ServiceEnableTagOverride: s.EnableTagOverride, ServiceProxy: s.Proxy, ServiceConnect: Connect{s.Native}, ServiceLocality: s.Locality, CreateIndex: s.CreateIndex, ModifyIndex: s.ModifyIndex,
	}
}

// HealthService is a service with its node and all checks that concern it, in responses of health/service.
type HealthService struct {
	Node    Node
	Service NodeService
	Checks  []Check
}

// With returns a node's service with the checks of both.
func With(n Node, ofNode []Check, s Service) HealthService {
	checks := make([]Check, 0, len(ofNode)+len(s.Checks))
	return HealthService{Node: n, Service: s.OnNode(), Checks: append(append(checks, ofNode...), s.Checks...)}
}

// Passing reports whether every check is passing; no checks at all count as passing.
func (h HealthService) Passing() bool {
	return !slices.ContainsFunc(h.Checks, func(c Check) bool { return c.Status != StatusWord(catalog.Passing) })
}

// AgentHealth is a service with its health, in responses of agent/health/service.
type AgentHealth struct {
	AggregatedStatus string
	Service          *AgentService
	Checks           []Check
}
