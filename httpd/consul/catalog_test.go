package consul_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/httpdtest"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// newCatalogIn is newCatalog in a bubble.
func newCatalogIn(t *testing.T) *httpdtest.Bubbled {
	t.Helper()
	config, catalog := httpdtest.CatalogConfig()
	n := httpdtest.NewBubbled(t, config)
	catalog.Memory = n.Memory
	return n
}

// Texts that clients compare or show unchanged.
func TestConsulCatalogDocumentsHaveConsulsShapes(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	n.Must(t, "PUT", "/v1/catalog/register", `{"Node":"far","Address":"10.9.0.1","NodeMeta":{"rack":"7"},"Service":{"Service":"web","ID":"w1","Port":80},"Check":{"Name":"alive","Status":"passing"}}`)
	id := httpdtest.Read[[]struct{ ID, Node string }](t, n, "/v1/catalog/nodes")[1].ID
	logical := `{"ID":"` + id + `","Node":"rollcall","Address":"10.1.0.1","Datacenter":"dc1","TaggedAddresses":{"lan":"10.1.0.1","lan_ipv4":"10.1.0.1","wan":"10.1.0.1","wan_ipv4":"10.1.0.1"},` +
		`"Meta":{"consul-network-segment":"","consul-version":"1.22.0"},"CreateIndex":1,"ModifyIndex":1}`
	far := `{"ID":"","Node":"far","Address":"10.9.0.1","Datacenter":"dc1","TaggedAddresses":null,"Meta":{"rack":"7"},"CreateIndex":1,"ModifyIndex":1}`
	web := `{"ID":"w1","Service":"web","Tags":[],"Address":"","Meta":null,"Port":80,"Weights":{"Passing":1,"Warning":1},"EnableTagOverride":false,` +
		`"Proxy":{"Mode":"","MeshGateway":{},"Expose":{}},"Connect":{},"PeerName":"","CreateIndex":2,"ModifyIndex":2}`
	itself := `{"ID":"consul","Service":"consul","Tags":[],"Address":"","Meta":null,"Port":7761,"Weights":{"Passing":1,"Warning":1},"EnableTagOverride":false,` +
		`"Proxy":{"Mode":"","MeshGateway":{},"Expose":{}},"Connect":{},"PeerName":"","CreateIndex":1,"ModifyIndex":1}`
	alive := `{"Node":"far","CheckID":"alive","Name":"alive","Status":"passing","Notes":"","Output":"","ServiceID":"","ServiceName":"","ServiceTags":[],"Type":"",` +
		`"Interval":"","Timeout":"","ExposedPort":0,"Definition":{},"CreateIndex":1,"ModifyIndex":1}`
	serf := `{"Node":"rollcall","CheckID":"serfHealth","Name":"Serf Health Status","Status":"passing","Notes":"","Output":"Agent alive and reachable","ServiceID":"","ServiceName":"",` +
		`"ServiceTags":[],"Type":"","Interval":"","Timeout":"","ExposedPort":0,"Definition":{},"CreateIndex":1,"ModifyIndex":1}`
	for target, want := range map[string]string{
		"/v1/catalog/datacenters":                     `["dc1"]`,
		"/v1/catalog/nodes":                           "[" + far + "," + logical + "]",
		"/v1/catalog/nodes?node-meta=rack:7":          "[" + far + "]",
		"/v1/catalog/nodes?node-meta=rack:8":          "[]",
		"/v1/catalog/services":                        `{"consul":[],"web":[]}`,
		"/v1/catalog/services?node-meta=rack:7":       `{"web":[]}`,
		"/v1/catalog/node/far":                        `{"Node":` + far + `,"Services":{"w1":` + web + `}}`,
		"/v1/catalog/node/rollcall":                   `{"Node":` + logical + `,"Services":{"consul":` + itself + `}}`,
		"/v1/catalog/node/none":                       `null`,
		"/v1/catalog/node-services/far":               `{"Node":` + far + `,"Services":[` + web + `]}`,
		"/v1/catalog/node-services/none":              `{"Node":null,"Services":null}`,
		"/v1/catalog/service/none":                    `[]`,
		"/v1/catalog/service/web?node-meta=rack:none": `[]`,
		"/v1/catalog/service/web": `[{"ID":"","Node":"far","Address":"10.9.0.1","Datacenter":"dc1","TaggedAddresses":null,"NodeMeta":{"rack":"7"},"ServiceKind":"","ServiceID":"w1",` +
			`"ServiceName":"web","ServiceTags":[],"ServiceAddress":"","ServiceWeights":{"Passing":1,"Warning":1},"ServiceMeta":{},"ServicePort":80,"ServicePorts":null,"ServiceSocketPath":"",` +
			`"ServiceEnableTagOverride":false,"ServiceProxy":{"Mode":"","MeshGateway":{},"Expose":{}},"ServiceConnect":{},"ServiceLocality":null,"CreateIndex":2,"ModifyIndex":2}]`,
		"/v1/health/service/web":    `[{"Node":` + far + `,"Service":` + web + `,"Checks":[` + alive + `]}]`,
		"/v1/health/service/none":   `[]`,
		"/v1/health/checks/web":     `[]`,
		"/v1/health/node/far":       "[" + alive + "]",
		"/v1/health/node/rollcall":  "[" + serf + "]",
		"/v1/health/node/none":      "[]",
		"/v1/health/state/any":      "[" + alive + "," + serf + "]",
		"/v1/health/state/critical": "[]",
		"/v1/health/state/strange":  "[]",
		"/v1/agent/services":        "{}",
		"/v1/agent/checks":          "{}",
	} {
		got := n.Must(t, "GET", target, "")
		expect.Equal(t, got.Body, want, "GET %s:\ngot", target)
		expect.Equal(t, got.Header.Get("Content-Type"), "application/json", "GET %s: Content-Type is", target)
	}
}

// Registering a service on the logical node without metadata leaves that node's metadata unchanged: it belongs to all
// hosts.
func TestConsulCatalogKeepsMetadataOfTheLogicalNode(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	type node struct {
		Node, Address string
		Meta          map[string]string
		ModifyIndex   int
	}
	register := func(body string) (logical node, found int) {
		n.Must(t, "PUT", "/v1/catalog/register", body)
		return httpdtest.Read[[]node](t, n, "/v1/catalog/nodes")[0], len(httpdtest.Read[map[string][]string](t, n, "/v1/catalog/services?node-meta=rack:7"))
	}
	for _, row := range []struct {
		body, rack string
		found      int
	}{
		{`{"Node":"rollcall","Address":"10.9.0.1","NodeMeta":{"rack":"7"}}`, "7", 1},
		{`{"Node":"rollcall","Address":"10.9.0.1","Service":{"Service":"web","Port":80},"Check":{"Name":"alive","Status":"passing"}}`, "7", 2},
		{`{"Node":"rollcall","SkipNodeUpdate":true,"NodeMeta":{"rack":"8"}}`, "7", 2},
		{`{"Node":"rollcall","Address":"10.9.0.1","NodeMeta":{"rack":"8"}}`, "8", 0},
		{`{"Node":"rollcall","Address":"10.9.0.1","NodeMeta":{}}`, "", 0},
	} {
		logical, found := register(row.body)
		expect.That(t, logical.Node == "rollcall" && logical.Address == "10.1.0.1" && logical.Meta["consul-version"] != "", "%s: the node is %+v", row.body, logical)
		expect.That(t, logical.Meta["rack"] == row.rack && found == row.found, "%s: got %+v, %d services of rack 7", row.body, logical, found)
	}
}

