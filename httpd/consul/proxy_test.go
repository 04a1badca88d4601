package consul_test

import (
	"testing"

	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// Programs send files of configuration as they are, so that names come in both spellings; what is in Config is the proxy's.
func TestProxySettingsAreKeptByConsulsNames(t *testing.T) {
	const kept = `{"TransparentProxy":{"OutboundListenerPort":5,"DialedDirectly":true},"AccessLogs":{"Enabled":true,"JSONFormat":"{}"},` +
		`"EnvoyExtensions":[{"Name":"e","Required":true,"Arguments":{"a_b":1},"ConsulVersion":"","EnvoyVersion":""}],` +
		`"DestinationServiceName":"web","DestinationServiceID":"w1","LocalServiceAddress":"::1","LocalServicePort":80,"LocalServiceSocketPath":"/s","Mode":"direct",` +
		`"Config":{"a_b":{"c_d":1.50}},"Upstreams":[{"DestinationType":"service","DestinationPeer":"p","DestinationName":"db","Datacenter":"dc2","LocalBindAddress":"::1","LocalBindPort":1,` +
		`"LocalBindSocketPath":"/u","LocalBindSocketMode":"600","Config":{"x_y":null},"MeshGateway":{"Mode":"local"}}],"MeshGateway":{"Mode":"none"},` +
		`"Expose":{"Checks":true,"Paths":[{"ListenerPort":1,"Path":"/","LocalPathPort":2,"Protocol":"http","ParsedFromCheck":true}]}}`
	snake := `{"transparent_proxy":{"outbound_listener_port":5,"dialed_directly":true},"access_logs":{"enabled":true,"json_format":"{}"},` +
		`"envoy_extensions":[{"Name":"e","Required":true,"Arguments":{"a_b":1}}],"destination_service_name":"web","destination_service_id":"w1","local_service_address":"::1","local_service_port":80,` +
		`"local_service_socket_path":"/s","mode":"direct","config":{"a_b":{"c_d":1.50}},"upstreams":[{"destination_type":"service","destination_peer":"p","destination_name":"db",` +
		`"destination_namespace":"default","destination_partition":"","datacenter":"dc2","local_bind_address":"::1","local_bind_port":1,"local_bind_socket_path":"/u","local_bind_socket_mode":"600",` +
		`"config":{"x_y":null},"mesh_gateway":{"mode":"local"}}],"mesh_gateway":{"mode":"none"},` +
		`"expose":{"checks":true,"paths":[{"listener_port":1,"path":"/","local_path_port":2,"protocol":"http","parsed_from_check":true}]},"unknown":1}`
	for _, body := range []string{kept, snake} {
		op := need.Got(consul.DecodeService([]byte(`{"Name":"p","Port":1,"Kind":"connect-proxy","Proxy":`+body+`}`), "", ""))(t)
		expect.Equal(t, string(op.Service.Proxy), kept, "of %s:\ngot", body)
	}
	for _, body := range []string{`null`, `{}`, `{"Mode":"","Config":null,"Upstreams":null}`} {
		op := need.Got(consul.DecodeService([]byte(`{"Name":"p","Port":1,"Proxy":`+body+`}`), "", ""))(t)
		expect.That(t, op.Service.Proxy == nil, "%s: %s is kept, want nothing", body, op.Service.Proxy)
	}
	_, err := consul.DecodeService([]byte(`{"Name":"p","Proxy":{"Upstreams":[{"DestinationNamespace":"stage"}]}}`), "", "")
	expect.That(t, err != nil && err.Error() == `Invalid field: "Namespace" - Namespaces are a Consul Enterprise feature`, "another namespace: got %v", err)
}
