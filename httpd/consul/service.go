package consul

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/order"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Bounds of a service's metadata, which is an instance's.
const (
	maxMeta     = 256      // entries
	maxMetaSize = 64 << 10 // bytes of keys and values together
)

// itselfID is the id and the name of the service that stands for the cluster itself.
const itselfID = "consul"

// serviceBody is a service as clients define it, to an agent (Name) or to the catalog (Service).
type serviceBody struct {
	id, name, service, kind, address, socketPath string
	tags                                         []string
	port                                         int64
	ports                                        []servicePort
	tagged                                       map[string]taggedAddress
	tagOverride                                  bool
	meta                                         map[string]string
	weights                                      *weights
	locality                                     locality
	proxy                                        *proxy
	connect                                      connectBody
	check                                        checkBody
	checks                                       []checkBody
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *serviceBody) UnmarshalJSON(data []byte) error {
	return decodeFields(data, map[string]any{
		"id": &s.id, "name": &s.name, "service": &s.service, "kind": &s.kind, "tags": &s.tags, "port": &s.port, "ports": &s.ports,
		"address": &s.address, "socketpath": &s.socketPath, "taggedaddresses": &s.tagged, "enabletagoverride": &s.tagOverride,
		"meta": &s.meta, "weights": &s.weights, "locality": &s.locality, "proxy": &s.proxy, "connect": &s.connect,
		"check": &s.check, "checks": &s.checks,
	})
}

type taggedAddress struct {
	Address string
	Port    int64
}

type servicePort struct {
	Name    string
	Port    int64
	Default bool
}

type locality struct{ Region, Zone string }

// decodeService reads the body of agent/service/register, for a service on a node (by the registry's name). address is
// for services that give none. Errors: a refusal.
func decodeService(body []byte, node, address string) (registry.RegisterCatalog, error) {
	var s serviceBody
	if err := decodeBody(body, &s); err != nil {
		return registry.RegisterCatalog{}, err
	}
	if s.name == "" {
		return registry.RegisterCatalog{}, malformed("Missing service name")
	}
	if s.address == "0.0.0.0" || s.address == "::" || s.address == "[::]" {
		return registry.RegisterCatalog{}, malformed("Invalid service address")
	}
	if s.id == itselfID {
		return registry.RegisterCatalog{}, malformed("Invalid service id, %q stands for the cluster itself", itselfID)
	}
	if s.proxy != nil {
		for i := range s.proxy.Upstreams { // agents give a type to those without one
			s.proxy.Upstreams[i].DestinationType = cmp.Or(s.proxy.Upstreams[i].DestinationType, "service")
		}
	}
	service, instance, err := s.register(node, s.name, address)
	if err != nil {
		return registry.RegisterCatalog{}, err
	}
	service.Tagged = s.taggedAddresses()
	checks, err := s.checksOf(service)
	if err != nil {
		return registry.RegisterCatalog{}, err
	}
	return registry.RegisterCatalog{Service: service, Instance: instance, Checks: checks, KeepStatus: true}, nil
}

// decodeBody decodes a body into a value that decodes itself.
func decodeBody(body []byte, into json.Unmarshaler) error {
	if err := into.UnmarshalJSON(body); err != nil {
		return undecodable(requestFailed, err)
	}
	return nil
}

// register returns the service with a name on a node, and the instance that Eureka's clients see.
func (s *serviceBody) register(node, name, address string) (*catalog.Service, *registry.Instance, error) {
	service := &catalog.Service{
		Name: name, ID: cmp.Or(s.id, name), Node: node, Tags: s.tags, Address: s.address, Port: int32(s.port),
		WeightPassing: 1, WeightWarning: 1, TagOverride: s.tagOverride, Kind: s.kind, SocketPath: s.socketPath, Native: s.connect.native,
	}
	if err := s.validate(service); err != nil {
		return nil, nil, err
	}
	if w := s.weights; w != nil && *w != (weights{}) {
		service.WeightPassing, service.WeightWarning = w.Passing, w.Warning
	}
	if s.locality != (locality{}) {
		service.Locality, _ = json.Marshal(s.locality) // cannot fail: texts always encode
	}
	if len(s.ports) > 0 {
		service.Ports, _ = json.Marshal(s.ports)
	}
	service.Proxy = s.proxy.given()
	service.Tagged = sortedByTag(s.tagged)
	return service, s.instance(service, address), nil
}

