package consul_test

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
	"time"

	"github.com/hashicorp/consul/api"
	"golang.org/x/mod/semver"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/httpd/httpdtest"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

// newAgents starts a node where each source address of calls has an agent.
func newAgents(t testing.TB) *httpdtest.Node {
	t.Helper()
	config, catalog := httpdtest.CatalogConfig()
	config.Agents = consul.AgentsBySource
	n := httpdtest.NewNode(t, config, nil)
	catalog.Memory = n.Memory
	return n
}

// agentClient returns the official client of an agent: a name, which goes into the server's address, or an address,
// which the calls then come from.
func agentClient(t testing.TB, n *httpdtest.Node, agent string) *api.Client {
	t.Helper()
	config := api.DefaultConfig()
	config.Address = "http://" + n.Addr + "/agent/" + agent
	if ip := net.ParseIP(agent); ip != nil {
		config.Address = n.Addr
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: ip}}
		config.Transport = &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, address)
		}}
		t.Cleanup(config.Transport.CloseIdleConnections)
	}
	return need.Got(api.NewClient(config))(t)
}

// listed returns the passing services of a name, as node/id@address.
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

// serviceIDs returns the ids of an agent's services.
func serviceIDs(t testing.TB, c *api.Client) []string {
	t.Helper()
	return slices.Sorted(maps.Keys(need.Got(c.Agent().Services())(t)))
}

// TestConsulAgentsOfTwoHostsHaveIDsOfTheirOwn plays stock programs on two hosts with the same id and the same port.
// One of the hosts leaves, and the other one stays.
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
			leftTwice := func(when string) { // an id that one host has lost is not taken from the other
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
			// a program that leaves twice does not take its namesake along
			err = one.Agent().ServiceDeregister("orders-8080")
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
		self := need.Got(c.Agent().Self())(t)
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

// TestConsulAgentMaintenanceTakesOneHostOut checks that Eureka's instances and the services of other hosts stay.
func TestConsulAgentMaintenanceTakesOneHostOut(t *testing.T) {
	n := newAgents(t)
	one, other := agentClient(t, n, "127.0.0.2"), agentClient(t, n, "127.0.0.3")
	n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "o1")})
	for _, c := range []*api.Client{one, other} {
		ok(t, c.Agent().ServiceRegister(&api.AgentServiceRegistration{Name: "web", Port: 80}))
	}
	// by an operator, from elsewhere
	n.Must(t, "PUT", "/agent/127.0.0.2/v1/agent/maintenance?enable=true&reason=kernel", "")
	all := listed(t, one, "web")
	expect.That(t, len(all) == 1 && strings.HasPrefix(all[0], "127.0.0.3/"), "in maintenance of one host are listed %v", all)
	expect.Equal(t, len(listed(t, one, "orders")), 1, "Eureka's instances in maintenance of one host:")
	ok(t, one.Agent().DisableNodeMaintenance())
	expect.Slice(t, listed(t, one, "web"), []string{"127.0.0.2/web@127.0.0.2", "127.0.0.3/web@127.0.0.3"}, "after the maintenance:")
	// A host without services goes into maintenance, too: services registered there meanwhile are in maintenance as
	// well.
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
	const both = `409 (%s exists at agent "web-1" and at agent "web-2"; put the one that is meant in front of the path: /agent/web-1/v1/...)`
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
	expect.Equal(t, len(need.Got(second.Checks())(t)), 3, "checks of the other agent:")
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

// TestConsulAgentRefusesAnIDThatIsAnotherAgentsForEurekasClients: these know a service by its node, a colon and its
// id.
func TestConsulAgentRefusesAnIDThatIsAnotherAgentsForEurekasClients(t *testing.T) {
	n := newAgents(t)
	ok(t, agentClient(t, n, "web").Agent().ServiceRegister(&api.AgentServiceRegistration{Name: "web", ID: "2:w"}))
	err := agentClient(t, n, "web:2").Agent().ServiceRegister(&api.AgentServiceRegistration{Name: "web", ID: "w"})
	const want = `409 (Service ID "w" of agent "web:2" is refused: clients of Eureka would know it as instance "web:2:w" of application "WEB", ` +
		`which is service ID "2:w" of agent "web"; give it an ID of its own)`
	expect.That(t, err != nil && strings.Contains(err.Error(), want), "got %v, want %s", err, want)
	expect.Slice(t, listed(t, agentClient(t, n, "web-1"), "web"), []string{"web/2:w@127.0.0.1"}, "listed:")
}