func TestConsulAgentServicesHaveConsulsShape(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	n.Must(t, "PUT", "/v1/agent/service/register", `{"name":"web","id":"w1","tags":["b","a"],"address":"10.0.0.7","meta":{"v":"1"},`+
		`"enable_tag_override":true,"weights":{"passing":3,"warning":2},"tagged_addresses":{"lan":{"address":"10.0.0.8","port":81}},`+
		`"Locality":{"Region":"eu","Zone":"a"},"Ports":[{"Name":"http","Port":80,"Default":true}],`+
		`"check":{"ttl":"10s","deregister_critical_service_after":"1s","notes":"hm"},"unknown":{"a":[1]},"Connect":null}`)
	hash := n.Must(t, "GET", "/v1/agent/service/w1", "").Header.Get("X-Consul-ContentHash")
	common := `"ID":"w1","Service":"web","Tags":["b","a"],"Meta":{"v":"1"},"Port":80,"Ports":[{"Name":"http","Port":80,"Default":true}],"Address":"10.0.0.7",` +
		`"TaggedAddresses":{"lan":{"Address":"10.0.0.8","Port":81},"lan_ipv4":{"Address":"10.0.0.7","Port":80},"wan_ipv4":{"Address":"10.0.0.7","Port":80}},` +
		`"Weights":{"Passing":3,"Warning":2},"EnableTagOverride":true,`
	rest := `"Datacenter":"dc1","Locality":{"Region":"eu","Zone":"a"}}`
	check := `{"Node":"rollcall","CheckID":"service:w1","Name":"Service 'web' check","Status":"critical","Notes":"hm","Output":"","ServiceID":"w1","ServiceName":"web","ServiceTags":["b","a"],` +
		`"Type":"ttl","Interval":"","Timeout":"","ExposedPort":0,"Definition":{},"CreateIndex":0,"ModifyIndex":0}`
	for target, want := range map[string]string{
		"/v1/agent/services":   `{"w1":{` + common + rest + `}`,
		"/v1/agent/service/w1": `{` + common + `"ContentHash":"` + hash + `",` + rest,
		"/v1/agent/checks":     `{"service:w1":` + check + `}`,
	} {
		expect.Equal(t, n.Must(t, "GET", target, "").Body, want, "GET %s:\ngot", target)
	}
	expect.That(t, len(hash) == 16, "the hash is %q, want 16 digits", hash)
	stored, _ := n.Newest().CheckOn("", "service:w1")
	expect.That(t, stored.TTL == 10_000 && stored.ReapAfter == 60_000,
		"TTL is %d ms and it is reaped after %d ms, want 10 s and the minimum of 1 min", stored.TTL, stored.ReapAfter)
}

// A service with only Ports is listed with the default one as its Port, as in Consul: clients that do not know Ports
// read it.
func TestConsulServicesOfSeveralPortsAreListedWithTheDefaultOne(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	ports := `"Ports":[{"Name":"admin","Port":9090},{"Name":"http","Port":8080,"Default":true}]`
	n.Must(t, "PUT", "/v1/agent/service/register", `{"Name":"web",`+ports+`}`)
	n.Must(t, "PUT", "/v1/agent/service/register", `{"Name":"tls","Meta":{"secure":"true"},`+ports+`}`)
	n.Must(t, "PUT", "/v1/catalog/register", `{"Node":"far","Address":"10.9.0.1","Service":{"Service":"api",`+ports+`}}`)
	for target, want := range map[string]string{
		"/v1/agent/services": `"Port":8080,`, "/v1/agent/service/web": `"Port":8080,`, "/v1/agent/health/service/name/tls": `"Port":8080,`,
		"/v1/catalog/service/web": `"ServicePort":8080,`, "/v1/catalog/service/tls": `"ServicePort":8080,`,
		"/v1/catalog/node/far": `"Port":8080,`, "/v1/health/service/api": `"Port":8080,`,
		"/v1/catalog/service/web?filter=" + url.QueryEscape("ServicePort == 8080"): `"ServicePort":8080,`,
	} {
		got := n.Must(t, "GET", target, "").Body
		expect.That(t, strings.Contains(got, want) && strings.Contains(got, `"Port":9090`), "GET %s: got %s, want %s", target, got, want)
	}
}

// An agent is asked about itself whatever datacenter a call names, and no other cluster's services are here.
func TestConsulAgentIgnoresDatacentersAndPeersHaveNothing(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	n.Must(t, "PUT", "/v1/agent/service/register?dc=dc9", `{"Name":"web","Check":{"TTL":"10s"}}`)
	n.Must(t, "PUT", "/v1/agent/check/pass/service:web?dc=dc9", "")
	expect.That(t, strings.Contains(n.Must(t, "GET", "/v1/agent/checks?dc=dc9", "").Body, `"Status":"passing"`), "the check does not pass")
	for target, want := range map[string]int{"/v1/health/service/web": 1, "/v1/health/service/web?peer=": 1, "/v1/health/service/web?peer=other": 0, "/v1/health/connect/web?peer=other": 0} {
		expect.Equal(t, len(httpdtest.Read[[]*api.ServiceEntry](t, n, target)), want, "GET %s: services", target)
	}
	n.Must(t, "PUT", "/v1/agent/service/deregister/web?dc=dc9", "")
}

// What proxies, gateways and services of a mesh say about themselves is kept for those who read it.
func TestConsulCatalogShowsWhatTheMeshSaysOfItself(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	client := newClient(t, n)
	proxy := &api.AgentServiceConnectProxyConfig{
		DestinationServiceName: "web", DestinationServiceID: "web1", LocalServiceAddress: "127.0.0.2", LocalServicePort: 8080,
		Upstreams: []api.Upstream{
			{DestinationName: "db", LocalBindPort: 9191, Config: map[string]any{"connect_timeout_ms": float64(1000)}},
			{DestinationType: api.UpstreamDestTypePreparedQuery, DestinationName: "geo", LocalBindPort: 8181, MeshGateway: api.MeshGatewayConfig{Mode: api.MeshGatewayModeLocal}},
		},
		Mode: api.ProxyModeTransparent, TransparentProxy: &api.TransparentProxyConfig{OutboundListenerPort: 808}, Config: map[string]any{"a_b": "c"},
		Expose:     api.ExposeConfig{Checks: true, Paths: []api.ExposePath{{ListenerPort: 1, Path: "/m", LocalPathPort: 2, Protocol: "http2"}}},
		AccessLogs: &api.AccessLogsConfig{Enabled: true, Type: api.StdOutLogSinkType},
	}
	ok(t, client.Agent().ServiceRegister(&api.AgentServiceRegistration{Name: "web", ID: "web1", Port: 80, Tags: []string{"v1"}}))
	ok(t, client.Agent().ServiceRegister(&api.AgentServiceRegistration{Kind: api.ServiceKindConnectProxy, Name: "web-proxy", ID: "p1", Port: 81, Tags: []string{"v1"}, Proxy: proxy}))
	ok(t, client.Agent().ServiceRegister(&api.AgentServiceRegistration{Name: "nat", ID: "n1", Port: 82, Connect: &api.AgentServiceConnect{Native: true}}))
	ok(t, client.Agent().ServiceRegister(&api.AgentServiceRegistration{Kind: api.ServiceKindMeshGateway, Name: "gate", ID: "g1", Port: 83, Proxy: &api.AgentServiceConnectProxyConfig{Config: map[string]any{"foo": "bar"}}}))
	_, err := client.Catalog().Register(&api.CatalogRegistration{Node: "far", Address: "10.0.0.9", Service: &api.AgentService{
		Kind: api.ServiceKindConnectProxy, Service: "far-proxy", ID: "p2", Port: 84, Proxy: &api.AgentServiceConnectProxyConfig{DestinationServiceName: "Web"}}}, nil)
	ok(t, err)

	proxy.Upstreams[0].DestinationType = api.UpstreamDestTypeService // as Consul's agents fill it in
	agents, _, err := client.Agent().Service("p1", nil)
	ok(t, err)
	node, _, err := client.Catalog().Node("rollcall", nil)
	ok(t, err)
	listed, _, err := client.Catalog().Connect("WEB", "", nil)
	ok(t, err)
	need.That(t, len(listed) == 2 && listed[0].ServiceID == "p2" && listed[1].ServiceID == "p1", "the proxies of web are %+v", listed)
	healthy, _, err := client.Health().Connect("web", "V1", true, nil)
	ok(t, err)
	need.That(t, len(healthy) == 1, "the passing ones with a tag are %+v", healthy)
	for name, got := range map[string]*api.AgentServiceConnectProxyConfig{
		"agent/service": agents.Proxy, "catalog/node": node.Services["p1"].Proxy, "catalog/connect": listed[1].ServiceProxy, "health/connect": healthy[0].Service.Proxy,
	} {
		expect.That(t, reflect.DeepEqual(got, proxy), "%s: got %+v, want %+v", name, got, proxy)
	}
	native, _, err := client.Catalog().Connect("nat", "", nil)
	ok(t, err)
	services := need.Got(client.Agent().Services())(t)
	expect.That(t, len(native) == 1 && services["n1"].Connect.Native && node.Services["n1"].Connect.Native, "the service of a mesh is %+v and %+v", native, services["n1"])
	expect.That(t, services["g1"].Kind == api.ServiceKindMeshGateway && services["g1"].Proxy.Config["foo"] == "bar", "the gateway is %+v", services["g1"])
	expect.That(t, services["web1"].Proxy == nil && services["web1"].Connect == nil, "a service without a mesh has %+v and %+v", services["web1"].Proxy, services["web1"].Connect)
}

