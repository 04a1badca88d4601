package httpd_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"golang.org/x/mod/semver"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

// newClient is Consul's official client of a node.
func newClient(t testing.TB, n *node) *api.Client {
	t.Helper()
	client := need.Got(api.NewClient(&api.Config{Address: n.addr}))(t)
	return client
}

// ok fails the test if a call of the client failed.
func ok(t testing.TB, err error) {
	t.Helper()
	need.OK(t, err)
}

func TestConsulAgentServesTheOfficialClientsRegistrationsAndHeartbeats(t *testing.T) {
	n := newCatalog(t)
	agent, health := newClient(t, n).Agent(), newClient(t, n).Health()
	ok(t, agent.ServiceRegister(&api.AgentServiceRegistration{
		ID: "w1", Name: "web", Tags: []string{"a"}, Port: 80, Address: "10.0.0.7", Meta: map[string]string{"k": "v"},
		Check: &api.AgentServiceCheck{TTL: "15s", DeregisterCriticalServiceAfter: "1m"},
	}))
	for _, row := range []struct {
		beat   func(id, note string) error
		status string
		count  int // of services that are passing
	}{
		{nil, api.HealthCritical, 0},
		{agent.PassTTL, api.HealthPassing, 1},
		{agent.WarnTTL, api.HealthWarning, 0},
		{agent.FailTTL, api.HealthCritical, 0},
		{func(id, note string) error { return agent.UpdateTTL(id, note, api.HealthPassing) }, api.HealthPassing, 1},
	} {
		note := "it is " + row.status
		if row.beat != nil {
			ok(t, row.beat("service:w1", note))
		}
		entries, meta, err := health.Service("web", "a", true, nil)
		ok(t, err)
		expect.That(t, len(entries) == row.count && meta.LastIndex != 0 && meta.KnownLeader && meta.DefaultACLPolicy == "allow",
			"%s: %d are passing, want %d; the answer says %+v", row.status, len(entries), row.count, meta)
		status, info, err := agent.AgentHealthServiceByID("w1")
		ok(t, err)
		expect.That(t, status == row.status && info.AggregatedStatus == row.status && info.Service.ID == "w1",
			"the service's health is %s, %+v; want %s", status, info, row.status)
		expect.That(t, row.beat == nil || info.Checks[0].Output == note, "the output is %q, want %q", info.Checks[0].Output, note)
		if status, _, err := agent.AgentHealthServiceByName("web"); err != nil || status != row.status {
			t.Errorf("the name's health is %s, %v; want %s", status, err, row.status)
		}
	}
	ok(t, agent.ServiceDeregister("w1"))
	if err := agent.PassTTL("service:w1", ""); err == nil || !strings.Contains(err.Error(), `404 (Unknown check ID "service:w1"`) {
		t.Errorf("a heartbeat after the end: %v, want 404", err)
	}
}

func TestConsulAgentHealthOfANameIsThatOfItsWorstService(t *testing.T) {
	n := newCatalog(t)
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
		n.call(t, "GET", "/v1/agent/health/service/name/web?format=text", "").is(t, row.code, row.want, "%s", row.name).with(t, "Content-Type", "text/plain").with(t, "X-Consul-Reason", row.want)
	}
	for target, want := range map[string]string{
		"/v1/agent/health/service/name/none":             "[]",
		"/v1/agent/health/service/name/consul":           "[]",
		"/v1/agent/health/service/id/none":               `{"AggregatedStatus":"critical","Service":null,"Checks":null}`,
		"/v1/agent/health/service/id/none?format=text":   "ServiceId none not found",
		"/v1/agent/health/service/name/none?format=text": "ServiceName none Not Found",
	} {
		n.call(t, "GET", target, "").is(t, 404, want, "GET %s", target)
	}
}