// TestConsulAgentTakesOverWhatItHadOnTheLogicalNode covers services from when all agents were one, by setting or in an
// older version.
func TestConsulAgentTakesOverWhatItHadOnTheLogicalNode(t *testing.T) {
	n := newAgents(t)
	was, is := agentClient(t, n, "rollcall").Agent(), agentClient(t, n, "127.0.0.2").Agent()
	service := &api.AgentServiceRegistration{Name: "web", ID: "w", Address: "10.0.0.2", Port: 80, Check: &api.AgentServiceCheck{CheckID: "alive", TTL: "1h", Status: "passing"}}
	ok(t, was.ServiceRegister(service))
	ok(t, is.PassTTL("alive", "")) // not registered again yet
	other := *service
	other.Address, other.Check = "10.0.0.3", nil
	ok(t, agentClient(t, n, "127.0.0.3").Agent().ServiceRegister(&other)) // another host's, which takes nothing over
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
	c := httpdtest.NewCoordinated(t, httpd.Config{Agents: consul.AgentsBySource})
	must := func(method, target, body string) httpdtest.Reply {
		t.Helper()
		r := c.Send(method, target, body)
		need.That(t, r.Status == 200, "%s %s %s: %+v", method, target, body, r)
		return r
	}
	must("PUT", "/agent/web-1/v1/agent/service/register", `{"Name":"web","Check":{"CheckID":"alive","TTL":"1h","Status":"passing"}}`)
	for _, row := range []struct{ body, node string }{
		{``, "rollcall"},
		{`{"Node":"web-1"}`, "rollcall"}, // nothing on it is needed, so it may go
		{`{"NodeChecks":["serfHealth","alive"]}`, "web-1"},
		{`{"ServiceChecks":[{"ID":"alive"}]}`, "web-1"},
		{`{"Node":"web-1","Checks":["serfHealth","alive"]}`, "web-1"},
	} {
		var made struct{ ID string }
		need.OK(t, json.Unmarshal([]byte(must("PUT", "/agent/web-1/v1/session/create", row.body).Body), &made))
		info := must("GET", "/v1/session/info/"+made.ID, "").Body
		expect.That(t, strings.Contains(info, fmt.Sprintf(`"Node":%q`, row.node)), "%s: got %s, want node %s", row.body, info, row.node)
	}
	must("PUT", "/agent/web-1/v1/agent/service/deregister/web", "")
	sessions := must("GET", "/v1/session/list", "").Body
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
		n.Call(t, "GET", row.target, "").Is(t, row.status, row.text, "%s", row.target)
	}
	got := n.Call(t, "PUT", "/agent/"+long+"/v1/agent/service/register", `{"Name":"web"}`)
	expect.That(t, got.Status == 400 && strings.HasPrefix(got.Body, `Invalid service id "web" on node`), "a service of the longest agent: got %d %s", got.Status, got.Body)
}

// TestConsulAgentOnTheServersHostIsNamedAfterIt: a program may ask the server on its host over loopback, and the next
// one over the network.
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
		c := httpdtest.NewCoordinated(t, httpd.Config{Agents: consul.AgentsBySource, Host: row.host})
		var self struct{ Config struct{ NodeName string } }
		need.OK(t, json.Unmarshal([]byte(c.SendFrom(row.source, "GET", "/v1/agent/self", "").Body), &self))
		expect.Equal(t, self.Config.NodeName, row.agent, "agent of %s at %q:", row.source, row.host)
	}
}

// newClient returns Consul's official client for a node.
func newClient(t testing.TB, n *httpdtest.Node) *api.Client {
	t.Helper()
	return need.Got(api.NewClient(&api.Config{Address: n.Addr}))(t)
}

// ok fails the test if a call of the client failed.
func ok(t testing.TB, err error) {
	t.Helper()
	need.OK(t, err)
}

