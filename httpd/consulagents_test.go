package httpd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// newAgents is a node where each address from which calls come has an agent.
func newAgents(t testing.TB) *node {
	t.Helper()
	config, catalog := catalogConfig()
	config.Agents = httpd.AgentsBySource
	n := newNode(t, config, nil)
	catalog.memory = n.Memory
	return n
}

// agentClient is the official client of an agent: a name, by the address of the server, or an address, from which the
// calls then come.
func agentClient(t testing.TB, n *node, agent string) *api.Client {
	t.Helper()
	config := api.DefaultConfig()
	config.Address = "http://" + n.addr + "/agent/" + agent
	if ip := net.ParseIP(agent); ip != nil {
		config.Address = n.addr
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: ip}}
		config.Transport = &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, address)
		}}
		t.Cleanup(config.Transport.CloseIdleConnections)
	}
	return need.Got(api.NewClient(config))(t)
}

// listed are the services of a name that are passing, as node/id@address.
func listed(t testing.TB, c *api.Client, name string) []string {
	t.Helper()
	entries, _, err := c.Health().Service(name, "", true, nil)
	need.OK(t, err)
	var all []string
	for _, e := range entries {
		all = append(all, fmt.Sprintf("%s/%s@%s", e.Node.Node, e.Service.ID, e.Node.Address))
	}
	return all
}

// serviceIDs are those that an agent has.
func serviceIDs(t testing.TB, c *api.Client) []string {
	t.Helper()
	services, err := c.Agent().Services()
	need.OK(t, err)
	return slices.Sorted(maps.Keys(services))
}

// TestConsulAgentsOfTwoHostsHaveIDsOfTheirOwn is what stock programs on two hosts do: the same id, the same port. One of
// the hosts leaves, and the other one stays.
func TestConsulAgentsOfTwoHostsHaveIDsOfTheirOwn(t *testing.T) {
	for _, row := range []struct{ one, other, address string }{
		{"127.0.0.2", "127.0.0.3", "127.0.0.2"},
		{"web-1", "web-2", "127.0.0.1"},
		{"127.0.0.2", "web-2", "127.0.0.2"},
	} {
		t.Run(row.one+" and "+row.other, func(t *testing.T) {
			n := newAgents(t)
			one, other := agentClient(t, n, row.one), agentClient(t, n, row.other)
			for _, c := range []*api.Client{one, other} {
				ok(t, c.Agent().ServiceRegister(&api.AgentServiceRegistration{
					Name: "orders", ID: "orders-8080", Port: 8080, Check: &api.AgentServiceCheck{CheckID: "alive", TTL: "1h", Status: "passing"},
				}))
			}
			all := listed(t, one, "orders")
			expect.That(t, len(all) == 2 && all[0] == row.one+"/orders-8080@"+row.address, "listed are %v", all)
			ok(t, one.Agent().FailTTL("alive", "broken"))
			expect.Equal(t, len(listed(t, one, "orders")), 1, "passing, after the check of one turned critical:")
			health, _, err := other.Agent().AgentHealthServiceByName("orders")
			expect.That(t, err == nil && health == api.HealthPassing, "the name on the other host is %s (%v)", health, err)
			ok(t, one.Agent().PassTTL("alive", ""))
			services, err := other.Agent().Services()
			expect.That(t, err == nil && len(services) == 1, "an agent lists %v (%v), want its own service", services, err)
			checks, err := other.Agent().Checks()
			expect.That(t, err == nil && len(checks) == 1 && checks["alive"] != nil && checks["alive"].Node == row.other, "an agent lists the checks %v (%v)", checks, err)
			ok(t, one.Agent().CheckDeregister("alive"))
			leftTwice := func(when string) { // what one has lost is not taken from the other
				t.Helper()
				err := one.Agent().CheckDeregister("alive")
				expect.That(t, err != nil && strings.Contains(err.Error(), "404"), "%s: its check was deregistered once more: %v", when, err)
				checks, err := other.Agent().Checks()
				expect.That(t, err == nil && len(checks) == 1, "%s: the checks of the other agent are %v (%v)", when, checks, err)
			}
			leftTwice("with its service there")
			ok(t, one.Agent().ServiceDeregister("orders-8080"))
			leftTwice("with its service gone")
			all = listed(t, one, "orders")
			expect.That(t, len(all) == 1 && strings.HasPrefix(all[0], row.other+"/"), "listed after one left: %v", all)
			err = one.Agent().PassTTL("alive", "")
			expect.That(t, err != nil && strings.Contains(err.Error(), fmt.Sprintf("Agent %q has a check of that ID, and this call is for agent %q", row.other, row.one)),
				"a heartbeat of what left: %v", err)
			err = one.Agent().ServiceDeregister("orders-8080") // a program that leaves twice does not take its namesake along
			expect.That(t, err != nil && strings.Contains(err.Error(), "404"), "it left twice: %v", err)
			expect.Equal(t, len(listed(t, other, "orders")), 1, "listed after one left twice:")
		})
	}
}