// Consul's agents cache some reads; here the node's own state serves as that cache.
func TestConsulCatalogReadsOfTheCacheSaySo(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	n.Set(func(m *fsmtest.Memory) { m.Reported.Age = 2500 * time.Millisecond })
	for _, row := range []struct{ target, control, cache, age string }{
		{"/v1/catalog/service/consul?cached", "", "HIT", "2"},
		{"/v1/health/service/consul?cached", "max-age=3", "HIT", "2"},
		{"/v1/health/service/consul?cached", "max-age=2", "MISS", ""},
		{"/v1/health/service/consul?cached", "max-age=0", "MISS", ""},
		{"/v1/catalog/services?cached", "stale-if-error=5, Must-Revalidate", "MISS", ""},
		{"/v1/catalog/connect/web?cached", "", "HIT", "2"},
		{"/v1/health/connect/web?cached", "", "HIT", "2"},
		{"/v1/catalog/node-services/rollcall?cached", "", "HIT", "2"},
		{"/v1/catalog/services", "", "", ""},
		{"/v1/catalog/nodes?cached", "", "", ""},
	} {
		got := n.Send(t, httpdtest.Request("GET", row.target, "", "Cache-Control: "+row.control)).Says(t, 200, "", "%s, %s", row.target, row.control).With(t, "X-Cache", row.cache).With(t, "Age", row.age)
		expect.Equal(t, got.Header.Get("X-Consul-Effective-Consistency") == "stale", row.cache == "HIT", "%s, %s: stale is", row.target, row.control)
	}
	n.Set(func(m *fsmtest.Memory) { m.Reported.Age = 0 })
	got := n.Send(t, httpdtest.Request("GET", "/v1/catalog/services?cached", "", "Cache-Control: max-age=0"))
	expect.Equal(t, got.Header.Get("X-Cache"), "MISS", "no age, of a node that leads:")
	n.Send(t, httpdtest.Request("GET", "/v1/catalog/services?cached", "", "Cache-Control: max-age=soon")).Is(t, 400, "Invalid Cache-Control header.", "an age that is none")
	n.Call(t, "GET", "/v1/kv/a?cached&consistent", "").Is(t, 400, "Cannot specify ?cached with ?consistent, conflicting semantics.", "both")
}