func TestConsulAgentHealthOfANameIsThatOfItsWorstService(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	agent := newClient(t, n).Agent()
	for _, id := range []string{"a", "b"} {
		ok(t, agent.ServiceRegister(&api.AgentServiceRegistration{ID: id, Name: "web", Check: &api.AgentServiceCheck{TTL: "15s", Status: "passing"}}))
	}
	for _, row := range []struct {
		name string
		act  func() error
		want string
		code int
	}{
		{"both pass", func() error { return nil }, "passing", 200},
		{"one warns", func() error { return agent.WarnTTL("service:b", "") }, "warning", 429},
		{"one fails", func() error { return agent.FailTTL("service:a", "") }, "critical", 503},
		{"one is maintained", func() error { return agent.EnableServiceMaintenance("b", "") }, "maintenance", 503},
	} {
		ok(t, row.act())
		n.Call(t, "GET", "/v1/agent/health/service/name/web?format=text", "").Is(t, row.code, row.want, "%s", row.name).With(t, "Content-Type", "text/plain").With(t, "X-Consul-Reason", row.want)
	}
	for target, want := range map[string]string{
		"/v1/agent/health/service/name/none":             "[]",
		"/v1/agent/health/service/name/consul":           "[]",
		"/v1/agent/health/service/id/none":               `{"AggregatedStatus":"critical","Service":null,"Checks":null}`,
		"/v1/agent/health/service/id/none?format=text":   "ServiceId none not found",
		"/v1/agent/health/service/name/none?format=text": "ServiceName none Not Found",
	} {
		n.Call(t, "GET", target, "").Is(t, 404, want, "GET %s", target)
	}
}

func TestConsulAgentGivesChecksTheIDsThatClientsExpect(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	for _, row := range []struct{ name, body, ids string }{
		{"none", `{"Name":"x"}`, ""},
		{"empty", `{"Name":"x","Check":{},"Checks":[]}`, ""},
		{"one", `{"Name":"x","Check":{"TTL":"1s"}}`, "service:x"},
		{"one in a list", `{"Name":"x","Checks":[{"TTL":"1s"}]}`, "service:x"},
		{"two", `{"Name":"x","ID":"y","Check":{"TTL":"1s"},"Checks":[{"TTL":"2s"}]}`, "service:y:1 service:y:2"},
		{"named", `{"Name":"x","Checks":[{"CheckID":"mine","TTL":"1s"},{"TCP":"h:1","Interval":"10s"}]}`, "mine service:x:2"},
		{"null", `{"Name":"x","Check":null,"Checks":null}`, ""},
	} {
		n.Must(t, "PUT", "/v1/agent/service/register", row.body)
		got := slices.Sorted(maps.Keys(httpdtest.Read[map[string]any](t, n, "/v1/agent/checks")))
		expect.That(t, strings.Join(got, " ") == row.ids, "%s: the checks are %q, want %q", row.name, got, row.ids)
		for id := range httpdtest.Read[map[string]any](t, n, "/v1/agent/services") {
			n.Must(t, "PUT", "/v1/agent/service/deregister/"+id, "")
		}
	}
}

func TestConsulAgentKeepsTheStateOfChecksWhenAServiceRegistersAgain(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	const register = "/v1/agent/service/register"
	n.Must(t, "PUT", register, `{"Name":"web","Checks":[{"CheckID":"a","TTL":"10s"},{"CheckID":"b","TTL":"10s"}]}`)
	n.Must(t, "PUT", "/v1/agent/check/pass/a?note=well", "")
	for _, row := range []struct{ name, target, body, checks string }{
		{"a check is not mentioned", register, `{"Name":"web","Check":{"CheckID":"a","TTL":"20s"}}`, "a passing well, b critical "},
		{"checks are replaced", register + "?replace-existing-checks", `{"Name":"web","Check":{"CheckID":"a","TTL":"20s"}}`, "a passing well"},
		{"a check is registered again", "/v1/agent/check/register", `{"ID":"a","Name":"a","TTL":"30s","ServiceID":"web"}`, "a passing well"},
		{"a check is registered with a state", "/v1/agent/check/register", `{"ID":"a","Name":"a","TTL":"30s","ServiceID":"web","Status":"warning"}`, "a passing well"},
		{"a new check is registered with a state", "/v1/agent/check/register", `{"ID":"c","Name":"c","TTL":"30s","ServiceID":"web","Status":"warning"}`, "a passing well, c warning "},
	} {
		n.Must(t, "PUT", row.target, row.body)
		expect.Equal(t, n.Checks(t, "web", "web"), row.checks, "%s: checks are", row.name)
	}
}