func TestConsulAgentIsItsNodeForThoseWhoAskIt(t *testing.T) {
	n := newAgents(t)
	c := agentClient(t, n, "web-1")
	for _, registered := range []bool{false, true} {
		if registered {
			ok(t, c.Agent().ServiceRegister(&api.AgentServiceRegistration{Name: "web"}))
		}
		self, err := c.Agent().Self()
		ok(t, err)
		name, id := self["Config"]["NodeName"], self["Config"]["NodeID"]
		info, _, err := c.Catalog().Node("web-1", nil)
		ok(t, err)
		expect.That(t, name == "web-1" && info != nil && info.Node.ID == id && info.Node.Address == "127.0.0.1" && info.Node.TaggedAddresses["lan_ipv4"] == "127.0.0.1" && info.Node.Meta["consul-version"] != "" && (len(info.Services) == 1) == registered, "registered %v: the agent is %v %v, its node %+v", registered, name, id, info)
		checks, _, err := c.Health().Node("web-1", nil)
		expect.That(t, err == nil && len(checks) == 1 && checks[0].CheckID == "serfHealth" && checks[0].Status == "passing" && checks[0].Node == "web-1",
			"registered %v: the checks of its node are %+v (%v)", registered, checks, err)
		nodes, _, err := c.Catalog().Nodes(nil)
		ok(t, err)
		expect.Equal(t, len(nodes) == 2, registered, "registered %v: it is in the catalog's nodes %v:", registered, nodes)
	}
	ok(t, c.Agent().ServiceDeregister("web"))
	nodes, _, err := c.Catalog().Nodes(nil)
	expect.That(t, err == nil && len(nodes) == 1, "with nothing on the agent the nodes are %+v (%v)", nodes, err)
}

// TestConsulAgentMaintenanceTakesOneHostOut: Eureka's instances and the services of other hosts stay.
func TestConsulAgentMaintenanceTakesOneHostOut(t *testing.T) {
	n := newAgents(t)
	one, other := agentClient(t, n, "127.0.0.2"), agentClient(t, n, "127.0.0.3")
	n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "o1")})
	for _, c := range []*api.Client{one, other} {
		ok(t, c.Agent().ServiceRegister(&api.AgentServiceRegistration{Name: "web", Port: 80}))
	}
	n.must(t, "PUT", "/agent/127.0.0.2/v1/agent/maintenance?enable=true&reason=kernel", "") // an operator's, from elsewhere
	all := listed(t, one, "web")
	expect.That(t, len(all) == 1 && strings.HasPrefix(all[0], "127.0.0.3/"), "in maintenance of one host are listed %v", all)
	expect.Equal(t, len(listed(t, one, "orders")), 1, "Eureka's instances in maintenance of one host:")
	ok(t, one.Agent().DisableNodeMaintenance())
	expect.Slice(t, listed(t, one, "web"), []string{"127.0.0.2/web@127.0.0.2", "127.0.0.3/web@127.0.0.3"}, "after the maintenance:")
	// A host without services is in maintenance, too: what is registered meanwhile is.
	idle := agentClient(t, n, "127.0.0.4")
	ok(t, idle.Agent().EnableNodeMaintenance("kernel"))
	ok(t, idle.Agent().ServiceRegister(&api.AgentServiceRegistration{Name: "web", Port: 80}))
	expect.Equal(t, len(listed(t, one, "web")), 2, "with a third one in maintenance:")
}

