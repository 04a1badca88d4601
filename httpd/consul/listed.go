package consul

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// listedService is a service of the catalog, however it was registered, before it gets the form of a response.
type listedService struct {
	Node              string // the registry's name
	ID, Name          string
	Kind, SocketPath  string
	Tags              []string
	Address           string
	Port              int32
	Tagged            map[string]listedAddress
	Meta              map[string]string
	Weights           weights
	EnableTagOverride bool
	Locality, Ports   json.RawMessage
	Proxy             *proxy
	Native            bool
	CreateIndex       registry.Index
	ModifyIndex       registry.Index
	Checks            []listedCheck // its own, without those of its node
}

// listedAddress is one of a service's tagged addresses.
type listedAddress struct {
	Address string
	Port    int32
}

// weights are a service's weights in weighted responses.
type weights struct{ Passing, Warning int32 }

// serviceOf returns a lease as a service, with the name that its application has in Consul's API.
func serviceOf(l *registry.Lease, name string) listedService {
	i, c := l.Instance, l.Service
	var s listedService
	port, secure := i.MainPort()
	if c != nil {
		s = listedService{
			Node: c.Node, ID: c.ID, Name: c.Name, Kind: c.Kind, SocketPath: c.SocketPath, Tags: c.Tags, Address: c.Address, Port: c.Port,
			Tagged: taggedOf(c.Tagged), Meta: metaOf(i), Weights: weights{c.WeightPassing, c.WeightWarning}, EnableTagOverride: c.TagOverride,
			Locality: c.Locality, Ports: c.Ports, Proxy: proxyOf(c), Native: c.Native, CreateIndex: c.CreateIndex, ModifyIndex: c.ModifyIndex,
		}
		if len(c.Ports) > 0 && c.Port == 0 { // the instance has the default port
			s.Port = int32(port.Number)
		}
	} else { // on the logical node
		// Clients of Eureka register again with each change of status; that does not change the service's indexes
		// unless it says something new.
		s = listedService{
			ID: i.ID(), Name: name, Address: cmp.Or(i.IPAddr, i.HostName), Port: int32(port.Number),
			Meta: metaOf(i), Weights: weights{1, 1}, Proxy: noProxy, CreateIndex: l.Defined, ModifyIndex: l.Defined,
		}
		if _, said := s.Meta[secureMeta]; secure && !said {
			s.Meta[secureMeta] = "true"
		}
	}
	if s.Tags == nil {
		s.Tags = []string{} // shown as an empty list, not as null
	}
	s.Checks = checksOf(l, s)
	return s
}