// A check of a service says how long it may be critical, or has the server's time; a node's check reaps nothing.
func TestConsulAgentReapsServicesAsTheOperatorHasSet(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{ReapCritical: 72 * time.Hour})
	for _, request := range []struct{ path, body string }{
		{"/v1/agent/service/register", `{"Name":"web","Checks":[{"CheckID":"a","TTL":"10s"},{"CheckID":"b","TTL":"10s","DeregisterCriticalServiceAfter":"2m"}]}`},
		{"/v1/agent/check/register", `{"ID":"c","Name":"c","ServiceID":"web","TTL":"10s"}`},
		{"/v1/agent/check/register", `{"ID":"node","Name":"n","TTL":"10s"}`},
	} {
		r := c.Send("PUT", request.path, request.body)
		need.That(t, r.Status == 200, "%s: %+v", request.path, r)
	}
	for id, want := range map[string]time.Duration{"a": 72 * time.Hour, "b": 2 * time.Minute, "c": 72 * time.Hour, "node": 0} {
		check, ok := c.Newest().CheckOn("", id)
		expect.That(t, ok && check.ReapAfter == want.Milliseconds(), "check %s: %+v, want it reaped after %v", id, check, want)
	}
}

func TestConsulAgentReapsNoServiceByDefault(t *testing.T) {
	c := httpdtest.NewCoordinated(t, setting.Default[httpd.Config]())
	r := c.Send("PUT", "/v1/agent/service/register", `{"Name":"web","Check":{"CheckID":"a","TTL":"10s"}}`)
	need.That(t, r.Status == 200, "%+v", r)
	check, ok := c.Newest().CheckOn("192.0.2.1", "a") // of the agent for httptest's client
	expect.That(t, ok && check.ReapAfter == 0, "check %+v, want it never reaped", check)
}

func TestConsulAgentLeavesProbesToTheProber(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	n.Must(t, "PUT", "/v1/agent/service/register", `{"Name":"web","Checks":[
		{"CheckID":"h","HTTP":"https://h/health","Method":"POST","Body":"hi","Header":{"B":["2","3"],"A":["1"]},"TLSSkipVerify":true,"DisableRedirects":true,"Interval":"10ms","SuccessBeforePassing":2,"FailuresBeforeCritical":3},
		{"CheckID":"t","TCP":"h:1","Interval":"30s","Timeout":"5s","FailuresBeforeWarning":1,"FailuresBeforeCritical":3},
		{"CheckID":"tls","TCP":"h:1","tcp_use_tls":true,"TLSServerName":"db","Interval":"1m"},
		{"CheckID":"u","UDP":"h:1","Interval":"1m","TCPUseTLS":true},
		{"CheckID":"g","GRPC":"h:1/orders","GRPCUseTLS":true,"TLSSkipVerify":true,"Interval":"1m"},
		{"CheckID":"clear","GRPC":"h:1","H2PingUseTLS":true,"Interval":"1m"},
		{"CheckID":"2","H2PING":"h:1","Interval":"1m"},
		{"CheckID":"2clear","H2PING":"h:1","h2ping_use_tls":false,"Interval":"1m"}]}`)
	var got []string
	for _, id := range []string{"h", "t", "tls", "u", "g", "clear", "2", "2clear"} {
		c, _ := n.Newest().CheckOn("", id)
		got = append(got, fmt.Sprintf("%s %v %+v", c.Type, c.TTL, *c.Probe))
	}
	want := []string{
		"http 0 {HTTP:https://h/health Method:POST Body:hi Header:[{Key:A Value:1} {Key:B Value:2} {Key:B Value:3}] SkipVerify:true NoRedirects:true TCP: Interval:10 Timeout:0 SuccessBeforePassing:2 FailuresBeforeWarning:3 FailuresBeforeCritical:3 GRPC: UDP: H2PING: UseTLS:false ServerName: By: From:}",
		"tcp 0 {HTTP: Method: Body: Header:[] SkipVerify:false NoRedirects:false TCP:h:1 Interval:30000 Timeout:5000 SuccessBeforePassing:0 FailuresBeforeWarning:1 FailuresBeforeCritical:3 GRPC: UDP: H2PING: UseTLS:false ServerName: By: From:}",
		"tcp 0 " + minutely("TCP:h:1", "GRPC: UDP: H2PING: UseTLS:true ServerName:db"),
		"udp 0 " + minutely("TCP:", "GRPC: UDP:h:1 H2PING: UseTLS:false ServerName:"),
		"grpc 0 " + strings.Replace(minutely("TCP:", "GRPC:h:1/orders UDP: H2PING: UseTLS:true ServerName:"), "SkipVerify:false", "SkipVerify:true", 1),
		"grpc 0 " + minutely("TCP:", "GRPC:h:1 UDP: H2PING: UseTLS:false ServerName:"),
		"h2ping 0 " + minutely("TCP:", "GRPC: UDP: H2PING:h:1 UseTLS:true ServerName:"),
		"h2ping 0 " + minutely("TCP:", "GRPC: UDP: H2PING:h:1 UseTLS:false ServerName:"),
	}
	expect.Slice(t, got, want, "got")
}