// Every refusal of a catalog request, with the texts that clients show.
func TestConsulCatalogRefusalsHaveConsulsTexts(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	n.Must(t, "PUT", "/v1/agent/service/register", `{"Name":"web","ID":"w1","Check":{"CheckID":"alias","AliasService":"p1"}}`)
	n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "same")}, registry.Register{Instance: httpdtest.NewInstance("PAY", "same")},
		registry.Register{Instance: httpdtest.NewInstance("PAY", "p1")})
	const register, checkRegister = "/v1/agent/service/register", "/v1/agent/check/register"
	for _, row := range []struct {
		name, method, target, body string
		status                     int
		text                       string // all of it, or only its beginning before …
	}{
		{"no name", "PUT", register, `{"ID":"x"}`, 400, "Missing service name"},
		{"no body", "PUT", register, ``, 400, "Request decode failed: EOF"},
		{"no object", "PUT", register, `[]`, 400, "Request decode failed: want an object, …"},
		{"broken", "PUT", register, `{"Name":"x"`, 400, "Request decode failed: …"},
		{"name of another kind", "PUT", register, `{"Name":7}`, 400, "Request decode failed: Name: json: cannot unmarshal number …"},
		{"unspecified address", "PUT", register, `{"Name":"x","Address":"0.0.0.0"}`, 400, "Invalid service address"},
		{"unspecified IPv6 address", "PUT", register, `{"Name":"x","Address":"::"}`, 400, "Invalid service address"},
		{"name of 256 bytes", "PUT", register, `{"Name":"` + strings.Repeat("x", 256) + `"}`, 400, "Invalid service name, it must be 1 to 255 bytes of UTF-8 …"},
		{"control character", "PUT", register, `{"Name":"a\u0007b"}`, 400, "Invalid service name, …"},
		{"dots", "PUT", register, `{"Name":"x","ID":".."}`, 400, "Invalid service id, …"},
		{"the cluster's own id", "PUT", register, `{"Name":"x","ID":"consul"}`, 400, `Invalid service id, "consul" stands for the cluster itself`},
		{"check by a program alone", "PUT", register, `{"Name":"x","Check":{"Args":["true"]}}`, 400, "Invalid check: Args is not supported; …"},
		{"the agent's own check", "PUT", register, `{"Name":"x","Check":{"CheckID":"serfHealth","TTL":"1h"}}`, 400, `Invalid check id, "serfHealth" stands for the agent itself`},
		{"the agent's own check, of the node", "PUT", checkRegister, `{"Name":"serfHealth","TTL":"1h"}`, 400, `Invalid check id, "serfHealth" stands for the agent itself`},
		{"the agent's own check, deregistered", "PUT", "/v1/agent/check/deregister/serfHealth", "", 404, `Unknown check ID "serfHealth". …`},
		{"port out of range", "PUT", register, `{"Name":"x","Port":65536}`, 400, "Invalid service port 65536, it must be from 0 to 65535"},
		{"negative port", "PUT", register, `{"Name":"x","Port":-1}`, 400, "Invalid service port -1, …"},
		{"weight of nothing", "PUT", register, `{"Name":"x","Weights":{"Passing":0,"Warning":1}}`, 400, "Invalid Weights: Passing must be greater than 0"},
		{"two spellings", "PUT", register, `{"Name":"Web","ID":"w2"}`, 400, `Invalid service name "Web": there is a service "web", and names that differ in case only are one application; …`},
		{"Eureka's spelling", "PUT", register, `{"Name":"Pay","ID":"w2"}`, 400, `Invalid service name "Pay": there is a service "pay", …`},
		{"check without TTL", "PUT", register, `{"Name":"x","Check":{"Name":"y"}}`, 400, "Invalid check: TTL must be > 0 for TTL checks"},
		{"empty check in a list", "PUT", register, `{"Name":"x","Checks":[{}]}`, 400, "Invalid check: TTL must be > 0 for TTL checks"},
		{"null check in a list", "PUT", register, `{"Name":"x","Checks":[null]}`, 400, "Invalid check: TTL must be > 0 for TTL checks"},
		{"HTTP without interval", "PUT", register, `{"Name":"x","Check":{"HTTP":"http://h/"}}`, 400, "Invalid check: Interval must be > 0 for Script, HTTP, H2PING, TCP, UDP or OSService checks"},
		{"TTL and interval", "PUT", register, `{"Name":"x","Check":{"TTL":"1s","Interval":"1s"}}`, 400, "Invalid check: Interval and TTL cannot both be specified"},
		{"counts", "PUT", register, `{"Name":"x","Check":{"TCP":"h:1","Interval":"1s","FailuresBeforeWarning":2,"FailuresBeforeCritical":1}}`, 400, "Invalid check: FailuresBeforeWarning can't be higher than FailuresBeforeCritical"},
		{"script", "PUT", register, `{"Name":"x","Check":{"ScriptArgs":["/bin/true"],"Interval":"1s"}}`, 400, "Invalid check: ScriptArgs is not supported; a check is one of TTL, HTTP, TCP, UDP, GRPC, H2PING, and AliasService or AliasNode"},
		{"Docker", "PUT", register, `{"Name":"x","Check":{"DockerContainerID":"a","Interval":"1s"}}`, 400, "Invalid check: DockerContainerID is not supported; …"},
		{"OS service", "PUT", register, `{"Name":"x","Check":{"OSService":"nginx","Interval":"1s"}}`, 400, "Invalid check: OSService is not supported; …"},
		{"gRPC without interval", "PUT", register, `{"Name":"x","Check":{"grpc":"h:1"}}`, 400, "Invalid check: Interval must be > 0 for Script, HTTP, H2PING, TCP, UDP or OSService checks"},
		{"UDP without interval", "PUT", register, `{"Name":"x","Check":{"UDP":"h:1"}}`, 400, "Invalid check: Interval must be > 0 for Script, HTTP, H2PING, TCP, UDP or OSService checks"},
		{"HTTP/2 without interval", "PUT", register, `{"Name":"x","Check":{"H2PING":"h:1","TTL":"1s"}}`, 400, "Invalid check: Interval must be > 0 for Script, HTTP, H2PING, TCP, UDP or OSService checks"},
		{"two probes", "PUT", register, `{"Name":"x","Check":{"GRPC":"h:1","UDP":"h:1","Interval":"1s"}}`, 400, "Invalid check: UDP and GRPC cannot both be specified"},
		{"alias and probe", "PUT", register, `{"Name":"x","Check":{"TCP":"h:1","Interval":"1s","AliasService":"w1"}}`, 400, "Invalid check: Interval cannot be set for Alias checks"},
		{"alias and TTL", "PUT", register, `{"Name":"x","Check":{"TTL":"1s","AliasNode":"far"}}`, 400, "Invalid check: TTL must be not be set for Alias checks"},
		{"alias of a long name", "PUT", register, `{"Name":"x","Check":{"AliasService":"` + strings.Repeat("x", 256) + `"}}`, 400, "Invalid alias service id, …"},
		{"alias of a node that is no name", "PUT", checkRegister, `{"Name":"c","AliasNode":".."}`, 400, "Invalid alias node, …"},
		{"pass an alias", "PUT", "/v1/agent/check/pass/alias", "", 500, `CheckID "alias" does not have associated TTL`},
		{"status", "PUT", register, `{"Name":"x","Check":{"TTL":"1s","Status":"fine"}}`, 400, "Status for checks must 'passing', 'warning', 'critical'"},
		{"duration", "PUT", register, `{"Name":"x","Check":{"TTL":"1s","DeregisterCriticalServiceAfter":"soon"}}`, 400, `Request decode failed: Check: DeregisterCriticalServiceAfter: time: invalid duration "soon"`},
		{"checks of one service", "PUT", register, `{"Name":"x","Checks":[` + strings.Repeat(`{"TTL":"1h"},`, 64) + `{"TTL":"1h"}]}`, 400, "Too many checks: a service may have 64, a node itself (all checks without a service) 256, …"},
		{"checks of one registration", "PUT", register, `{"Name":"x","Checks":[` + strings.Repeat(`{"TTL":"1h"},`, 10_000) + `{"TTL":"1h"}]}`, 400, "Too many checks: …"},
		{"flag", "PUT", register + "?replace-existing-checks=maybe", `{"Name":"x"}`, 400, `Invalid value for replace-existing-checks: "maybe"`},
		{"method", "POST", register, `{}`, 405, "method POST not allowed"},
		{"deregister unknown", "PUT", "/v1/agent/service/deregister/web", "", 404, `Unknown service ID "web". Ensure that the service ID is passed, not the service name.`},
		{"deregister nothing", "PUT", "/v1/agent/service/deregister/", "", 404, `Unknown service ID "". Ensure that the service ID is passed, not the service name.`},
		{"deregister ambiguous", "PUT", "/v1/agent/service/deregister/same", "", 500, `service ID "same" names instances of several applications: ORDERS, PAY; …`},
		{"maintenance without enable", "PUT", "/v1/agent/service/maintenance/w1", "", 400, "Missing value for enable"},
		{"maintenance perhaps", "PUT", "/v1/agent/service/maintenance/w1?enable=x", "", 400, `Invalid value for enable: "x"`},
		{"maintenance of nothing", "PUT", "/v1/agent/service/maintenance/?enable=true", "", 400, "Missing service ID"},
		{"maintenance unknown", "PUT", "/v1/agent/service/maintenance/web?enable=true", "", 404, `Unknown service ID "web". …`},
		{"maintenance ambiguous", "PUT", "/v1/agent/service/maintenance/same?enable=true", "", 500, `service ID "same" names instances of several applications: ORDERS, PAY; …`},
		{"node maintenance", "PUT", "/v1/agent/maintenance", "", 400, "Missing value for enable"},
		{"check name", "PUT", checkRegister, `{"ID":"c","TTL":"1s"}`, 400, "Missing check name"},
		{"check TTL", "PUT", checkRegister, `{"Name":"c"}`, 400, "Invalid check: TTL must be > 0 for TTL checks"},
		{"check of an unknown service", "PUT", checkRegister, `{"Name":"c","TTL":"1s","ServiceID":"none"}`, 404, `ServiceID "none" does not exist`},
		{"check of a client of Eureka", "PUT", checkRegister, `{"Name":"c","TTL":"1s","ServiceID":"p1"}`, 400, `service "p1" was registered by a client of Eureka, …`},
		{"pass unknown", "PUT", "/v1/agent/check/pass/c", "", 404, `Unknown check ID "c". Ensure that the check ID is passed, not the check name.`},
		{"pass nothing", "PUT", "/v1/agent/check/pass/", "", 404, `Unknown check ID "". …`},
		{"pass serfHealth", "PUT", "/v1/agent/check/pass/serfHealth", "", 500, `CheckID "serfHealth" does not have associated TTL`},
		{"pass for a client of Eureka", "PUT", "/v1/agent/check/pass/service:p1", "", 500, `CheckID "service:p1" does not have associated TTL`},
		{"update to what", "PUT", "/v1/agent/check/update/c", `{"Status":"fine"}`, 400, "Invalid check status: 'fine'"},
		{"update unknown", "PUT", "/v1/agent/check/update/c", `{"Status":"passing"}`, 404, `Unknown check ID "c". …`},
		{"deregister unknown check", "PUT", "/v1/agent/check/deregister/c", "", 404, `Unknown check ID "c". Ensure that the check ID is passed, not the check name.`},
		{"deregister no check", "PUT", "/v1/agent/check/deregister/", "", 404, `Unknown check ID "". …`},
		{"unknown service", "GET", "/v1/agent/service/none", "", 404, "unknown service ID: none"},
		{"catalog: no node", "PUT", "/v1/catalog/register", `{"Address":"a"}`, 500, "Must provide node"},
		{"catalog: no address", "PUT", "/v1/catalog/register", `{"Node":"n"}`, 500, "Must provide address if SkipNodeUpdate is not set"},
		{"catalog: no service name", "PUT", "/v1/catalog/register", `{"Node":"n","Address":"a","Service":{"ID":"x"}}`, 500, "Must provide service name"},
		{"catalog: check's service", "PUT", "/v1/catalog/register", `{"Node":"n","Address":"a","Check":{"Name":"c","ServiceID":"s"}}`, 500, "Unknown service ID 's' for check ID 'c'"},
		{"catalog: check's node", "PUT", "/v1/catalog/register", `{"Node":"n","Address":"a","Check":{"Name":"c","Node":"m"}}`, 500, `check node "m" does not match node "n"`},
		{"catalog: check's status", "PUT", "/v1/catalog/register", `{"Node":"n","Address":"a","Check":{"Name":"c","Status":"x"}}`, 400, "Invalid check status: 'x'"},
		{"catalog: datacenter", "PUT", "/v1/catalog/register", `{"Node":"n","Address":"a","Datacenter":"dc9"}`, 500, "No path to datacenter"},
		{"catalog: deregister no node", "PUT", "/v1/catalog/deregister", `{}`, 500, "Must provide node"},
		{"catalog: deregister the cluster", "PUT", "/v1/catalog/deregister", `{"Node":"rollcall"}`, 500, `node "rollcall" stands for the cluster itself …`},
		{"catalog: deregister ambiguous", "PUT", "/v1/catalog/deregister", `{"Node":"rollcall","ServiceID":"same"}`, 500, `service ID "same" names instances …`},
		{"datacenter", "GET", "/v1/catalog/nodes?dc=dc9", "", 500, "No path to datacenter"},
		{"agent: datacenter", "GET", "/v1/agent/services?dc=dc9", "", 200, "{…"},
		{"agent: output", "PUT", register, `{"Name":"x","Check":{"TTL":"1s","OutputMaxSize":-1}}`, 400, "Invalid check: MaxOutputMaxSize must be positive"},
		{"no service", "GET", "/v1/catalog/service/", "", 400, "Missing service name"},
		{"no service", "GET", "/v1/health/service/", "", 400, "Missing service name"},
		{"no node", "GET", "/v1/catalog/node/", "", 400, "Missing node name"},
		{"no node", "GET", "/v1/health/node/", "", 400, "Missing node name"},
		{"no state", "GET", "/v1/health/state/", "", 400, "Missing check state"},
		{"passing", "GET", "/v1/health/service/web?passing=x", "", 400, "Invalid value for ?passing"},
		{"index", "GET", "/v1/health/service/web?index=x", "", 400, "Invalid index"},
		{"out of scope", "GET", "/v1/agent/metrics", "", 501, "an agent's metrics are not served here: …"},
		{"sidecar", "PUT", register, `{"Name":"x","Port":1,"Connect":{"sidecar_service":{}}}`, 400, "Invalid SidecarService: no sidecar is registered with a service here, …"},
		{"proxy of nothing", "PUT", register, `{"Name":"x","Port":1,"Kind":"connect-proxy"}`, 400, "Validation failed: Proxy.DestinationServiceName must be non-empty for Connect proxy services"},
		{"proxy of everything", "PUT", register, `{"Name":"x","Port":1,"Kind":"connect-proxy","Proxy":{"DestinationServiceName":"*"}}`, 400, "Validation failed: Proxy.DestinationServiceName must not be a wildcard …"},
		{"proxy without a port", "PUT", register, `{"Name":"x","Kind":"connect-proxy","Proxy":{"DestinationServiceName":"w"}}`, 400, "Validation failed: Port or SocketPath must be set for a connect-proxy"},
		{"proxy that needs none", "PUT", register, `{"Name":"x","Port":1,"Kind":"connect-proxy","Proxy":{"DestinationServiceName":"w"},"Connect":{"Native":true}}`, 400, "Validation failed: A Proxy cannot also be Connect Native, only typical services"},
		{"proxy's upstream", "PUT", register, `{"Name":"x","Port":1,"Kind":"connect-proxy","Proxy":{"DestinationServiceName":"w","Upstreams":[{"DestinationName":"db"}]}}`, 400, "Validation failed: upstream local bind port or local socket path must be defined and nonzero"},
		{"proxy's ports", "PUT", register, `{"Name":"x","Kind":"connect-proxy","Ports":[{"Port":1,"Default":true}],"Proxy":{"DestinationServiceName":"w"}}`, 400, "Validation failed: Ports cannot be set for a connect-proxy"},
		{"port and ports", "PUT", register, `{"Name":"x","Port":1,"Ports":[{"Name":"a","Port":1,"Default":true}]}`, 400, "Validation failed: Port and Ports cannot both be specified"},
		{"catalog: port and ports", "PUT", "/v1/catalog/register", `{"Node":"n","Address":"a","Service":{"Service":"s","Port":1,"Ports":[{"Name":"a","Port":1,"Default":true}]}}`, 400, "Validation failed: Port and Ports …"},
		{"ports without a default one", "PUT", register, `{"Name":"x","Ports":[{"Name":"a","Port":1}]}`, 400, "Validation failed: one of the Ports must be marked as Default"},
		{"ports with two default ones", "PUT", register, `{"Name":"x","Ports":[{"Name":"a","Port":1,"Default":true},{"Name":"b","Port":2,"Default":true}]}`, 400, "Validation failed: only one port can be marked as default"},
		{"ports of one name", "PUT", register, `{"Name":"x","Ports":[{"Name":"a","Port":1,"Default":true},{"Name":"a","Port":2}]}`, 400, "Validation failed: Ports.Name \"a\" has to be unique"},
		{"a port without a name", "PUT", register, `{"Name":"x","Ports":[{"Port":1,"Default":true}]}`, 400, "Validation failed: Ports.Name cannot be empty"},
		{"a port without a number", "PUT", register, `{"Name":"x","Ports":[{"Name":"a","Default":true}]}`, 400, "Validation failed: Ports.Port must be from 1 to 65535"},
		{"proxy's port as text", "PUT", register, `{"Name":"x","Proxy":{"LocalServicePort":"x"}}`, 400, "Request decode failed: Proxy: LocalServicePort: json: cannot unmarshal string …"},
		{"native without a port", "PUT", register, `{"Name":"x","Connect":{"Native":true}}`, 400, "Validation failed: Port or SocketPath must be set for a Connect native service."},
		{"gateway without a port", "PUT", register, `{"Name":"x","Kind":"mesh-gateway"}`, 400, "Validation failed: Port must be non-zero for a mesh-gateway"},
		{"gateway to a service", "PUT", register, `{"Name":"x","Port":1,"Kind":"mesh-gateway","Proxy":{"DestinationServiceName":"w"}}`, 400, "Validation failed: The Proxy.DestinationServiceName configuration is invalid for a mesh-gateway"},
		{"catalog: sidecar", "PUT", "/v1/catalog/register", `{"Node":"n","Address":"a","Service":{"Service":"s","Connect":{"SidecarService":{}}}}`, 400, "Invalid SidecarService: …"},
		{"no service", "GET", "/v1/catalog/connect/", "", 400, "Missing service name"},
		{"passing", "GET", "/v1/health/connect/web?passing=x", "", 400, "Invalid value for ?passing"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := n.Call(t, row.method, row.target, row.body)
			text, cut := strings.CutSuffix(row.text, "…")
			expect.That(t, got.Status == row.status && (got.Body == text || (cut && strings.HasPrefix(got.Body, text))), "%s %s %s: got %d %q, want %d %q", row.method, row.target, row.body, got.Status, got.Body, row.status, row.text)
		})
	}
}