func TestConsulAgentGivesChecksTheIDsThatClientsExpect(t *testing.T) {
	n := newCatalog(t)
	for _, row := range []struct{ name, body, ids string }{
		{"none", `{"Name":"x"}`, ""},
		{"empty", `{"Name":"x","Check":{},"Checks":[]}`, ""},
		{"one", `{"Name":"x","Check":{"TTL":"1s"}}`, "service:x"},
		{"one in a list", `{"Name":"x","Checks":[{"TTL":"1s"}]}`, "service:x"},
		{"two", `{"Name":"x","ID":"y","Check":{"TTL":"1s"},"Checks":[{"TTL":"2s"}]}`, "service:y:1 service:y:2"},
		{"named", `{"Name":"x","Checks":[{"CheckID":"mine","TTL":"1s"},{"TCP":"h:1","Interval":"10s"}]}`, "mine service:x:2"},
		{"null", `{"Name":"x","Check":null,"Checks":null}`, ""},
	} {
		n.must(t, "PUT", "/v1/agent/service/register", row.body)
		got := slices.Sorted(maps.Keys(read[map[string]any](t, n, "/v1/agent/checks")))
		expect.That(t, strings.Join(got, " ") == row.ids, "%s: the checks are %q, want %q", row.name, got, row.ids)
		for id := range read[map[string]any](t, n, "/v1/agent/services") {
			n.must(t, "PUT", "/v1/agent/service/deregister/"+id, "")
		}
	}
}

func TestConsulAgentKeepsTheStateOfChecksWhenAServiceRegistersAgain(t *testing.T) {
	n := newCatalog(t)
	const register = "/v1/agent/service/register"
	n.must(t, "PUT", register, `{"Name":"web","Checks":[{"CheckID":"a","TTL":"10s"},{"CheckID":"b","TTL":"10s"}]}`)
	n.must(t, "PUT", "/v1/agent/check/pass/a?note=well", "")
	for _, row := range []struct{ name, target, body, checks string }{
		{"a check is not mentioned", register, `{"Name":"web","Check":{"CheckID":"a","TTL":"20s"}}`, "a passing well, b critical "},
		{"checks are replaced", register + "?replace-existing-checks", `{"Name":"web","Check":{"CheckID":"a","TTL":"20s"}}`, "a passing well"},
		{"a check is registered again", "/v1/agent/check/register", `{"ID":"a","Name":"a","TTL":"30s","ServiceID":"web"}`, "a passing well"},
		{"a check is registered with a state", "/v1/agent/check/register", `{"ID":"a","Name":"a","TTL":"30s","ServiceID":"web","Status":"warning"}`, "a warning "},
	} {
		n.must(t, "PUT", row.target, row.body)
		expect.Equal(t, n.checks(t, "web", "web"), row.checks, "%s: checks are", row.name)
	}
}

// A check of a service says how long it may be critical, or has the server's time; one of a node is not
// reaped.
func TestConsulAgentReapsServicesAsTheOperatorHasSet(t *testing.T) {
	c := newCoordinated(t, httpd.Config{ReapCritical: 72 * time.Hour})
	for _, request := range []struct{ path, body string }{
		{"/v1/agent/service/register", `{"Name":"web","Checks":[{"CheckID":"a","TTL":"10s"},{"CheckID":"b","TTL":"10s","DeregisterCriticalServiceAfter":"2m"}]}`},
		{"/v1/agent/check/register", `{"ID":"c","Name":"c","ServiceID":"web","TTL":"10s"}`},
		{"/v1/agent/check/register", `{"ID":"node","Name":"n","TTL":"10s"}`},
	} {
		r := c.send("PUT", request.path, request.body)
		need.That(t, r.status == 200, "%s: %+v", request.path, r)
	}
	for id, want := range map[string]time.Duration{"a": 72 * time.Hour, "b": 2 * time.Minute, "c": 72 * time.Hour, "node": 0} {
		check, ok := c.Newest().CheckOn("", id)
		expect.That(t, ok && check.ReapAfter == want.Milliseconds(), "check %s: %+v, want it reaped after %v", id, check, want)
	}
}

func TestConsulAgentReapsNoServiceByDefault(t *testing.T) {
	c := newCoordinated(t, setting.Default[httpd.Config]())
	r := c.send("PUT", "/v1/agent/service/register", `{"Name":"web","Check":{"CheckID":"a","TTL":"10s"}}`)
	need.That(t, r.status == 200, "%+v", r)
	check, ok := c.Newest().CheckOn("192.0.2.1", "a") // of the agent of httptest's client
	expect.That(t, ok && check.ReapAfter == 0, "check %+v, want it never reaped", check)
}