func taggedOf(tagged []catalog.TaggedAddress) map[string]listedAddress {
	if len(tagged) == 0 {
		return nil
	}
	m := make(map[string]listedAddress, len(tagged))
	for _, t := range tagged {
		m[t.Tag] = listedAddress{t.Address, t.Port}
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

// hasTags reports whether the service has all of tags, ignoring case.
func (s listedService) hasTags(tags []string) bool {
	return !slices.ContainsFunc(tags, func(want string) bool {
		return !slices.ContainsFunc(s.Tags, func(has string) bool { return strings.EqualFold(has, want) })
	})
}

// itself returns the service "consul", which stands for the cluster's servers.
func (h place) itself() listedService {
	return listedService{
		ID: itselfID, Name: itselfID, Tags: []string{}, Port: int32(h.Port), Meta: map[string]string{}, Weights: weights{1, 1},
		Proxy: noProxy, CreateIndex: 1, ModifyIndex: 1,
	}
}

// agentService is a service in responses of agent/services.
type agentService struct {
	Kind              string `json:",omitempty"`
	ID                string
	Service           string
	Tags              []string
	Meta              map[string]string
	Port              int32
	Ports             json.RawMessage `json:",omitempty"`
	Address           string
	SocketPath        string                   `json:",omitempty"`
	TaggedAddresses   map[string]listedAddress `json:",omitempty"`
	Weights           weights
	EnableTagOverride bool
	ContentHash       string   `json:",omitempty"`
	Proxy             *proxy   `json:",omitempty"`
	Connect           *connect `json:",omitempty"`
	Datacenter        string
	Locality          json.RawMessage `json:",omitempty"`
}

// agentService returns the service as the agent shows it. Only proxies and gateways show a proxy's settings.
func (h place) agentService(s listedService) agentService {
	shown := agentService{
		Kind: s.Kind, ID: s.ID, Service: s.Name, Tags: s.Tags, Meta: s.Meta, Port: s.Port, Ports: s.Ports, Address: s.Address, SocketPath: s.SocketPath,
		TaggedAddresses: s.Tagged, Weights: s.Weights, EnableTagOverride: s.EnableTagOverride, Datacenter: h.Datacenter, Locality: s.Locality,
	}
	if _, gateway := gateways[s.Kind]; gateway || s.Kind == connectProxy {
		shown.Proxy = s.Proxy
	}
	if s.Native {
		shown.Connect = &connect{Native: true}
	}
	return shown
}

// nodeService is a service in responses of catalog/node and health/service. Proxy is never nil: clients compare it.
type nodeService struct {
	Kind              string `json:",omitempty"`
	ID                string
	Service           string
	Tags              []string
	Address           string
	TaggedAddresses   map[string]listedAddress `json:",omitempty"`
	Meta              map[string]string        // nil if empty: Consul shows null here, but {} in other responses
	Port              int32                    `json:",omitempty"`
	Ports             json.RawMessage          `json:",omitempty" bexpr:"-"`
	SocketPath        string                   `json:",omitempty"`
	Weights           weights
	EnableTagOverride bool
	Locality          json.RawMessage `json:",omitempty" bexpr:"-"`
	Proxy             *proxy
	Connect           connect
	PeerName          string
	CreateIndex       registry.Index `bexpr:"-"`
	ModifyIndex       registry.Index `bexpr:"-"`
}

// onNode returns the service as its node shows it.
func (s listedService) onNode() nodeService {
	if len(s.Meta) == 0 {
		s.Meta = nil
	}
	return nodeService{
		Kind: s.Kind, ID: s.ID, Service: s.Name, Tags: s.Tags, Address: s.Address, TaggedAddresses: s.Tagged, Meta: s.Meta, Port: s.Port, Ports: s.Ports,
		SocketPath: s.SocketPath, Weights: s.Weights, EnableTagOverride: s.EnableTagOverride, Locality: s.Locality, Proxy: s.Proxy, Connect: connect{s.Native},
		CreateIndex: s.CreateIndex, ModifyIndex: s.ModifyIndex,
	}
}

// catalogService is a service with its node, in responses of catalog/service.
type catalogService struct {
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
	ServiceTaggedAddresses   map[string]listedAddress `json:",omitempty"`
	ServiceWeights           weights
	ServiceMeta              map[string]string
	ServicePort              int32
	ServicePorts             json.RawMessage `bexpr:"-"`
	ServiceSocketPath        string
	ServiceEnableTagOverride bool
	ServiceProxy             *proxy
	ServiceConnect           connect
	ServiceLocality          json.RawMessage `bexpr:"-"`
	PeerName                 string          `json:"-"` // always empty: other clusters' services are not here
	CreateIndex              registry.Index  `bexpr:"-"`
	ModifyIndex              registry.Index  `bexpr:"-"`
}

// with returns the service with its node.
func (s listedService) with(n listedNode) catalogService {
	return catalogService{
		ID: n.ID, Node: n.Node, Address: n.Address, Datacenter: n.Datacenter, TaggedAddresses: n.TaggedAddresses, NodeMeta: n.Meta,
		ServiceKind: s.Kind, ServiceID: s.ID, ServiceName: s.Name, ServiceTags: s.Tags, ServiceAddress: s.Address, ServiceTaggedAddresses: s.Tagged,
		ServiceWeights: s.Weights, ServiceMeta: s.Meta, ServicePort: s.Port, ServicePorts: s.Ports, ServiceSocketPath: s.SocketPath,
		ServiceEnableTagOverride: s.EnableTagOverride, ServiceProxy: s.Proxy, ServiceConnect: connect{s.Native}, ServiceLocality: s.Locality, CreateIndex: s.CreateIndex, ModifyIndex: s.ModifyIndex,
	}
}

// listedHealth is a service with its node and all checks that concern it, in responses of health/service.
type listedHealth struct {
	Node    listedNode
	Service nodeService
	Checks  []listedCheck
}

// healthOf returns a node's service with the checks of both.
func healthOf(n listedNode, ofNode []listedCheck, s listedService) listedHealth {
	checks := make([]listedCheck, 0, len(ofNode)+len(s.Checks))
	return listedHealth{Node: n, Service: s.onNode(), Checks: append(append(checks, ofNode...), s.Checks...)}
}

// passing reports whether every check is passing; a service without checks counts as passing.
func (h listedHealth) passing() bool {
	return !slices.ContainsFunc(h.Checks, func(c listedCheck) bool { return c.Status != StatusWord(catalog.Passing) })
}

// agentHealth is a service with its health, in responses of agent/health/service.
type agentHealth struct {
	AggregatedStatus string
	Service          *agentService
	Checks           []listedCheck
}

// listedCheck is a check in responses.
type listedCheck struct {
	Node        string
	CheckID     string
	Name        string
	Status      string
	Notes       string
	Output      string
	ServiceID   string
	ServiceName string
	ServiceTags []string
	Type        string
	Interval    string
	Timeout     string
	ExposedPort int
	Definition  json.RawMessage `bexpr:"-"`
	CreateIndex registry.Index  `bexpr:"-"`
	ModifyIndex registry.Index  `bexpr:"-"`

	PeerName string `json:"-"` // always empty

	answered bool // Output may contain what a service answered to an HTTP check
	follows  bool // Output may contain the same from a check that it follows
}

// public returns the check without what a service answered, except its status.
func (c listedCheck) public() listedCheck {
	if before, _, has := strings.Cut(c.Output, " Output: "); has && (c.answered || c.follows) { // see probe
		c.Output = before
	}
	return c
}

// OutputOf returns the output of a stored check, with or without what a service answered to an HTTP check.
func OutputOf(c *catalog.Check, answers bool) string {
	if answers {
		return c.Output
	}
	return checkOf(c).public().Output
}

// withoutIndexes returns the check as the agent shows it.
func (c listedCheck) withoutIndexes() listedCheck {
	c.CreateIndex, c.ModifyIndex = 0, 0
	return c
}

// noDefinition is the definition of a check that was registered without one.
var noDefinition = json.RawMessage("{}")

// checkOf returns a stored check as responses show it.
func checkOf(c *catalog.Check) listedCheck {
	shown := listedCheck{
		Node: ShownNode(c.Node), CheckID: c.ID, Name: c.Name, Status: StatusWord(c.Status), Notes: c.Notes, Output: c.Output, ServiceID: c.Service,
		ServiceTags: []string{}, Type: c.Type, Definition: noDefinition, CreateIndex: c.CreateIndex, ModifyIndex: c.ModifyIndex,
	}
	if c.Definition != nil {
		shown.Definition = c.Definition
	}
	shown.follows = c.Alias != nil
	if p := c.Probe; p != nil {
		shown.answered = p.HTTP != ""
		shown.Interval, shown.Timeout = shownDuration(p.Interval), shownDuration(p.Timeout)
	}
	return shown
}

// shownDuration formats a duration (ms) as the reference does, or returns "" if it was not given.
func shownDuration(ms int64) string {
	if ms == 0 {
		return ""
	}
	return (time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond).String()
}

// nodeChecks returns the checks of a node itself as responses show them; n is nil for the logical node if nothing was
// registered on it.
func nodeChecks(logical bool, n *catalog.Node) []listedCheck {
	checks := []listedCheck{}
	if logical {
		checks = append(checks, serfHealth)
	}
	if n == nil {
		return checks
	}
	for _, c := range n.Checks {
		checks = append(checks, checkOf(c))
	}
	return checks
}

// serfHealth is the logical node's, which is not stored.
var serfHealth = func() listedCheck {
	alive := catalog.AgentAlive
	alive.CreateIndex, alive.ModifyIndex = 1, 1
	return checkOf(&alive)
}()

// checksOf returns the checks of a service: the registered ones, and those that express what Rollcall knows of its
// status.
func checksOf(l *registry.Lease, s listedService) []listedCheck {
	checks := []listedCheck{}
	if l.Service == nil {
		state := catalog.Critical // an instance that is not UP gets no requests
		if l.Instance.Status == registry.Up {
			state = catalog.Passing
		}
		checks = append(checks, s.check(l, "service:"+s.ID, "Eureka status", eurekaType, state))
	} else {
		for _, c := range l.Service.Checks {
			shown := checkOf(c)
			shown.ServiceName, shown.ServiceTags = s.Name, s.Tags
			checks = append(checks, shown)
		}
	}
	if decided, ok := s.decided(l, checks); ok {
		checks = append(checks, decided)
	}
	return checks
}

// Types of the checks that nobody registered.
const (
	eurekaType   = "eureka"
	overrideType = "override"
)

// decided returns the check that keeps a service out of use by a decision made in Rollcall or through Eureka's API, if
// there is one: OUT_OF_SERVICE is maintenance, another status without a check as its cause is an override.
func (s listedService) decided(l *registry.Lease, checks []listedCheck) (listedCheck, bool) {
	i := l.Instance
	switch {
	case i.Status == registry.Up, l.Service != nil && i.Overridden == registry.Unknown:
		return listedCheck{}, false // its checks, or its node's, say it all
	case i.Status == registry.OutOfService:
		reason := ""
		if l.Override != nil {
			reason = l.Override.By.Reason
		}
		m := maintenance(s.ID, reason)
		if slices.ContainsFunc(checks, func(c listedCheck) bool { return c.CheckID == m.ID }) {
			return listedCheck{}, false
		}
		c := s.check(l, m.ID, m.Name, m.Type, catalog.Critical)
		c.Notes = m.Notes
		return c, true
	case slices.ContainsFunc(checks, func(c listedCheck) bool { return c.Status == StatusWord(catalog.Critical) }):
		return listedCheck{}, false
	}
	return s.check(l, "_status_override:"+s.ID, "Status override", overrideType, catalog.Critical), true
}

// check returns a check that nobody registered.
func (s listedService) check(l *registry.Lease, id, name, kind string, status catalog.CheckStatus) listedCheck {
	return listedCheck{
		Node: ShownNode(s.Node), CheckID: id, Name: name, Status: StatusWord(status), Output: explained(l), ServiceID: s.ID, ServiceName: s.Name,
		ServiceTags: s.Tags, Type: kind, Definition: noDefinition, CreateIndex: l.Registered, ModifyIndex: l.Changed,
	}
}

// explained says which status an instance has, and names the author of an override.
func explained(l *registry.Lease) string {
	text := "The status is " + l.Instance.Status.String()
	if l.Instance.Overridden == registry.Unknown {
		return text
	}
	text += ", overridden"
	if o := l.Override; o != nil {
		if o.By.Author != "" {
			text += " by " + o.By.Author
		}
		if o.By.Reason != "" {
			text += fmt.Sprintf(" (%s)", o.By.Reason)
		}
		text += "; the client said " + o.Reported.String()
	}
	return text
}

// maintenanceWord is the aggregate of a service kept out of use.
const maintenanceWord = "maintenance"

// aggregate returns the worst of checks: passing, warning, critical or maintenance.
func aggregate(checks []listedCheck) string {
	worst := 0
	for _, c := range checks {
		state, _ := parseStatus(c.Status)
		if (&catalog.Check{ID: c.CheckID}).Maintenance() {
			return maintenanceWord
		}
		worst = max(worst, int(state))
	}
	return StatusWord(catalog.CheckStatus(worst))
}

// rank orders aggregates: the worst has the highest.
func rank(aggregate string) int {
	if aggregate == maintenanceWord {
		return len(statusWords)
	}
	state, _ := parseStatus(aggregate)
	return int(state)
}

// WhyNotPassing says why an instance is not UP: because of a check of its own or of its node, or because its client or
// an operator said so.
func WhyNotPassing(v *registry.View, l *registry.Lease) string {
	if l.Service == nil || l.Instance.Overridden != registry.Unknown {
		return explained(l)
	}
	checks := l.Service.Checks
	if n, ok := v.Node(l.Service.Node); ok {
		checks = slices.Concat(checks, n.Checks)
	}
	for _, c := range checks {
		if c.Status != catalog.Critical {
			continue
		}
		if text := cmp.Or(OutputOf(c, false), c.Notes); text != "" {
			return fmt.Sprintf("check %s is critical: %s", c.ID, text)
		}
		return fmt.Sprintf("check %s is critical", c.ID)
	}
	return explained(l)
}