// TestConsulAgentRefusesAnIDOfAnotherHostAndNamesBoth: with Consul each host has an agent, with its own ids.
func TestConsulAgentRefusesAnIDOfAnotherHostAndNamesBoth(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	const register, advice = "/v1/agent/service/register",
		": both may be of different hosts behind one address. Register through an agent for each host (/agent/NAME in front of the path), or with an ID of its own"
	n.Must(t, "PUT", register, `{"Name":"orders","ID":"orders-8080","Address":"10.0.0.2","Port":8080,"Check":{"CheckID":"alive","TTL":"1h","Status":"passing"}}`)
	n.Must(t, "PUT", register, `{"Name":"orders","ID":"a/b"}`)
	n.Must(t, "PUT", "/v1/agent/check/register", `{"ID":"disk","Name":"disk","TTL":"1h","Status":"passing"}`)
	for _, row := range []struct{ name, target, body, want string }{
		{"another address", register, `{"Name":"orders","ID":"orders-8080","Address":"10.0.0.3","Port":8080}`,
			`Service ID "orders-8080" of agent "rollcall" is registered with the address "10.0.0.2" and is not replaced by one with the address "10.0.0.3"` + advice +
				`; or, if the service has moved, deregister the old one first: PUT /agent/rollcall/v1/agent/service/deregister/orders-8080`},
		{"no address", register, `{"Name":"orders","ID":"orders-8080"}`,
			`Service ID "orders-8080" of agent "rollcall" is registered with the address "10.0.0.2" and is not replaced by one with the address of the node (none was given)` + advice +
				`; or, if the service has moved, deregister the old one first: PUT /agent/rollcall/v1/agent/service/deregister/orders-8080`},
		{"an address in the place of none", register, `{"Name":"orders","ID":"a/b","Address":"10.0.0.3"}`,
			`Service ID "a/b" of agent "rollcall" is registered with the address of the node (none was given) and is not replaced by one with the address "10.0.0.3"` + advice +
				`; or, if the service has moved, deregister the old one first: PUT /agent/rollcall/v1/agent/service/deregister/a%2Fb`},
		{"through the path", "/agent/rollcall" + register, `{"Name":"orders","ID":"orders-8080","Address":"10.0.0.3"}`,
			`Service ID "orders-8080" of agent "rollcall" is registered with the address "10.0.0.2" and is not replaced by one with the address "10.0.0.3"` + advice +
				`; or, if the service has moved, deregister the old one first: PUT /agent/rollcall/v1/agent/service/deregister/orders-8080`},
		{"through the catalog", "/v1/catalog/register", `{"Node":"rollcall","Address":"x","Service":{"Service":"orders","ID":"orders-8080","Address":"10.0.0.3"}}`,
			`Service ID "orders-8080" of agent "rollcall" is registered with the address "10.0.0.2" and is not replaced by one with the address "10.0.0.3"` + advice +
				`; or, if the service has moved, deregister the old one first: PUT /agent/rollcall/v1/agent/service/deregister/orders-8080`},
		{"a check", register, `{"Name":"pay","Address":"10.0.0.3","Check":{"CheckID":"alive","TTL":"1h"}}`,
			`Check ID "alive" of agent "rollcall" belongs to a check of service "orders-8080" and is not moved to service "pay"` + advice + `, or deregister the old one first: PUT /agent/rollcall/v1/agent/check/deregister/alive`},
		{"a check of the node", register, `{"Name":"pay","Address":"10.0.0.3","Check":{"CheckID":"disk","TTL":"1h"}}`,
			`Check ID "disk" of agent "rollcall" belongs to a check of the node and is not moved to service "pay"` + advice + `, or deregister the old one first: PUT /agent/rollcall/v1/agent/check/deregister/disk`},
		{"a check by itself", "/v1/agent/check/register", `{"ID":"alive","Name":"alive","ServiceID":"a/b","TTL":"1h"}`,
			`Check ID "alive" of agent "rollcall" belongs to a check of service "orders-8080" and is not moved to service "a/b"` + advice + `, or deregister the old one first: PUT /agent/rollcall/v1/agent/check/deregister/alive`},
	} {
		n.Call(t, "PUT", row.target, row.body).Is(t, 409, row.want, "%s", row.name)
	}
	expect.That(t, n.Passing(t, "orders", "orders-8080"), "the first is not passing after the refusals")
	n.Must(t, "PUT", register, `{"Name":"orders","ID":"orders-8080","Address":"10.0.0.2","Port":8081,"Tags":["v2"]}`)
	n.Must(t, "PUT", "/v1/agent/service/deregister/orders-8080", "")
	n.Must(t, "PUT", register, `{"Name":"orders","ID":"orders-8080","Address":"10.0.0.3","Port":8080}`)
}