func TestConsulAgentsServicesAreRemovedAndMaintainedFromElsewhereWhereTheIDIsUnique(t *testing.T) {
	n := newAgents(t)
	operator := agentClient(t, n, "127.0.0.9").Agent()
	for _, agent := range []string{"web-1", "web-2"} {
		c := agentClient(t, n, agent).Agent()
		ok(t, c.ServiceRegister(&api.AgentServiceRegistration{Name: "web", ID: "same", Check: &api.AgentServiceCheck{CheckID: "alive", TTL: "1h"}}))
		ok(t, c.ServiceRegister(&api.AgentServiceRegistration{Name: "pay", ID: "only-" + agent, Check: &api.AgentServiceCheck{CheckID: "only-" + agent, TTL: "1h", Status: "passing"}}))
	}
	const both = `409 (%s is that of agent "web-1" and of agent "web-2"; name the one that is meant in front of the path: /agent/web-1/v1/...)`
	for _, row := range []struct {
		what string
		err  error
	}{
		{`Service ID "same"`, operator.ServiceDeregister("same")},
		{`Service ID "same"`, operator.EnableServiceMaintenance("same", "")},
		{`Check ID "alive"`, operator.CheckDeregister("alive")},
	} {
		want := fmt.Sprintf(both, row.what)
		expect.That(t, row.err != nil && strings.Contains(row.err.Error(), want), "got %v, want %s", row.err, want)
	}
	pay := agentClient(t, n, "web-1")
	ok(t, operator.EnableServiceMaintenance("only-web-1", "disk"))
	expect.Equal(t, len(listed(t, pay, "pay")), 1, "passing, with one in maintenance:")
	ok(t, operator.DisableServiceMaintenance("only-web-1"))
	expect.Equal(t, len(listed(t, pay, "pay")), 2, "passing, after the maintenance:")
	ok(t, operator.CheckDeregister("only-web-1"))
	ok(t, operator.ServiceDeregister("only-web-2"))
	all := listed(t, pay, "pay")
	expect.That(t, len(all) == 1 && strings.HasPrefix(all[0], "web-1/"), "left are %v", all)
	expect.Slice(t, serviceIDs(t, agentClient(t, n, "web-2")), []string{"same"}, "the other agent has")
}

// A program that leaves late, or twice, must not take its namesake on another host along.
func TestConsulAgentThatLeavesTwiceTakesNothingElsewhere(t *testing.T) {
	n := newAgents(t)
	first, second := agentClient(t, n, "web-1").Agent(), agentClient(t, n, "web-2").Agent()
	ok(t, first.ServiceRegister(&api.AgentServiceRegistration{Name: "pay", ID: "x"}))
	ok(t, first.ServiceRegister(&api.AgentServiceRegistration{Name: "pay", ID: "y"}))
	for _, id := range []string{"x", "y"} {
		ok(t, second.ServiceRegister(&api.AgentServiceRegistration{Name: "mail", ID: id, Check: &api.AgentServiceCheck{CheckID: "alive-" + id, TTL: "1h", Status: "passing"}}))
	}
	ok(t, second.CheckRegister(&api.AgentCheckRegistration{ID: "disk", Name: "disk", AgentServiceCheck: api.AgentServiceCheck{TTL: "1h", Status: "passing"}}))
	ok(t, first.ServiceDeregister("x"))
	for _, row := range []struct {
		what string
		err  error
	}{
		{"a service that the agent had", first.ServiceDeregister("x")},
		{"a check of a service that it had", first.CheckDeregister("alive-x")},
		{"a check of a service that it has", first.CheckDeregister("alive-y")},
		{"a check of the other node itself", first.CheckDeregister("disk")},
	} {
		expect.That(t, row.err != nil && strings.Contains(row.err.Error(), "404"), "%s: got %v, want 404", row.what, row.err)
	}
	checks := need.Got(second.Checks())(t)
	expect.Equal(t, len(checks), 3, "checks of the other agent:")
	expect.Slice(t, serviceIDs(t, agentClient(t, n, "web-2")), []string{"x", "y"}, "the other agent has")
}

// TestConsulAgentBehindOneAddressRefusesAnIDOfAnotherHost: one address may stand for many hosts, a name does not.
func TestConsulAgentBehindOneAddressRefusesAnIDOfAnotherHost(t *testing.T) {
	n := newAgents(t)
	register := func(agent, address string) error {
		return agentClient(t, n, agent).Agent().ServiceRegister(&api.AgentServiceRegistration{Name: "orders", ID: "orders-8080", Address: address, Port: 8080})
	}
	ok(t, register("127.0.0.2", "10.0.0.2"))
	err := register("127.0.0.2", "10.0.0.3")
	expect.That(t, err != nil && strings.Contains(err.Error(), `409 (Service ID "orders-8080" of agent "127.0.0.2" is registered with the address "10.0.0.2" and is not replaced by one with the address "10.0.0.3"`),
		"another host behind the address: %v", err)
	ok(t, register("web-1", "10.0.0.2"))
	ok(t, register("web-1", "10.0.0.3"))
	expect.Equal(t, len(listed(t, agentClient(t, n, "web-1"), "orders")), 2, "listed:")
}