func TestConsulAgentLeavesProbesToTheProber(t *testing.T) {
	n := newCatalog(t)
	n.must(t, "PUT", "/v1/agent/service/register", `{"Name":"web","Checks":[
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
		"http 0 {HTTP:https://h/health Method:POST Body:hi Header:[{Key:A Value:1} {Key:B Value:2} {Key:B Value:3}] SkipVerify:true NoRedirects:true TCP: Interval:10 Timeout:0 SuccessBeforePassing:2 FailuresBeforeWarning:3 FailuresBeforeCritical:3 GRPC: UDP: H2PING: UseTLS:false ServerName: By:}",
		"tcp 0 {HTTP: Method: Body: Header:[] SkipVerify:false NoRedirects:false TCP:h:1 Interval:30000 Timeout:5000 SuccessBeforePassing:0 FailuresBeforeWarning:1 FailuresBeforeCritical:3 GRPC: UDP: H2PING: UseTLS:false ServerName: By:}",
		"tcp 0 " + minutely("TCP:h:1", "GRPC: UDP: H2PING: UseTLS:true ServerName:db"),
		"udp 0 " + minutely("TCP:", "GRPC: UDP:h:1 H2PING: UseTLS:false ServerName:"),
		"grpc 0 " + strings.Replace(minutely("TCP:", "GRPC:h:1/orders UDP: H2PING: UseTLS:true ServerName:"), "SkipVerify:false", "SkipVerify:true", 1),
		"grpc 0 " + minutely("TCP:", "GRPC:h:1 UDP: H2PING: UseTLS:false ServerName:"),
		"h2ping 0 " + minutely("TCP:", "GRPC: UDP: H2PING:h:1 UseTLS:true ServerName:"),
		"h2ping 0 " + minutely("TCP:", "GRPC: UDP: H2PING:h:1 UseTLS:false ServerName:"),
	}
	expect.Slice(t, got, want, "got")
}

// minutely is a probe once a minute, as it is printed.
func minutely(tcp, others string) string {
	return "{HTTP: Method: Body: Header:[] SkipVerify:false NoRedirects:false " + tcp + " Interval:60000 Timeout:0 SuccessBeforePassing:0 FailuresBeforeWarning:0 FailuresBeforeCritical:0 " + others + " By:}"
}

func TestConsulShowsTheTimesOfProbesAsTheyWereGiven(t *testing.T) {
	n := newCatalog(t)
	n.must(t, "PUT", "/v1/agent/service/register", `{"Name":"web","Checks":[
		{"CheckID":"h","HTTP":"http://h/","Interval":"1m","Timeout":"1500ms"},
		{"CheckID":"g","GRPC":"h:1","Interval":10000000000},
		{"CheckID":"t","TTL":"10s"},
		{"CheckID":"z","AliasNode":"rollcall"}]}`)
	want := map[string]string{"h": "http 1m0s 1.5s", "g": "grpc 10s ", "t": "ttl  ", "z": "alias  "}
	type shown struct{ CheckID, Type, Interval, Timeout string }
	byID := read[map[string]shown](t, n, "/v1/agent/checks")
	for target, all := range map[string][]shown{
		"agent/checks": slices.Collect(maps.Values(byID)), "health/checks": read[[]shown](t, n, "/v1/health/checks/web"),
	} {
		need.That(t, len(all) == len(want), "%s: %d checks", target, len(all))
		for _, c := range all {
			expect.Equal(t, c.Type+" "+c.Interval+" "+c.Timeout, want[c.CheckID], "%s: check %s", target, c.CheckID)
		}
	}
}

func TestConsulAliasCheckFollowsWhatItNames(t *testing.T) {
	n := newCatalog(t)
	agent := newClient(t, n).Agent()
	ok(t, agent.ServiceRegister(&api.AgentServiceRegistration{Name: "web", Check: &api.AgentServiceCheck{CheckID: "ttl", TTL: "1h", Status: "passing"}}))
	ok(t, agent.ServiceRegister(&api.AgentServiceRegistration{Name: "proxy", Check: &api.AgentServiceCheck{CheckID: "of-web", AliasService: "web"}}))
	ok(t, agent.CheckRegister(&api.AgentCheckRegistration{ID: "of-far", Name: "far", ServiceID: "proxy", AgentServiceCheck: api.AgentServiceCheck{AliasNode: "far", AliasService: "db"}}))
	expectChecks := func(when, want string) {
		t.Helper()
		expect.Equal(t, n.checks(t, "proxy", "proxy"), want, "%s: checks are", when)
	}
	expectChecks("at first", "of-far critical Service db could not be found on node far, of-web passing All checks passing.")
	n.must(t, "PUT", "/v1/catalog/register", `{"Node":"far","Address":"10.0.0.9","Service":{"Service":"db"},"Check":{"Name":"disk","Status":"warning","Output":"90 %"}}`)
	ok(t, agent.FailTTL("ttl", "refused"))
	expectChecks("failing", `of-far warning Aliased check "disk" failing: 90 %, of-web critical Aliased check "Service 'web' check" failing: refused`)
	expect.That(t, !n.passing(t, "proxy", "proxy"), "the service of a critical alias is passing")
	ok(t, agent.PassTTL("ttl", ""))
	ok(t, agent.EnableServiceMaintenance("web", "moving"))
	expectChecks("in maintenance", `of-far warning Aliased check "disk" failing: 90 %, of-web critical Aliased check "Service Maintenance Mode" failing: `)
	ok(t, agent.DisableServiceMaintenance("web"))
	ok(t, agent.ServiceDeregister("web"))
	expectChecks("gone", `of-far warning Aliased check "disk" failing: 90 %, of-web critical Service web could not be found on node rollcall`)
}

func TestConsulAgentMaintenanceTakesServicesOutOfUse(t *testing.T) {
	n := newCatalog(t)
	agent := newClient(t, n).Agent()
	ok(t, agent.ServiceRegister(&api.AgentServiceRegistration{ID: "w1", Name: "web"}))
	n.Perform(t, registry.Register{Instance: newInstance("ORDERS", "o1")})
	for name, id := range map[string]string{"web": "w1", "orders": "o1"} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // again is no change
				ok(t, agent.EnableServiceMaintenance(id, "broken"))
				checks, err := agent.Checks()
				ok(t, err)
				c := checks["_service_maintenance:"+id]
				expect.That(t, c != nil && c.Status == "critical" && c.Notes == "broken" && c.Name == "Service Maintenance Mode" && c.Type == "maintenance",
					"the checks are %+v", checks)
			}
			l, _ := n.Newest().ServiceOn("", id)
			expect.That(t, l.Instance.Status == registry.OutOfService, "the status is %v, want OUT_OF_SERVICE", l.Instance.Status)
			for range 2 {
				ok(t, agent.DisableServiceMaintenance(id))
				expect.That(t, n.passing(t, name, id), "it is not passing after maintenance")
			}
		})
	}
}

// TestConsulAgentMaintenanceOfAllServicesIsRefused, which is a routine step for one host of Consul's; what stands all the
// same can be ended.
func TestConsulAgentMaintenanceOfAllServicesIsRefused(t *testing.T) {
	n := newCatalog(t)
	agent := newClient(t, n).Agent()
	ok(t, agent.ServiceRegister(&api.AgentServiceRegistration{ID: "w1", Name: "web"}))
	const want = `(node "rollcall" has the services of all hosts, and its maintenance would take every one of them out of use; name a host's agent in front of the path, `
	err := agent.EnableNodeMaintenance("kernel")
	expect.That(t, err != nil && strings.Contains(err.Error(), "400 "+want), "got %v, want 400 %s…", err, want)
	if checks, err := agent.Checks(); err != nil || len(checks) != 0 || !n.passing(t, "web", "w1") {
		t.Errorf("after the refusal the checks are %+v (%v)", checks, err)
	}
	ok(t, agent.DisableNodeMaintenance())
	ok(t, agent.CheckRegister(&api.AgentCheckRegistration{ID: "_node_maintenance", Name: "by hand", AgentServiceCheck: api.AgentServiceCheck{TTL: "1h"}}))
	ok(t, agent.DisableNodeMaintenance())
	if checks, err := agent.Checks(); err != nil || len(checks) != 0 || !n.passing(t, "web", "w1") {
		t.Errorf("after the end the checks are %+v (%v)", checks, err)
	}
}

func TestConsulAgentServesTheOfficialClientsReads(t *testing.T) {
	n := newCatalog(t)
	client := newClient(t, n)
	name, err := client.Agent().NodeName()
	ok(t, err)
	self, err := client.Agent().Self()
	ok(t, err)
	nodes, _, err := client.Catalog().Nodes(nil)
	ok(t, err)
	expect.That(t, name == "rollcall" && self["Config"]["NodeID"] == nodes[0].ID && self["Config"]["Datacenter"] == "dc1" && self["Config"]["Version"] == consul.APIVersion && self["Member"]["Name"] == "n1" && self["Member"]["Addr"] == "127.0.0.1" && self["Member"]["Port"] == 7761.0, "node %s, agent %v, nodes %+v", name, self, nodes[0])
	members, err := client.Agent().Members(false)
	ok(t, err)
	var got []string
	for _, m := range members {
		got = append(got, fmt.Sprint(m.Name, " ", m.Addr, ":", m.Port, " ", m.Status, " ", m.IsConsulServer(), " ", m.ACLMode()))
	}
	expect.Slice(t, got, []string{"n1 127.0.0.1:7761 1 true 0", "n2 127.0.0.1:7762 1 true 0", "n3 127.0.0.1:7763 4 true 0"}, "members are")
	wide, err := client.Agent().Members(true)
	ok(t, err)
	expect.That(t, len(wide) == 3 && wide[0].Name == "n1.dc1", "of all datacenters they are %+v", wide)
}

// Nomad gives its jobs the constraint consul.version >= 1.8.0, and consul-esm panics at a version that it cannot read.
func TestConsulAgentTellsAVersionOfConsul(t *testing.T) {
	n := newCatalog(t)
	client := newClient(t, n)
	self, err := client.Agent().Self()
	ok(t, err)
	version, _ := self["Config"]["Version"].(string)
	expect.That(t, semver.IsValid("v"+version) && semver.Compare("v"+version, "v1.8.0") >= 0, "the version is %q, want one of Consul from 1.8.0 on", version)
	build, _ := self["Stats"]["build"].(map[string]any)
	ours, _ := self["Stats"]["rollcall"].(map[string]any)
	expect.That(t, build["version"] == version && ours["version"] == "1.2.3", "the build is %v and ours %v, want %s and 1.2.3", build, ours, version)
	members, err := client.Agent().Members(false)
	ok(t, err)
	expect.Equal(t, members[0].Tags["build"], version+":", "a member's build is")
	nodes, _, err := client.Catalog().Nodes(nil)
	ok(t, err)
	expect.Equal(t, nodes[0].Meta["consul-version"], version, "a node's version is")
	told, err := client.Agent().Version()
	ok(t, err)
	expect.That(t, told["HumanVersion"] == version && told["Rollcall"] == "1.2.3", "agent/version is %v", told)
	_, asked := self["DebugConfig"]["EnableDebug"].(bool)
	_, secured := self["DebugConfig"]["ACLsEnabled"].(bool)
	expect.That(t, asked && secured, "DebugConfig is %v, want what consul debug asks for", self["DebugConfig"])
}

// The official client decodes a map of maps, and one value that is none would fail it.
func TestConsulAgentShowsEveryMemberAsAnObject(t *testing.T) {
	n := newCatalog(t)
	for name, member := range read[map[string]json.RawMessage](t, n, "/v1/agent/self") {
		expect.That(t, member[0] == '{', "%s is %s, want an object", name, member)
	}
}

func TestConsulAgentShowsOneServerAsOneMember(t *testing.T) {
	config, catalog := catalogConfig()
	config.Cluster = nil
	n := newNode(t, config, nil)
	catalog.memory = n.Memory
	got := read[[]struct{ Name, Addr string }](t, n, "/v1/agent/members")
	expect.That(t, len(got) == 1 && got[0].Name == "n1" && got[0].Addr == "10.1.0.1", "members are %+v, want the node itself", got)
}

// The client's own tests of the catalog do this.
func TestConsulCatalogServesTheOfficialClient(t *testing.T) {
	n := newCatalog(t)
	client := newClient(t, n)
	catalog := client.Catalog()
	registration := &api.CatalogRegistration{
		Datacenter: "dc1", Node: "foobar", Address: "192.168.10.10", NodeMeta: map[string]string{"somekey": "somevalue"},
		Service: &api.AgentService{ID: "redis1", Service: "redis", Tags: []string{"primary", "v1"}, Port: 8000},
		Check:   &api.AgentCheck{Node: "foobar", CheckID: "service:redis1-a", Name: "Redis health check", Notes: "by hand", Status: api.HealthPassing, ServiceID: "redis1"},
		Checks: api.HealthChecks{{Node: "foobar", CheckID: "service:redis1-b", Name: "Redis health check", Status: api.HealthPassing, ServiceID: "redis1",
			Definition: api.HealthCheckDefinition{TCP: "localhost:22", IntervalDuration: 5e9}}},
	}
	_, err := catalog.Register(registration, nil)
	ok(t, err)
	node, _, err := catalog.Node("foobar", nil)
	ok(t, err)
	s := node.Services["redis1"]
	expect.That(t, s != nil && s.Weights == (api.AgentWeights{Passing: 1, Warning: 1}) && node.Node.Meta["somekey"] == "somevalue",
		"the node is %+v", node)
	for tags, want := range map[string]int{"primary": 1, "v1 primary": 1, "v2": 0, "v1 v2": 0} {
		services, _, err := catalog.ServiceMultipleTags("redis", strings.Fields(tags), nil)
		ok(t, err)
		expect.That(t, len(services) == want, "with the tags %s there are %d services, want %d", tags, len(services), want)
	}
	entries, _, err := client.Health().ServiceMultipleTags("redis", []string{"v1"}, true, nil)
	ok(t, err)
	expect.That(t, len(entries) == 1 && len(entries[0].Checks) == 2 && entries[0].Checks[1].Type == "tcp" && entries[0].Checks[1].Definition.IntervalDuration == 5e9 && slices.Equal(entries[0].Checks[0].ServiceTags, []string{"primary", "v1"}) && entries[0].Checks.AggregatedStatus() == api.HealthPassing, "health is %+v", entries)
	later := *registration
	later.Address, later.SkipNodeUpdate = "10.0.0.1", true
	_, err = catalog.Register(&later, nil)
	ok(t, err)
	if node, _, _ := catalog.Node("foobar", nil); node.Node.Address != "192.168.10.10" {
		t.Errorf("the node's address became %s", node.Node.Address)
	}
	_, err = catalog.Deregister(&api.CatalogDeregistration{Node: "foobar", ServiceID: "redis1"}, nil)
	ok(t, err)
	_, err = catalog.Deregister(&api.CatalogDeregistration{Node: "foobar"}, nil)
	ok(t, err)
	if node, _, err := catalog.Node("foobar", nil); node != nil || err != nil {
		t.Errorf("the node is %+v, %v, want none", node, err)
	}
}

// Registrars register services before their nodes.
func TestConsulCatalogTakesAServiceBeforeItsNode(t *testing.T) {
	n := newCatalog(t)
	n.must(t, "PUT", "/v1/catalog/register", `{"Node":"far","SkipNodeUpdate":true,"Service":{"Service":"web","ID":"w1"}}`)
	key := registry.NewKey("web", "far:w1")
	l, there := n.Newest().Lease(key)
	expect.That(t, there && l.Instance.HostName == "far", "the instance is %+v, want it at its node's name", l)
	n.must(t, "PUT", "/v1/catalog/register", `{"Node":"far","Address":"10.9.0.1"}`)
	l, there = n.Newest().Lease(key)
	expect.That(t, there && l.Instance.HostName == "10.9.0.1", "the instance is %+v, want it at its node's address", l)
}

// Old Java clients send GET where PUT would be right.
func TestConsulAgentTakesHeartbeatsByGet(t *testing.T) {
	n := newCatalog(t)
	n.must(t, "PUT", "/v1/agent/service/register", `{"Name":"web","Check":{"TTL":"10s"}}`)
	n.must(t, "GET", "/v1/agent/check/pass/service:web?note=x", "")
	expect.Equal(t, n.checks(t, "web", "web"), "service:web passing x", "checks are")
	n.must(t, "GET", "/v1/agent/check/deregister/service:web", "")
	expect.Equal(t, n.checks(t, "web", "web"), "", "checks are")
}

func TestConsulAgentCutsALongOutput(t *testing.T) {
	n := newCatalog(t)
	n.must(t, "PUT", "/v1/agent/check/register", `{"Name":"c","TTL":"10s"}`)
	n.must(t, "PUT", "/v1/agent/check/update/c", `{"Status":"warning","Output":"`+strings.Repeat("ä", 3000)+`"}`)
	c, _ := n.Newest().CheckOn("", "c")
	want := strings.Repeat("ä", 2048) + " ... (captured 4096 of 6000 bytes)"
	expect.That(t, c.Output == want, "kept are %d bytes that end in %q", len(c.Output), c.Output[max(0, len(c.Output)-40):])
}

func TestConsulCatalogRespectsTheQuota(t *testing.T) {
	config, catalog := catalogConfig()
	config.Limits = web.Limits{InstancesInApp: 1}
	n := newNode(t, config, nil)
	catalog.memory = n.Memory
	n.must(t, "PUT", "/v1/agent/service/register", `{"Name":"web","ID":"a"}`)
	n.must(t, "PUT", "/v1/agent/service/register", `{"Name":"web","ID":"a","Port":1}`)
	n.call(t, "PUT", "/v1/agent/service/register", `{"Name":"web","ID":"b"}`).says(t, 429, "", "it")
}