// Instances that a client of Eureka registered, as clients of Consul see them.
func TestConsulCatalogHasInstancesOfEureka(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	up, secure := httpdtest.NewInstance("ORDERS", "o1"), httpdtest.NewInstance("ORDERS", "o2")
	up.Metadata = []registry.Pair{{Key: "zone", Value: "a"}}
	secure.Port.Enabled, secure.SecurePort.Enabled = false, true
	secure.IPAddr = ""
	n.Perform(t, registry.Register{Instance: up}, registry.Register{Instance: secure})
	type service struct {
		ServiceID, ServiceName, ServiceAddress, Node string
		ServicePort                                  int
		ServiceTags                                  []string
		ServiceMeta                                  map[string]string
	}
	got := fmt.Sprint(httpdtest.Read[[]service](t, n, "/v1/catalog/service/orders"))
	expect.Equal(t, got, "[{o1 orders 10.0.0.1 rollcall 8080 [] map[zone:a]} {o2 orders host-o2 rollcall 443 [] map[secure:true]}]", "got")
	for _, row := range []struct {
		name    string
		op      registry.Op // gives the instance its status
		passing bool
		checks  string // id, status and output of each, by id
	}{
		{"UP", nil, true, "service:o1 passing The status is UP"},
		{"DOWN", registry.Register{Instance: httpdtest.WithStatus(up, registry.Down, 2)}, false, "service:o1 critical The status is DOWN"},
		{"STARTING", registry.Register{Instance: httpdtest.WithStatus(up, registry.Starting, 3)}, false, "service:o1 critical The status is STARTING"},
		{"UP again", registry.Register{Instance: httpdtest.WithStatus(up, registry.Up, 4)}, true, "service:o1 passing The status is UP"},
		{"overridden OUT_OF_SERVICE", registry.SetOverride{Key: up.Key(), Status: registry.OutOfService}, false,
			"_service_maintenance:o1 critical The status is OUT_OF_SERVICE, overridden; the client said UP, " +
				"service:o1 critical The status is OUT_OF_SERVICE, overridden; the client said UP"},
		{"overridden", registry.SetOverride{Key: up.Key(), Status: registry.Down, By: registry.Act{Author: "ann", Reason: "sick"}}, false,
			"service:o1 critical The status is DOWN, overridden by ann (sick); the client said UP"},
		{"UNKNOWN", registry.DeleteOverride{Key: up.Key()}, false, "service:o1 critical The status is UNKNOWN"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.op != nil {
				n.Perform(t, row.op)
			}
			expect.Equal(t, n.Passing(t, "orders", "o1"), row.passing, "passing is")
			expect.Equal(t, n.Checks(t, "orders", "o1"), row.checks, "checks are")
		})
	}
}

// Services that an agent's client registered, as clients of Eureka see them.
func TestEurekaListsHaveServicesOfConsul(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	n.Must(t, "PUT", "/v1/agent/service/register", `{"Name":"Web","ID":"w1","Port":80,"Address":"10.0.0.7","Meta":{"b":"2","a":"1"},"Check":{"TTL":"10s"}}`)
	n.Must(t, "PUT", "/v1/catalog/register", `{"Node":"far","Address":"10.9.0.1","Service":{"Service":"Web","ID":"w1","Port":81,"Meta":{"secure":"true"}}}`)
	var doc struct {
		Application struct {
			Name     string
			Instance []struct {
				InstanceID, HostName, IPAddr, VipAddress, SecureVipAddress, Status string
				Port, SecurePort                                                   map[string]any
				Metadata                                                           map[string]string
				DataCenterInfo                                                     struct{ Name string }
				LeaseInfo                                                          struct{ RenewalIntervalInSecs, DurationInSecs int }
			}
		}
	}
	got := n.Send(t, httpdtest.Request("GET", "/eureka/apps/WEB", "", "Accept: application/json"))
	need.OKf(t, json.Unmarshal([]byte(got.Body), &doc), "in %s", got.Body)
	var shown []string
	for _, i := range doc.Application.Instance {
		shown = append(shown, fmt.Sprint(i.InstanceID, " ", i.HostName, " ", i.IPAddr, " ", i.VipAddress, "/", i.SecureVipAddress, " ", i.Status, " ", i.Port["$"], " ", i.Port["@enabled"], " ",
			i.SecurePort["$"], " ", i.SecurePort["@enabled"], " ", i.Metadata["a"], i.Metadata["b"], " ", i.DataCenterInfo.Name, " ", i.LeaseInfo.RenewalIntervalInSecs, "/", i.LeaseInfo.DurationInSecs))
	}
	want := []string{
		"far:w1 10.9.0.1 10.9.0.1 web/web UP 0 false 81 true  MyOwn 30/90",
		"w1 10.0.0.7 10.0.0.7 web/ DOWN 80 true 0 false 12 MyOwn 30/90",
	}
	expect.That(t, doc.Application.Name == "WEB" && slices.Equal(shown, want), "application %s:\ngot  %q\nwant %q", doc.Application.Name, shown, want)
	n.Must(t, "PUT", "/v1/agent/check/pass/service:w1?note=well", "")
	l, _ := n.Newest().Lease(registry.NewKey("WEB", "w1"))
	expect.That(t, l.Instance.Status == registry.Up, "after a heartbeat the status is %v, want UP", l.Instance.Status)
}