// minutely returns the printed form of a probe once a minute.
func minutely(tcp, others string) string {
	return "{HTTP: Method: Body: Header:[] SkipVerify:false NoRedirects:false " + tcp + " Interval:60000 Timeout:0 SuccessBeforePassing:0 FailuresBeforeWarning:0 FailuresBeforeCritical:0 " + others + " By: From:}"
}

func TestConsulShowsTheTimesOfProbesAsTheyWereGiven(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	n.Must(t, "PUT", "/v1/agent/service/register", `{"Name":"web","Checks":[
		{"CheckID":"h","HTTP":"http://h/","Interval":"1m","Timeout":"1500ms"},
		{"CheckID":"g","GRPC":"h:1","Interval":10000000000},
		{"CheckID":"t","TTL":"10s"},
		{"CheckID":"z","AliasNode":"rollcall"}]}`)
	want := map[string]string{"h": "http 1m0s 1.5s", "g": "grpc 10s ", "t": "ttl  ", "z": "alias  "}
	type shown struct{ CheckID, Type, Interval, Timeout string }
	byID := httpdtest.Read[map[string]shown](t, n, "/v1/agent/checks")
	for target, all := range map[string][]shown{
		"agent/checks": slices.Collect(maps.Values(byID)), "health/checks": httpdtest.Read[[]shown](t, n, "/v1/health/checks/web"),
	} {
		need.That(t, len(all) == len(want), "%s: %d checks", target, len(all))
		for _, c := range all {
			expect.Equal(t, c.Type+" "+c.Interval+" "+c.Timeout, want[c.CheckID], "%s: check %s", target, c.CheckID)
		}
	}
}

func TestConsulAliasCheckFollowsWhatItNames(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	agent := newClient(t, n).Agent()
	ok(t, agent.ServiceRegister(&api.AgentServiceRegistration{Name: "web", Check: &api.AgentServiceCheck{CheckID: "ttl", TTL: "1h", Status: "passing"}}))
	ok(t, agent.ServiceRegister(&api.AgentServiceRegistration{Name: "proxy", Check: &api.AgentServiceCheck{CheckID: "of-web", AliasService: "web"}}))
	ok(t, agent.CheckRegister(&api.AgentCheckRegistration{ID: "of-far", Name: "far", ServiceID: "proxy", AgentServiceCheck: api.AgentServiceCheck{AliasNode: "far", AliasService: "db"}}))
	expectChecks := func(when, want string) {
		t.Helper()
		expect.Equal(t, n.Checks(t, "proxy", "proxy"), want, "%s: checks are", when)
	}
	expectChecks("at first", "of-far critical Service db could not be found on node far, of-web passing All checks passing.")
	n.Must(t, "PUT", "/v1/catalog/register", `{"Node":"far","Address":"10.0.0.9","Service":{"Service":"db"},"Check":{"Name":"disk","Status":"warning","Output":"90 %"}}`)
	ok(t, agent.FailTTL("ttl", "refused"))
	expectChecks("failing", `of-far warning Aliased check "disk" failing: 90 %, of-web critical Aliased check "Service 'web' check" failing: refused`)
	expect.That(t, !n.Passing(t, "proxy", "proxy"), "the service of a critical alias is passing")
	ok(t, agent.PassTTL("ttl", ""))
	ok(t, agent.EnableServiceMaintenance("web", "moving"))
	expectChecks("in maintenance", `of-far warning Aliased check "disk" failing: 90 %, of-web critical Aliased check "Service Maintenance Mode" failing: `)
	ok(t, agent.DisableServiceMaintenance("web"))
	ok(t, agent.ServiceDeregister("web"))
	expectChecks("gone", `of-far warning Aliased check "disk" failing: 90 %, of-web critical Service web could not be found on node rollcall`)
}