func (s *serviceBody) validate(service *catalog.Service) error {
	if err := checkName("service name", service.Name); err != nil {
		return err
	}
	if err := checkName("service id", service.ID); err != nil {
		return err
	}
	if id := instanceID(service.Node, service.ID); len(id) > order.MaxName {
		return malformed("Invalid service id %q on node %q, it must be at most %d bytes together with the node's name and a colon, not %d", service.ID, service.Node, order.MaxName, len(id))
	}
	if s.port < 0 || s.defaultPort() < 0 || s.defaultPort() > math.MaxUint16 {
		return malformed("Invalid service port %d, it must be from 0 to %d", s.defaultPort(), math.MaxUint16)
	}
	if err := s.validateMesh(); err != nil {
		return err
	}
	if err := s.validatePorts(); err != nil {
		return err
	}
	for tag, a := range s.tagged {
		if a.Port < 0 || a.Port > math.MaxUint16 {
			return malformed("Invalid port %d of tagged address %q, it must be from 0 to %d", a.Port, tag, math.MaxUint16)
		}
	}
	if w := s.weights; w != nil && *w != (weights{}) {
		switch {
		case w.Passing < 1:
			return malformed("Invalid Weights: Passing must be greater than 0")
		case w.Warning < 0:
			return malformed("Invalid Weights: Warning must be greater or equal than 0")
		case w.Passing > math.MaxUint16 || w.Warning > math.MaxUint16:
			return malformed("Invalid Weights: Passing and Warning must be at most %d", math.MaxUint16)
		}
	}
	return checkMeta(s.meta)
}

// validatePorts returns what is wrong with Ports, by the rules and in the words of Consul's own client
// (api/agent.go, ServicePorts).
func (s *serviceBody) validatePorts() error {
	if s.port != 0 && len(s.ports) > 0 {
		return malformed("Validation failed: Port and Ports cannot both be specified")
	}
	names, defaults := map[string]bool{}, 0
	for _, p := range s.ports {
		switch {
		case strings.TrimSpace(p.Name) == "":
			return malformed("Validation failed: Ports.Name cannot be empty")
		case p.Port <= 0 || p.Port > math.MaxUint16:
			return malformed("Validation failed: Ports.Port must be from 1 to %d", math.MaxUint16)
		case names[p.Name]:
			return malformed("Validation failed: Ports.Name %q has to be unique", p.Name)
		}
		if names[p.Name] = true; p.Default {
			defaults++
		}
	}
	switch {
	case defaults > 1:
		return malformed("Validation failed: only one port can be marked as default")
	case len(s.ports) > 0 && defaults == 0:
		return malformed("Validation failed: one of the Ports must be marked as Default")
	}
	return nil
}

func checkMeta(meta map[string]string) error {
	size := 0
	for key, value := range meta {
		size += len(key) + len(value)
	}
	if len(meta) > maxMeta || size > maxMetaSize {
		return malformed("Invalid Service Meta: cannot contain more than %d key/value pairs of %d bytes together", maxMeta, maxMetaSize)
	}
	return nil
}

// defaultPort returns the port where the service listens: Port, or the default one of Ports.
func (s *serviceBody) defaultPort() int64 {
	if s.port != 0 {
		return s.port
	}
	for _, p := range s.ports {
		if p.Default {
			return p.Port
		}
	}
	return 0
}

// taggedAddresses returns the given tagged addresses and, for an IP address, those that agents add.
func (s *serviceBody) taggedAddresses() []catalog.TaggedAddress {
	all := maps.Clone(s.tagged)
	if family := familyOf(s.address); family != "" {
		if all == nil {
			all = map[string]taggedAddress{}
		}
		for _, net := range []string{"lan_", "wan_"} {
			if _, given := all[net+family]; !given {
				all[net+family] = taggedAddress{Address: s.address, Port: s.defaultPort()}
			}
		}
	}
	return sortedByTag(all)
}