func TestConsulCatalogKeepsServicesOutOfUseByOperatorsActs(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	n.Must(t, "PUT", "/v1/agent/service/register", `{"Name":"web","ID":"w1","Check":{"TTL":"10s","Status":"passing"}}`)
	key := registry.NewKey("web", "w1")
	by := registry.Act{Author: "ann", Reason: "deploy"}
	for _, row := range []struct {
		name   string
		op     registry.Op
		checks string
	}{
		{"as registered", nil, "service:w1 passing "},
		{"OUT_OF_SERVICE", registry.SetOverride{Key: key, Status: registry.OutOfService, By: by},
			"_service_maintenance:w1 critical The status is OUT_OF_SERVICE, overridden by ann (deploy); the client said UP, service:w1 passing "},
		{"DOWN", registry.SetOverride{Key: key, Status: registry.Down, By: by},
			"_status_override:w1 critical The status is DOWN, overridden by ann (deploy); the client said UP, service:w1 passing "},
		{"UP", registry.SetOverride{Key: key, Status: registry.Up, By: by}, "service:w1 passing "},
		{"ended", registry.DeleteOverride{Key: key, By: by}, "service:w1 passing "},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.op != nil {
				n.Perform(t, row.op)
			}
			expect.Equal(t, n.Checks(t, "web", "w1"), row.checks, "checks are")
			expect.Equal(t, n.Passing(t, "web", "w1"), !strings.Contains(row.checks, "critical"), "passing is")
		})
	}
	n.Perform(t, registry.Quarantine{Key: key, For: 60_000, By: by})
	for _, target := range []string{"/v1/catalog/service/web", "/v1/health/service/web", "/v1/agent/services", "/v1/health/state/passing", "/v1/catalog/services"} {
		got := n.Must(t, "GET", target, "")
		expect.That(t, !strings.Contains(got.Body, "w1"), "GET %s shows a quarantined service: %s", target, got.Body)
	}
	n.Call(t, "GET", "/v1/agent/health/service/id/w1", "").Says(t, 404, "", "health of a quarantined service")
	n.Must(t, "PUT", "/v1/agent/service/deregister/w1", "")
	_, there := n.Newest().Find(key)
	expect.That(t, !there, "a quarantined service cannot be deregistered")
}

// The recipes that operators remove dead services with, whatever API registered them.
func TestConsulAgentDeregistrationIsFinal(t *testing.T) {
	for _, row := range []struct{ name, target, body string }{
		{"agent", "/v1/agent/service/deregister/%s", ""},
		{"catalog", "/v1/catalog/deregister", `{"Datacenter":"dc1","Node":"rollcall","ServiceID":"%s","CheckID":"service:%[1]s"}`},
	} {
		t.Run(row.name, func(t *testing.T) {
			n := httpdtest.NewCatalog(t)
			n.Must(t, "PUT", "/v1/agent/service/register", `{"Name":"web","ID":"w1","Check":{"TTL":"10s"}}`)
			n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "o1")})
			for _, id := range []string{"w1", "o1"} {
				target, body := row.target, row.body
				if body == "" {
					target = fmt.Sprintf(target, id)
				} else {
					body = fmt.Sprintf(body, id)
				}
				n.Must(t, "PUT", target, body)
			}
			expect.Equal(t, n.Newest().Total(), 0, "instances are left:")
			n.Call(t, "PUT", "/v1/agent/check/pass/service:w1", "").Says(t, 404, "", "a heartbeat after it")
			expect.Equal(t, n.Send(t, httpdtest.Request("PUT", "/eureka/apps/ORDERS/o1", "")).Status, 404, "a heartbeat of Eureka's after it: got")
		})
	}
}

func TestConsulCatalogDeregistrationIsTrueWhateverWasThere(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	n.Must(t, "PUT", "/v1/catalog/register", `{"Node":"far","Address":"10.9.0.1","Service":{"Service":"web","ID":"w1"},"Checks":[{"Name":"alive"},{"Name":"well","ServiceID":"w1"}]}`)
	left := func() string {
		var ids []string
		for _, c := range httpdtest.Read[[]struct{ CheckID string }](t, n, "/v1/health/node/far") {
			ids = append(ids, c.CheckID)
		}
		return strings.Join(ids, " ") + "; " + fmt.Sprint(n.Newest().Total())
	}
	for _, row := range []struct{ body, left string }{
		{`{"Node":"none"}`, "alive well; 1"},
		{`{"Node":"far","ServiceID":"none"}`, "alive well; 1"},
		{`{"Node":"rollcall","CheckID":"serfHealth"}`, "alive well; 1"},
		{`{"Node":"rollcall","ServiceID":"none","CheckID":"service:none"}`, "alive well; 1"},
		{`{"Node":"far","CheckID":"alive"}`, "well; 1"},
		{`{"Node":"far","ServiceID":"w1","CheckID":"alive"}`, "; 0"},
		{`{"Node":"far"}`, "; 0"},
	} {
		expect.Equal(t, n.Must(t, "PUT", "/v1/catalog/deregister", row.body).Body, "true", "%s: got", row.body)
		expect.Equal(t, left(), row.left, "%s: left are", row.body)
	}
	expect.Equal(t, n.Must(t, "GET", "/v1/catalog/node/far", "").Body, "null", "the node is")
}

func TestConsulCatalogIndexStaysAtAnUnchangedRegistration(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	const body = `{"Node":"far","Address":"10.9.0.1","Service":{"Service":"web","ID":"w1","Tags":["a"]},"Check":{"Name":"well","ServiceID":"w1","Status":"passing","Definition":{"Interval":"40s","Timeout":4000000000,"TCP":"h:1","HTTP":""}}}`
	n.Must(t, "PUT", "/v1/catalog/register", body)
	before := n.Newest().Index()
	n.Must(t, "PUT", "/v1/catalog/register", body)
	expect.Equal(t, n.Newest().Index(), before, "the index went from %d to", before)
	type check struct {
		Type       string
		Definition map[string]string
	}
	expect.Equal(t, fmt.Sprint(httpdtest.Read[[]check](t, n, "/v1/health/checks/web")), "[{tcp map[Interval:40s TCP:h:1 Timeout:4s]}]", "the check is")
}

func TestConsulAgentWaitsForTheHashOfAService(t *testing.T) {
	httpdtest.Bubble(t, func(t *testing.T) {
		n := newCatalogIn(t)
		n.Send(t, "PUT", "/v1/agent/service/register", `{"Name":"web"}`)
		hash := n.Get(t, "/v1/agent/service/web").Header.Get("X-Consul-ContentHash")
		begun := time.Now()
		if got := n.Get(t, "/v1/agent/service/web?hash=other&wait=9m"); got.Status != 200 || time.Since(begun) != 0 {
			t.Errorf("another hash: got %d after %v, want 200 at once", got.Status, time.Since(begun))
		}
		httpdtest.After(t, time.Minute, func() { n.Send(t, "PUT", "/v1/agent/check/register", `{"Name":"c","TTL":"1s","ServiceID":"web"}`) })
		httpdtest.After(t, 2*time.Minute, func() { n.Send(t, "PUT", "/v1/agent/service/register", `{"Name":"web","Port":1}`) })
		got := n.Get(t, "/v1/agent/service/web?wait=9m&hash="+hash)
		took := time.Since(begun)
		expect.That(t, took == 2*time.Minute && got.Header.Get("X-Consul-ContentHash") != hash,
			"it was answered after %v, want when the service changed, after 2 min", took)
	})
}