// TestConsulAgentRefusesAnIDThatIsAnotherAgentsForEurekasClients: they know a service by its node, a colon and its id.
func TestConsulAgentRefusesAnIDThatIsAnotherAgentsForEurekasClients(t *testing.T) {
	n := newAgents(t)
	ok(t, agentClient(t, n, "web").Agent().ServiceRegister(&api.AgentServiceRegistration{Name: "web", ID: "2:w"}))
	err := agentClient(t, n, "web:2").Agent().ServiceRegister(&api.AgentServiceRegistration{Name: "web", ID: "w"})
	const want = `409 (Service ID "w" of agent "web:2" is refused: clients of Eureka would know it as instance "web:2:w" of application "WEB", ` +
		`which is that of service ID "2:w" of agent "web"; give it an ID of its own)`
	expect.That(t, err != nil && strings.Contains(err.Error(), want), "got %v, want %s", err, want)
	expect.Slice(t, listed(t, agentClient(t, n, "web-1"), "web"), []string{"web/2:w@127.0.0.1"}, "listed:")
}

// TestConsulAgentTakesOverWhatItHadOnTheLogicalNode: when all agents were one, by setting or in an older version.
func TestConsulAgentTakesOverWhatItHadOnTheLogicalNode(t *testing.T) {
	n := newAgents(t)
	was, is := agentClient(t, n, "rollcall").Agent(), agentClient(t, n, "127.0.0.2").Agent()
	service := &api.AgentServiceRegistration{Name: "web", ID: "w", Address: "10.0.0.2", Port: 80, Check: &api.AgentServiceCheck{CheckID: "alive", TTL: "1h", Status: "passing"}}
	ok(t, was.ServiceRegister(service))
	ok(t, is.PassTTL("alive", "")) // it is not registered again yet
	other := *service
	other.Address, other.Check = "10.0.0.3", nil
	ok(t, agentClient(t, n, "127.0.0.3").Agent().ServiceRegister(&other)) // of another host, and takes nothing over
	expect.Equal(t, len(listed(t, agentClient(t, n, "127.0.0.2"), "web")), 2, "listed beside another host's:")
	ok(t, agentClient(t, n, "127.0.0.3").Agent().ServiceDeregister("w"))
	ok(t, is.ServiceRegister(service))
	expect.Slice(t, listed(t, agentClient(t, n, "127.0.0.2"), "web"), []string{"127.0.0.2/w@127.0.0.2"}, "listed:")
}

func TestConsulAgentsNodeKeepsWhatRegistrarsSaidOfIt(t *testing.T) {
	n := newAgents(t)
	c := agentClient(t, n, "web-1")
	_, err := c.Catalog().Register(&api.CatalogRegistration{Node: "web-1", Address: "10.0.0.1", NodeMeta: map[string]string{"rack": "7"}}, nil)
	ok(t, err)
	ok(t, c.Agent().ServiceRegister(&api.AgentServiceRegistration{Name: "web"}))
	nodes, _, err := c.Catalog().Nodes(&api.QueryOptions{NodeMeta: map[string]string{"rack": "7"}})
	ok(t, err)
	expect.That(t, len(nodes) == 1 && nodes[0].Address == "127.0.0.1" && nodes[0].Meta["consul-version"] != "", "the node is %+v", nodes)
	ok(t, c.Agent().ServiceDeregister("web"))
	info, _, err := agentClient(t, n, "web-2").Catalog().Node("web-1", nil)
	expect.That(t, err == nil && info != nil && info.Node.Meta["rack"] == "7", "without services the node is %+v (%v)", info, err)
}

