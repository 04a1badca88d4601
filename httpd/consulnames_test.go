package httpd_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// Whatever names a node finds it by any spelling, and shows the first one.
func TestConsulNodesAreNamedWithoutCase(t *testing.T) {
	n := newCatalog(t)
	n.must(t, "PUT", "/v1/catalog/register", `{"Node":"Win-Host","Address":"10.9.0.1","Service":{"Service":"web","ID":"w1","Port":80},"Check":{"Name":"c","Status":"passing","Node":"win-HOST"}}`)
	for _, target := range []string{"/v1/catalog/node/%s", "/v1/catalog/node-services/%s", "/v1/health/node/%s", "/v1/catalog/node/%s?index=1&wait=1ms"} {
		want := n.must(t, "GET", fmt.Sprintf(target, "Win-Host"), "")
		got := n.must(t, "GET", fmt.Sprintf(target, "win-host"), "")
		expect.That(t, strings.Contains(want.body, `"Node":"Win-Host"`) && got.body == want.body && got.header.Get("X-Consul-Index") == want.header.Get("X-Consul-Index"),
			"GET %s: got %s, want %s", target, got.body, want.body)
	}
	names := func() (all []string) {
		for _, node := range read[[]*api.Node](t, n, "/v1/catalog/nodes") {
			all = append(all, node.Node+" "+node.Address)
		}
		return all
	}
	n.must(t, "PUT", "/v1/catalog/register", `{"Node":"win-host","Address":"10.9.0.2","Service":{"Service":"web","ID":"w1","Port":81},"Checks":[{"Node":"WIN-HOST","Name":"c","Status":"critical"}]}`)
	services := read[[]*api.CatalogService](t, n, "/v1/catalog/service/web")
	need.That(t, fmt.Sprint(names()) == "[Win-Host 10.9.0.2 rollcall 10.1.0.1]" && len(services) == 1 && services[0].ServicePort == 81, "after a registration by another spelling: %v, %+v", names(), services)
	checks := read[api.HealthChecks](t, n, "/v1/health/node/WIN-host")
	expect.That(t, len(checks) == 1 && checks[0].Status == "critical", "its checks are %+v", checks)
	n.must(t, "PUT", "/v1/catalog/register", `{"Node":"WIN-HOST","SkipNodeUpdate":true,"Check":{"Name":"d","Status":"passing","ServiceID":"w1"}}`)
	n.must(t, "PUT", "/v1/catalog/deregister", `{"Node":"wIN-host","CheckID":"c"}`)
	checks = read[api.HealthChecks](t, n, "/v1/health/node/Win-Host")
	expect.That(t, len(checks) == 1 && checks[0].CheckID == "d", "its checks are %+v", checks)

	// An agent is a node, too: the heartbeats of one that is named otherwise are its own.
	n.must(t, "PUT", "/agent/Web-7/v1/agent/service/register", `{"Name":"api","Check":{"TTL":"10s"}}`)
	n.must(t, "PUT", "/agent/web-7/v1/agent/check/pass/service:api", "")
	n.must(t, "PUT", "/agent/WEB-7/v1/agent/check/register", `{"Name":"e","TTL":"10s","ServiceID":"api"}`)
	own := read[map[string]*api.AgentCheck](t, n, "/agent/wEB-7/v1/agent/checks")
	expect.That(t, len(own) == 2 && own["service:api"].Status == "passing", "the agent's checks are %+v", own)

	n.must(t, "PUT", "/v1/catalog/deregister", `{"Node":"WEB-7"}`)
	n.must(t, "PUT", "/v1/catalog/deregister", `{"Node":"win-host"}`)
	expect.Equal(t, fmt.Sprint(names()), "[rollcall 10.1.0.1]", "the nodes after all were deregistered are")
	n.must(t, "PUT", "/v1/catalog/register", `{"Node":"ROLLCALL","Address":"10.9.0.1","NodeMeta":{"rack":"7"}}`)
	expect.Equal(t, fmt.Sprint(names()), "[rollcall 10.1.0.1]", "the logical node by another spelling:")
}

// A node's ID stays with it under another name, as with Consul, and must be a UUID.
func TestConsulNodeIsRenamedByItsID(t *testing.T) {
	n := newCatalog(t)
	const id, other = "a3b1f0c2-0000-4000-8000-00000000000a", "b3b1f0c2-0000-4000-8000-00000000000b"
	register := func(node, id string) string {
		return fmt.Sprintf(`{"Node":%q,"ID":%q,"Address":"10.9.0.1","Service":{"Service":"web","ID":"w1","Port":80}}`, node, id)
	}
	for id, want := range map[string]string{
		"7": "Bad node ID: uuid string is wrong length", "a3b1f0c2-0000-4000-8000-00000000000g": "Bad node ID: encoding/hex: invalid byte: U+0067 'g'",
		"a3b1f0c200000-4000-8000-00000000000a": "Bad node ID: uuid is improperly formatted",
	} {
		n.call(t, "PUT", "/v1/catalog/register", register("a", id)).is(t, 500, want, "the ID %s", id)
	}
	names := func() (all []string) {
		for _, node := range read[[]*api.Node](t, n, "/v1/catalog/nodes") {
			if node.Node != consul.NodeName {
				all = append(all, node.Node)
			}
		}
		return all
	}
	n.must(t, "PUT", "/v1/catalog/register", register("old", id))
	n.must(t, "PUT", "/v1/catalog/register", `{"Node":"old","Address":"10.9.0.1","SkipNodeUpdate":true,"Service":{"Service":"gone"}}`)
	n.must(t, "PUT", "/v1/catalog/register", register("new", strings.ToUpper(id)))
	services := read[[]*api.CatalogService](t, n, "/v1/catalog/service/web")
	expect.That(t, fmt.Sprint(names()) == "[new]" && len(services) == 1 && services[0].Node == "new", "after the renaming: %v, %+v", names(), services)
	expect.Equal(t, len(read[[]*api.CatalogService](t, n, "/v1/catalog/service/gone")), 0, "services that were left on the old node:")
	n.must(t, "PUT", "/v1/catalog/register", register("NEW", id))
	expect.Equal(t, fmt.Sprint(names()), "[new]", "after a registration by another spelling:")
	n.must(t, "PUT", "/v1/catalog/register", register("second", other))
	expect.Equal(t, fmt.Sprint(names()), "[new second]", "with another ID:")

	// The name of an agent's node, which lives, is not taken by what has another ID.
	n.must(t, "PUT", "/agent/web-7/v1/agent/service/register", `{"Name":"api"}`)
	n.must(t, "PUT", "/v1/catalog/register", `{"Node":"web-7","ID":"c3b1f0c2-0000-4000-8000-00000000000c","Address":"10.9.0.7"}`)
	n.call(t, "PUT", "/v1/catalog/register", register("web-7", id)).is(t, 500, `Error while renaming Node ID: "`+id+`": Node name web-7 is reserved by node c3b1f0c2-0000-4000-8000-00000000000c with name web-7 (10.9.0.7)`, "a name that is taken")
	expect.Equal(t, fmt.Sprint(names()), "[new second web-7]", "after the refusal:")
}