// bounded starts a node of a cluster that writes level 2, at its bounds: 1,000 alias checks on t, two more nodes and
// more keys than one operation deletes.
func bounded(t *testing.T) *httpdtest.Coordinated {
	t.Helper()
	c := httpdtest.NewCoordinated(t, httpd.Config{})
	c.Memory.Registry.SetLevel(2)
	c.Kv.State.SetLevel(2)
	put := func(target, body string) {
		c.Send("PUT", target, body).Says(t, 200, "", "%s", target)
	}
	put("/v1/agent/service/register", `{"Name":"t","Check":{"CheckID":"ttl","TTL":"1h"}}`)
	for i := range 20 {
		put("/v1/agent/service/register", aliasing(fmt.Sprint("f", i), 50))
	}
	return c
}

// aliasing registers a service with alias checks on t.
func aliasing(id string, checks int) string {
	return fmt.Sprintf(`{"Name":"f","ID":%q,"Checks":[%s{"AliasService":"t"}]}`, id, strings.Repeat(`{"AliasService":"t"},`, checks-1))
}

// Whichever route an alias check beyond the bound comes by, its refusal names the bound, and nothing changes.
func TestAliasBeyondTheBoundIsRefusedWithTheBound(t *testing.T) {
	c := bounded(t)
	const text = "Invalid check: at most 1000 alias checks may follow one service, or from other nodes one node, directly or through the services that they belong to; …"
	listed := c.Send("GET", "/v1/agent/checks", "").Body
	for _, row := range []struct {
		name, target, body string
		status             int
		text               string
	}{
		{"service", "/v1/agent/service/register", aliasing("more", 1), 400, text},
		{"with many checks", "/v1/agent/service/register", aliasing("more", 64), 400, text},
		{"with another one first", "/v1/agent/service/register", `{"Name":"more","Checks":[{"TTL":"1s"},{"AliasService":"t"}]}`, 400, text},
		{"check", "/v1/agent/check/register", `{"Name":"c","AliasService":"t"}`, 400, text},
		{"check of a service", "/v1/agent/check/register", `{"Name":"c","AliasService":"t","ServiceID":"f1"}`, 400, text},
		{"by its node", "/v1/agent/check/register", `{"Name":"c","AliasService":"t","AliasNode":"rollcall","ServiceID":"f1"}`, 400, text},
		{"of a follower", "/v1/agent/service/register", `{"Name":"more","Check":{"AliasService":"f3"}}`, 400, text},
		{"again", "/v1/agent/service/register", aliasing("f1", 50), 200, ""},
		{"of what is not there", "/v1/agent/check/register", `{"Name":"free","AliasService":"none","ServiceID":"f1"}`, 200, ""},
	} {
		got := c.Send("PUT", row.target, row.body)
		begins, _, cut := strings.Cut(row.text, "…")
		expect.That(t, got.Status == row.status && strings.HasPrefix(got.Body, begins) && (cut || got.Body == row.text), "%s: got %d %s", row.name, got.Status, got.Body)
		if row.status != 200 {
			expect.Equal(t, c.Send("GET", "/v1/agent/checks", "").Body, listed, "%s: the checks are", row.name)
		}
	}
}

// FuzzAliases checks that, whatever a check's definition exceeds, the answer is 400 or the check follows nothing that
// is at its bound.
func FuzzAliases(f *testing.F) {
	for _, body := range []string{aliasing("x", 1), `{"Name":"x","Check":{"AliasService":"T"}}`, `{"name":"x","check":{"alias_service":"t"}}`,
		`{"Name":"x","Check":{"AliasService":"t","AliasNode":""}}`, `{"Name":"x","Checks":[null,{"AliasService":"t"}]}`, `{"Name":"x","ID":"t","Check":{"AliasService":"x"}}`} {
		f.Add(body)
	}
	c := httpdtest.NewCoordinated(f, httpd.Config{})
	c.Memory.Registry.SetLevel(2)
	c.Send("PUT", "/v1/agent/service/register", `{"Name":"t","Check":{"CheckID":"ttl","TTL":"1h"}}`)
	for i := range 20 {
		c.Send("PUT", "/v1/agent/service/register", aliasing(fmt.Sprint("f", i), 50))
	}
	f.Fuzz(func(t *testing.T, body string) {
		before := need.Got(c.View(t.Context(), registry.Stale))(t).AliasFigures().Refused.Load()
		got := c.Send("PUT", "/v1/agent/service/register", body)
		refused := need.Got(c.View(t.Context(), registry.Stale))(t).AliasFigures().Refused.Load() > before
		expect.That(t, got.Status == 200 || got.Status >= 400 && got.Status < 500, "%s: %d %s", body, got.Status, got.Body)
		expect.That(t, refused == (got.Status == 400 && strings.Contains(got.Body, "at most 1000 alias checks")), "%s: %d %s", body, got.Status, got.Body)
		c.Send("PUT", "/v1/agent/check/pass/ttl", "")
		c.Send("PUT", "/v1/agent/check/fail/ttl", "")
		most := need.Got(c.View(t.Context(), registry.Stale))(t).AliasFigures().Largest.Load()
		expect.That(t, most <= 1000, "%s: %d alias checks follow one heartbeat", body, most)
	})
}

func TestWhatIsTooMuchForOneOperationIsRemovedInSteps(t *testing.T) {
	c := bounded(t)
	set := make([]kv.Op, kv.MaxDeleted+2500)
	for i := range set {
		set[i] = kv.KeyOp{Verb: kv.Set, Key: fmt.Sprintf("tree/%05d", i)}
	}
	_, err := c.Kv.Apply(t.Context(), set...)
	expect.OKf(t, err, "set")
	c.Send("PUT", "/v1/kv/tree/00000", "newest")
	c.Send("DELETE", "/v1/kv/tree/0?recurse", "").Is(t, 200, "true", "10,000 keys go in one step").With(t, "X-Rollcall-Parts", "")
	_, err = c.Kv.Apply(t.Context(), set...)
	expect.OKf(t, err, "set again")
	c.Kv.After = func() { c.Kv.Revoked = true }
	expect.Equal(t, c.Send("DELETE", "/v1/kv/tree?recurse", "").Status, 403, "by a token that is revoked meanwhile:")
	c.Kv.Revoked = false
	index := c.Kv.State.View().Index()
	c.Send("DELETE", "/v1/kv/tree?recurse", "").Is(t, 200, "true", "12,500 keys").With(t, "X-Rollcall-Parts", "4")
	expect.That(t, c.Kv.State.View().Index() == index+2501, "took %d indexes, want one for each key of the first steps and one for the rest", c.Kv.State.View().Index()-index)
	got := c.Send("GET", "/v1/kv/tree?keys", "")
	expect.Equal(t, got.Status, 404, "keys that are left:")

	const services = registry.MaxRemoved + 300
	for i := range services {
		body := fmt.Sprintf(`{"Node":"far","Address":"10.0.0.1","Service":{"Service":"s","ID":"s%d"}}`, i)
		c.Send("PUT", "/v1/catalog/register", body).Says(t, 200, "", "register")
	}
	c.Send("PUT", "/v1/catalog/deregister", `{"Node":"far"}`).Says(t, 200, "", "2,800 services").With(t, "X-Rollcall-Parts", "3")
	got = c.Send("GET", "/v1/catalog/node-services/far", "")
	expect.That(t, strings.Contains(got.Body, `"Node":null`), "left: %.200s", got.Body)
}