func TestConsulSessionOnChecksIsOnTheAgentsNode(t *testing.T) {
	c := newCoordinated(t, httpd.Config{Agents: httpd.AgentsBySource})
	must := func(method, target, body string) reply {
		t.Helper()
		r := c.send(method, target, body)
		need.That(t, r.status == 200, "%s %s %s: %+v", method, target, body, r)
		return r
	}
	must("PUT", "/agent/web-1/v1/agent/service/register", `{"Name":"web","Check":{"CheckID":"alive","TTL":"1h","Status":"passing"}}`)
	for _, row := range []struct{ body, node string }{
		{``, "rollcall"},
		{`{"Node":"web-1"}`, "rollcall"}, // nothing on it is needed, and it may go
		{`{"NodeChecks":["serfHealth","alive"]}`, "web-1"},
		{`{"ServiceChecks":[{"ID":"alive"}]}`, "web-1"},
		{`{"Node":"web-1","Checks":["serfHealth","alive"]}`, "web-1"},
	} {
		var made struct{ ID string }
		need.OK(t, json.Unmarshal([]byte(must("PUT", "/agent/web-1/v1/session/create", row.body).body), &made))
		info := must("GET", "/v1/session/info/"+made.ID, "").body
		expect.That(t, strings.Contains(info, fmt.Sprintf(`"Node":%q`, row.node)), "%s: got %s, want node %s", row.body, info, row.node)
	}
	must("PUT", "/agent/web-1/v1/agent/service/deregister/web", "")
	sessions := must("GET", "/v1/session/list", "").body
	expect.Equal(t, strings.Count(sessions, `"ID"`), 2, "sessions after the check is gone: %s", sessions)
}

func TestConsulAgentsNameIsChecked(t *testing.T) {
	n := newAgents(t)
	long := strings.Repeat("a", 255)
	for _, row := range []struct {
		target string
		status int
		text   string
	}{
		{"/agent/" + long + "/v1/agent/services", 200, "{}"},
		{"/agent/" + long + "a/v1/agent/services", 400, `Invalid agent name "` + long + `a" in the path: it must be at most 255 bytes long`},
		{"/agent/a%2Fb/v1/agent/services", 400, `Invalid agent name "a/b" in the path: it must not have a slash`},
		{"/agent/a/b/v1/agent/services", 404, "an agent's name is one segment of the path, and a path of Consul's API follows it: /agent/a/v1/..."},
		{"/agent//v1/agent/services", 400, `Invalid agent name "" in the path: give one`},
		{"/agent/../v1/agent/services", 400, `Invalid agent name ".." in the path: it would mean a folder`},
		{"/agent/%00/v1/agent/services", 400, `Invalid agent name "\x00" in the path: it must be UTF-8 without control characters`},
		{"/agent/%FF/v1/agent/services", 400, `Invalid agent name "\xff" in the path: it must be UTF-8 without control characters`},
		{"/agent/web-7", 404, "an agent's name is one segment of the path, and a path of Consul's API follows it: /agent/web-7/v1/..."},
		{"/agent/web-7/eureka/apps", 404, "an agent's name is one segment of the path, and a path of Consul's API follows it: /agent/web-7/v1/..."},
	} {
		n.call(t, "GET", row.target, "").is(t, row.status, row.text, "%s", row.target)
	}
	got := n.call(t, "PUT", "/agent/"+long+"/v1/agent/service/register", `{"Name":"web"}`)
	expect.That(t, got.status == 400 && strings.HasPrefix(got.body, `Invalid service id "web" on node`), "a service of the longest agent: got %d %s", got.status, got.body)
}

// TestConsulAgentOnTheServersHostIsNamedAfterIt: a program may ask the server on its host by loopback, and the next one by
// the network.
func TestConsulAgentOnTheServersHostIsNamedAfterIt(t *testing.T) {
	for _, row := range []struct{ host, source, agent string }{
		{"10.1.0.1", "127.0.0.1:5000", "10.1.0.1"},
		{"10.1.0.1", "[::1]:5000", "10.1.0.1"},
		{"10.1.0.1", "10.1.0.7:5000", "10.1.0.7"},
		{"10.1.0.1", "[::ffff:10.1.0.7]:5000", "10.1.0.7"},
		{"10.1.0.1", "[fe80::1%eth0]:5000", "fe80::1"},
		{"", "127.0.0.2:5000", "127.0.0.2"},
		{"", "[::1]:5000", "127.0.0.1"},
	} {
		c := newCoordinated(t, httpd.Config{Agents: httpd.AgentsBySource, Host: row.host})
		var self struct{ Config struct{ NodeName string } }
		need.OK(t, json.Unmarshal([]byte(c.sendFrom(row.source, "GET", "/v1/agent/self", "").body), &self))
		expect.Equal(t, self.Config.NodeName, row.agent, "agent of %s at %q:", row.source, row.host)
	}
}