func TestConsulAgentMaintenanceTakesServicesOutOfUse(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	agent := newClient(t, n).Agent()
	ok(t, agent.ServiceRegister(&api.AgentServiceRegistration{ID: "w1", Name: "web"}))
	n.Perform(t, registry.Register{Instance: httpdtest.NewInstance("ORDERS", "o1")})
	for name, id := range map[string]string{"web": "w1", "orders": "o1"} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // a repetition changes nothing
				ok(t, agent.EnableServiceMaintenance(id, "broken"))
				checks := need.Got(agent.Checks())(t)
				c := checks["_service_maintenance:"+id]
				expect.That(t, c != nil && c.Status == "critical" && c.Notes == "broken" && c.Name == "Service Maintenance Mode" && c.Type == "maintenance",
					"the checks are %+v", checks)
			}
			l, _ := n.Newest().ServiceOn("", id)
			expect.That(t, l.Instance.Status == registry.OutOfService, "the status is %v, want OUT_OF_SERVICE", l.Instance.Status)
			for range 2 {
				ok(t, agent.DisableServiceMaintenance(id))
				expect.That(t, n.Passing(t, name, id), "it is not passing after maintenance")
			}
		})
	}
}

// TestConsulAgentMaintenanceOfAllServicesIsRefused: in Consul this is a routine step for one host; maintenance that
// exists all the same can be ended.
func TestConsulAgentMaintenanceOfAllServicesIsRefused(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	agent := newClient(t, n).Agent()
	ok(t, agent.ServiceRegister(&api.AgentServiceRegistration{ID: "w1", Name: "web"}))
	const want = `(node "rollcall" has the services of all hosts, and its maintenance would take every one of them out of use; name a host's agent in front of the path, `
	err := agent.EnableNodeMaintenance("kernel")
	expect.That(t, err != nil && strings.Contains(err.Error(), "400 "+want), "got %v, want 400 %s…", err, want)
	if checks, err := agent.Checks(); err != nil || len(checks) != 0 || !n.Passing(t, "web", "w1") {
		t.Errorf("after the refusal the checks are %+v (%v)", checks, err)
	}
	ok(t, agent.DisableNodeMaintenance())
	ok(t, agent.CheckRegister(&api.AgentCheckRegistration{ID: "_node_maintenance", Name: "by hand", AgentServiceCheck: api.AgentServiceCheck{TTL: "1h"}}))
	ok(t, agent.DisableNodeMaintenance())
	if checks, err := agent.Checks(); err != nil || len(checks) != 0 || !n.Passing(t, "web", "w1") {
		t.Errorf("after the end the checks are %+v (%v)", checks, err)
	}
}

func TestConsulAgentServesTheOfficialClientsReads(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	client := newClient(t, n)
	name := need.Got(client.Agent().NodeName())(t)
	self, err := client.Agent().Self()
	ok(t, err)
	nodes, _, err := client.Catalog().Nodes(nil)
	ok(t, err)
	expect.That(t, name == "rollcall" && self["Config"]["NodeID"] == nodes[0].ID && self["Config"]["Datacenter"] == "dc1" && self["Config"]["Version"] == consul.APIVersion && self["Member"]["Name"] == "n1" && self["Member"]["Addr"] == "127.0.0.1" && self["Member"]["Port"] == 7761.0, "node %s, agent %v, nodes %+v", name, self, nodes[0])
	members := need.Got(client.Agent().Members(false))(t)
	var got []string
	for _, m := range members {
		got = append(got, fmt.Sprint(m.Name, " ", m.Addr, ":", m.Port, " ", m.Status, " ", m.IsConsulServer(), " ", m.ACLMode()))
	}
	expect.Slice(t, got, []string{"n1 127.0.0.1:7761 1 true 0", "n2 127.0.0.1:7762 1 true 0", "n3 127.0.0.1:7763 4 true 0"}, "members are")
	wide := need.Got(client.Agent().Members(true))(t)
	expect.That(t, len(wide) == 3 && wide[0].Name == "n1.dc1", "of all datacenters they are %+v", wide)
}