func sortedByTag(all map[string]taggedAddress) []catalog.TaggedAddress {
	var tagged []catalog.TaggedAddress
	for _, tag := range slices.Sorted(maps.Keys(all)) {
		tagged = append(tagged, catalog.TaggedAddress{Tag: tag, Address: all[tag].Address, Port: int32(all[tag].Port)})
	}
	return tagged
}

// secureMeta is the metadata key that tells Spring's clients that a service speaks TLS.
const secureMeta = "secure"

// instance returns the service as Eureka's clients see it.
func (s *serviceBody) instance(service *catalog.Service, address string) *registry.Instance {
	name := strings.ToLower(service.Name)
	host := cmp.Or(s.address, address, service.Node)
	i := &registry.Instance{
		InstanceID: instanceID(service.Node, service.ID), App: strings.ToUpper(service.Name), HostName: host, IPAddr: host, Status: registry.Up, CountryID: 1,
		DataCenter: registry.DataCenter{Name: registry.MyOwn}, VIP: name, Metadata: pairsOf(s.meta),
	}
	port := registry.Port{Number: uint16(s.defaultPort()), Enabled: s.defaultPort() != 0}
	if s.meta[secureMeta] == "true" {
		i.SecurePort, i.SecureVIP = port, name
		return i
	}
	i.Port = port
	return i
}

// instanceID returns the id of the instance for a service on a node, which is unique within its application.
func instanceID(node, service string) string {
	if node == "" {
		return service
	}
	return node + ":" + service
}

// pairsOf returns an object as pairs, sorted by key.
func pairsOf(m map[string]string) []registry.Pair {
	var pairs []registry.Pair
	for _, key := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, registry.Pair{Key: key, Value: m[key]})
	}
	return pairs
}

// checksOf returns the checks that came with a service, and fills in missing ids and names.
func (s *serviceBody) checksOf(service *catalog.Service) ([]*catalog.Check, error) {
	bodies := s.checks
	if !s.check.isEmpty() {
		bodies = append([]checkBody{s.check}, bodies...)
	}
	var checks []*catalog.Check
	for n, body := range bodies {
		check, err := body.check()
		if err != nil {
			return nil, err
		}
		check.Service, check.ID = service.ID, cmp.Or(body.checkID, body.id)
		if check.ID == "" {
			check.ID = "service:" + service.ID
			if len(bodies) > 1 {
				check.ID += fmt.Sprintf(":%d", n+1)
			}
		}
		check.Name = cmp.Or(check.Name, fmt.Sprintf("Service '%s' check", service.Name))
		// The default id for a service with the longest name is longer than a name.
		if len(check.ID) > 2*order.MaxName {
			return nil, malformed("Invalid check id, it must be at most %d bytes", 2*order.MaxName)
		}
		if err := checkOwn(check.ID); err != nil {
			return nil, err
		}
		checks = append(checks, check)
	}
	return checks, nil
}

// Kinds of services that take part in a service mesh (hashicorp/consul, agent/structs/structs.go). Rollcall runs no
// mesh: it stores what they say about themselves for the programs that read it.
const connectProxy = "connect-proxy"

// gateways are the kinds of gateways; true means that the kind needs a port.
var gateways = map[string]bool{"mesh-gateway": true, "terminating-gateway": true, "ingress-gateway": false, "api-gateway": false}

// proxy holds the settings of a proxy or a gateway, as clients give them and as responses show them.
type proxy struct {
	TransparentProxy       transparentProxy `json:",omitzero"`
	AccessLogs             accessLogs       `json:",omitzero"`
	EnvoyExtensions        []envoyExtension `json:",omitempty"`
	DestinationServiceName string           `json:",omitempty"`
	DestinationServiceID   string           `json:",omitempty"`
	LocalServiceAddress    string           `json:",omitempty"`
	LocalServicePort       int              `json:",omitempty"`
	LocalServiceSocketPath string           `json:",omitempty"`
	Mode                   string
	// specific to the proxy's implementation
	Config      map[string]json.RawMessage `json:",omitempty" bexpr:"-"`
	Upstreams   []upstream                 `json:",omitempty"`
	MeshGateway meshGateway
	Expose      expose
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *proxy) UnmarshalJSON(data []byte) error {
	return decodeFields(data, map[string]any{
		"transparentproxy": &p.TransparentProxy, "accesslogs": &p.AccessLogs, "envoyextensions": &p.EnvoyExtensions,
		"destinationservicename": &p.DestinationServiceName, "destinationserviceid": &p.DestinationServiceID,
		"localserviceaddress": &p.LocalServiceAddress, "localserviceport": &p.LocalServicePort, "localservicesocketpath": &p.LocalServiceSocketPath,
		"mode": &p.Mode, "config": &p.Config, "upstreams": &p.Upstreams, "meshgateway": &p.MeshGateway, "expose": &p.Expose,
	})
}

