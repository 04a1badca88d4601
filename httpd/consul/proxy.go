package consul

import (
	"cmp"
	"encoding/json"
	"reflect"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
)

// Kinds of services that take part in a service mesh (hashicorp/consul, agent/structs/structs.go). Rollcall runs no mesh: it
// keeps what they say of themselves for the programs that read it.
const connectProxy = "connect-proxy"

// gateways are the kinds of gateways; true: one needs a port.
var gateways = map[string]bool{"mesh-gateway": true, "terminating-gateway": true, "ingress-gateway": false, "api-gateway": false}

// Proxy is the settings of a proxy or a gateway, as clients give them and as responses show them.
type Proxy struct {
	TransparentProxy       transparentProxy `json:",omitzero"`
	AccessLogs             accessLogs       `json:",omitzero"`
	EnvoyExtensions        []envoyExtension `json:",omitempty"`
	DestinationServiceName string           `json:",omitempty"`
	DestinationServiceID   string           `json:",omitempty"`
	LocalServiceAddress    string           `json:",omitempty"`
	LocalServicePort       int              `json:",omitempty"`
	LocalServiceSocketPath string           `json:",omitempty"`
	Mode                   string
	Config                 map[string]json.RawMessage `json:",omitempty" bexpr:"-"` // of whatever the proxy is
	Upstreams              []upstream                 `json:",omitempty"`
	MeshGateway            meshGateway
	Expose                 expose
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *Proxy) UnmarshalJSON(data []byte) error {
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

	DestinationNamespace, DestinationPartition string `json:"-"` // always empty: there is one of each
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

// expose is the paths that a proxy lets through without the mesh.
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

// connectBody is the part that a service takes in a mesh.
type connectBody struct {
	native  bool
	sidecar json.RawMessage // nil: none
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *connectBody) UnmarshalJSON(data []byte) error {
	return decodeFields(data, map[string]any{"native": &c.native, "sidecarservice": &c.sidecar})
}

// validateMesh says what is wrong with the part that a service takes in a mesh, in the words of Consul's rules
// (NodeService.Validate). A sidecar would be a second service: one that was left out would be missed by its readers.
func (s *serviceBody) validateMesh() error {
	if s.connect.sidecar != nil {
		return Malformed("Invalid SidecarService: no sidecar is registered with a service here, because the service mesh is not served; " +
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
		return Malformed("Validation failed: " + wrong)
	}
	return nil
}

// wrongOfProxy is what is wrong with a proxy; "": nothing.
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

// wrongOfGateway is what is wrong with the settings of a gateway; "": nothing.
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

// noProxy is the settings of a service that gave none.
var noProxy = &Proxy{}

// completeUpstreams gives upstreams the type that agents give those without one.
func (p *Proxy) completeUpstreams() {
	if p == nil {
		return
	}
	for i := range p.Upstreams {
		p.Upstreams[i].DestinationType = cmp.Or(p.Upstreams[i].DestinationType, "service")
	}
}

// given is the settings as they are kept; nil: they say nothing.
func (p *Proxy) given() []byte {
	if p == nil || reflect.DeepEqual(p, noProxy) {
		return nil
	}
	text, _ := json.Marshal(p) // what was decoded encodes
	return text
}

// proxyOf is the settings that a service gave.
func proxyOf(s *catalog.Service) *Proxy {
	if s.Proxy == nil {
		return noProxy
	}
	p := new(Proxy)
	_ = json.Unmarshal(s.Proxy, p) // register encoded it
	return p
}

// MeshName is the name of the service to which a service leads the mesh's connections: its own, that of the one it is a
// proxy of; "": none.
func MeshName(s *catalog.Service) string {
	switch {
	case s.Native:
		return s.Name
	case s.Kind == connectProxy:
		return proxyOf(s).DestinationServiceName
	}
	return ""
}

// Connect is the part that a service takes in a mesh, in responses.
type Connect struct {
	Native bool `json:",omitempty"`
}