// Nomad gives its jobs the constraint consul.version >= 1.8.0, and consul-esm panics at a version that it cannot read.
func TestConsulAgentTellsAVersionOfConsul(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	client := newClient(t, n)
	self := need.Got(client.Agent().Self())(t)
	version, _ := self["Config"]["Version"].(string)
	expect.That(t, semver.IsValid("v"+version) && semver.Compare("v"+version, "v1.8.0") >= 0, "the version is %q, want one of Consul from 1.8.0 on", version)
	build, _ := self["Stats"]["build"].(map[string]any)
	ours, _ := self["Stats"]["rollcall"].(map[string]any)
	expect.That(t, build["version"] == version && ours["version"] == "1.2.3", "the build is %v and ours %v, want %s and 1.2.3", build, ours, version)
	expect.Equal(t, need.Got(client.Agent().Members(false))(t)[0].Tags["build"], version+":", "a member's build is")
	nodes, _, err := client.Catalog().Nodes(nil)
	ok(t, err)
	expect.Equal(t, nodes[0].Meta["consul-version"], version, "a node's version is")
	told := need.Got(client.Agent().Version())(t)
	expect.That(t, told["HumanVersion"] == version && told["Rollcall"] == "1.2.3", "agent/version is %v", told)
	_, asked := self["DebugConfig"]["EnableDebug"].(bool)
	_, secured := self["DebugConfig"]["ACLsEnabled"].(bool)
	expect.That(t, asked && secured, "DebugConfig is %v, want what consul debug asks for", self["DebugConfig"])
}

func TestConsulAgentShowsOneServerAsOneMember(t *testing.T) {
	config, catalog := httpdtest.CatalogConfig()
	config.Cluster = nil
	n := httpdtest.NewNode(t, config, nil)
	catalog.Memory = n.Memory
	got := httpdtest.Read[[]struct{ Name, Addr string }](t, n, "/v1/agent/members")
	expect.That(t, len(got) == 1 && got[0].Name == "n1" && got[0].Addr == "10.1.0.1", "members are %+v, want the node itself", got)
}

// Registrars register services before their nodes.
func TestConsulCatalogTakesAServiceBeforeItsNode(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	n.Must(t, "PUT", "/v1/catalog/register", `{"Node":"far","SkipNodeUpdate":true,"Service":{"Service":"web","ID":"w1"}}`)
	key := registry.NewKey("web", "far:w1")
	l, there := n.Newest().Lease(key)
	expect.That(t, there && l.Instance.HostName == "far", "the instance is %+v, want it at its node's name", l)
	n.Must(t, "PUT", "/v1/catalog/register", `{"Node":"far","Address":"10.9.0.1"}`)
	l, there = n.Newest().Lease(key)
	expect.That(t, there && l.Instance.HostName == "10.9.0.1", "the instance is %+v, want it at its node's address", l)
}

// Old Java clients send GET instead of PUT.
func TestConsulAgentTakesHeartbeatsByGet(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	n.Must(t, "PUT", "/v1/agent/service/register", `{"Name":"web","Check":{"TTL":"10s"}}`)
	n.Must(t, "GET", "/v1/agent/check/pass/service:web?note=x", "")
	expect.Equal(t, n.Checks(t, "web", "web"), "service:web passing x", "checks are")
	n.Must(t, "GET", "/v1/agent/check/deregister/service:web", "")
	expect.Equal(t, n.Checks(t, "web", "web"), "", "checks are")
}

func TestConsulAgentCutsALongOutput(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	n.Must(t, "PUT", "/v1/agent/check/register", `{"Name":"c","TTL":"10s"}`)
	n.Must(t, "PUT", "/v1/agent/check/update/c", `{"Status":"warning","Output":"`+strings.Repeat("ä", 3000)+`"}`)
	c, _ := n.Newest().CheckOn("", "c")
	want := strings.Repeat("ä", 2048) + " ... (captured 4096 of 6000 bytes)"
	expect.That(t, c.Output == want, "kept are %d bytes that end in %q", len(c.Output), c.Output[max(0, len(c.Output)-40):])
}

func TestConsulCatalogRespectsTheQuota(t *testing.T) {
	config, catalog := httpdtest.CatalogConfig()
	config.Limits = web.Limits{InstancesInApp: 1}
	n := httpdtest.NewNode(t, config, nil)
	catalog.Memory = n.Memory
	n.Must(t, "PUT", "/v1/agent/service/register", `{"Name":"web","ID":"a"}`)
	n.Must(t, "PUT", "/v1/agent/service/register", `{"Name":"web","ID":"a","Port":1}`)
	n.Call(t, "PUT", "/v1/agent/service/register", `{"Name":"web","ID":"b"}`).Says(t, 429, "", "it")
}