type transparentProxy struct {
	OutboundListenerPort int  `json:",omitempty"`
	DialedDirectly       bool `json:",omitempty"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *transparentProxy) UnmarshalJSON(data []byte) error {
	return decodeFields(data, map[string]any{"outboundlistenerport": &t.OutboundListenerPort, "dialeddirectly": &t.DialedDirectly})
}

type accessLogs struct {
	Enabled             bool   `json:",omitempty"`
	DisableListenerLogs bool   `json:",omitempty"`
	Type                string `json:",omitempty"`
	Path                string `json:",omitempty"`
	JSONFormat          string `json:",omitempty"`
	TextFormat          string `json:",omitempty"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (a *accessLogs) UnmarshalJSON(data []byte) error {
	return decodeFields(data, map[string]any{
		"enabled": &a.Enabled, "disablelistenerlogs": &a.DisableListenerLogs, "type": &a.Type, "path": &a.Path,
		"jsonformat": &a.JSONFormat, "textformat": &a.TextFormat,
	})
}

type envoyExtension struct {
	Name          string
	Required      bool
	Arguments     map[string]json.RawMessage `bexpr:"-"`
	ConsulVersion string
	EnvoyVersion  string
}

// upstream is a service that the program behind a proxy uses.
type upstream struct {
	DestinationType     string
	DestinationPeer     string `json:",omitempty"`
	DestinationName     string
	Datacenter          string
	LocalBindAddress    string                     `json:",omitempty"`
	LocalBindPort       int                        `json:",omitempty"`
	LocalBindSocketPath string                     `json:",omitempty"`
	LocalBindSocketMode string                     `json:",omitempty"`
	Config              map[string]json.RawMessage `json:",omitempty" bexpr:"-"`
	MeshGateway         meshGateway

	DestinationNamespace, DestinationPartition string `json:"-"` // always empty: only the default ones exist
}

// UnmarshalJSON implements json.Unmarshaler.
func (u *upstream) UnmarshalJSON(data []byte) error {
	var namespace, partition string
	err := decodeFields(data, map[string]any{
		"destinationtype": &u.DestinationType, "destinationnamespace": &namespace, "destinationpartition": &partition,
		"destinationpeer": &u.DestinationPeer, "destinationname": &u.DestinationName, "datacenter": &u.Datacenter,
		"localbindaddress": &u.LocalBindAddress, "localbindport": &u.LocalBindPort,
		"localbindsocketpath": &u.LocalBindSocketPath, "localbindsocketmode": &u.LocalBindSocketMode,
		"config": &u.Config, "meshgateway": &u.MeshGateway,
	})
	if err != nil {
		return err
	}
	return inDefault(namespace, partition)
}

type meshGateway struct {
	Mode string `json:",omitempty"`
}

// expose lists the paths that a proxy lets through outside the mesh.
type expose struct {
	Checks bool          `json:",omitempty"`
	Paths  []exposedPath `json:",omitempty"`
}

type exposedPath struct {
	ListenerPort    int    `json:",omitempty"`
	Path            string `json:",omitempty"`
	LocalPathPort   int    `json:",omitempty"`
	Protocol        string `json:",omitempty"`
	ParsedFromCheck bool   `json:",omitempty"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (e *exposedPath) UnmarshalJSON(data []byte) error {
	return decodeFields(data, map[string]any{
		"listenerport": &e.ListenerPort, "path": &e.Path, "localpathport": &e.LocalPathPort, "protocol": &e.Protocol,
		"parsedfromcheck": &e.ParsedFromCheck,
	})
}

// connectBody is a service's role in a mesh.
type connectBody struct {
	native  bool
	sidecar json.RawMessage // nil if not given
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *connectBody) UnmarshalJSON(data []byte) error {
	return decodeFields(data, map[string]any{"native": &c.native, "sidecarservice": &c.sidecar})
}

// validateMesh returns what is wrong with a service's role in a mesh, in the words of Consul's rules
// (nodeService.Validate). It refuses sidecars: one would be a second service, and its readers would miss it if it were
// left out.
func (s *serviceBody) validateMesh() error {
	if s.connect.sidecar != nil {
		return malformed("Invalid SidecarService: no sidecar is registered with a service here, because the service mesh is not served; " +
			"leave Connect.SidecarService out, or register the proxy as a service of Kind connect-proxy of its own")
	}
	wrong := ""
	needsPort, gateway := gateways[s.kind]
	switch {
	case s.kind == connectProxy:
		wrong = s.wrongOfProxy()
	case gateway && needsPort && s.port == 0:
		wrong = "Port must be non-zero for a " + s.kind
	case gateway && s.proxy != nil:
		wrong = s.wrongOfGateway()
	}
	if wrong == "" && s.connect.native && s.port == 0 && s.socketPath == "" {
		wrong = "Port or SocketPath must be set for a Connect native service."
	}
	if wrong != "" {
		return malformed("Validation failed: %s", wrong)
	}
	return nil
}

// wrongOfProxy returns what is wrong with a proxy, or "".
func (s *serviceBody) wrongOfProxy() string {
	p := s.proxy
	switch {
	case len(s.ports) > 0:
		return "Ports cannot be set for a " + connectProxy
	case s.port == 0 && s.socketPath == "":
		return "Port or SocketPath must be set for a " + connectProxy
	case p == nil || strings.TrimSpace(p.DestinationServiceName) == "":
		return "Proxy.DestinationServiceName must be non-empty for Connect proxy services"
	case p.DestinationServiceName == "*":
		return "Proxy.DestinationServiceName must not be a wildcard for Connect proxy services"
	case s.connect.native:
		return "A Proxy cannot also be Connect Native, only typical services"
	}
	for _, u := range p.Upstreams {
		switch {
		case u.DestinationName == "":
			return "upstream destination name cannot be empty"
		case u.LocalBindPort == 0 && u.LocalBindSocketPath == "":
			return "upstream local bind port or local socket path must be defined and nonzero"
		}
	}
	return ""
}

// wrongOfGateway returns what is wrong with the settings of a gateway, or "".
func (s *serviceBody) wrongOfGateway() string {
	p := s.proxy
	for _, setting := range []struct {
		name  string
		given bool
	}{
		{"DestinationServiceName", p.DestinationServiceName != ""}, {"DestinationServiceID", p.DestinationServiceID != ""},
		{"LocalServiceAddress", p.LocalServiceAddress != ""}, {"LocalServicePort", p.LocalServicePort != 0},
		{"LocalServiceSocketPath", p.LocalServiceSocketPath != ""}, {"Upstreams", len(p.Upstreams) > 0},
	} {
		if setting.given {
			return "The Proxy." + setting.name + " configuration is invalid for a " + s.kind
		}
	}
	return ""
}

// noProxy is used for a service that gave no settings.
var noProxy = &proxy{}

// given returns the settings as they are stored, or nil if they are empty.
func (p *proxy) given() []byte {
	if p == nil || reflect.DeepEqual(p, noProxy) {
		return nil
	}
	text, _ := json.Marshal(p) // cannot fail: what was decoded encodes
	return text
}

// proxyOf returns the settings that a service gave.
func proxyOf(s *catalog.Service) *proxy {
	if s.Proxy == nil {
		return noProxy
	}
	p := new(proxy)
	_ = json.Unmarshal(s.Proxy, p) // cannot fail: register encoded it
	return p
}

// meshName returns the name of the service whose mesh connections go to this service: its own name, that of the
// service it is a proxy of, or "".
func meshName(s *catalog.Service) string {
	switch {
	case s.Native:
		return s.Name
	case s.Kind == connectProxy:
		return proxyOf(s).DestinationServiceName
	}
	return ""
}

// connect is a service's role in a mesh, in responses.
type connect struct {
	Native bool `json:",omitempty"`
}
