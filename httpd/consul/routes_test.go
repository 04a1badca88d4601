package consul_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/httpd/httpdtest"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestConsulPathTakesItsMethodsOnly(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{})
	for _, row := range []struct {
		name, method, path string
		status             int
		allow, body        string
	}{
		{"another method", "POST", "/v1/kv/a", 405, "OPTIONS,GET,PUT,DELETE", "method POST not allowed"},
		{"an unknown method", "BREW", "/v1/session/create", 405, "OPTIONS,PUT", "method BREW not allowed"},
		{"a GET of a write", "GET", "/v1/session/renew/x", 405, "OPTIONS,PUT", "method GET not allowed"},
		{"OPTIONS", "OPTIONS", "/v1/kv/a/b", 200, "OPTIONS,GET,PUT,DELETE", ""},
		{"HEAD goes with GET", "HEAD", "/v1/session/list", 200, "", "[]"}, // net/http drops the body
		{"a GET of another write", "GET", "/v1/agent/service/register", 405, "OPTIONS,PUT", "method GET not allowed"},
		{"a GET of a write with an id", "GET", "/v1/agent/service/deregister/x", 405, "OPTIONS,PUT", "method GET not allowed"},
		{"an id that begins like it", "GET", "/v1/agent/service/registered", 404, "", "unknown service ID: registered"},
		{"a path that there is not", "GET", "/v1/nothing", 404, "", "Invalid URL path: not a recognized HTTP API endpoint; docs/reference/consul.md says which are served"},
		{"OPTIONS of it", "OPTIONS", "/v1/nothing", 404, "", "Invalid URL path: not a recognized HTTP API endpoint; docs/reference/consul.md says which are served"},
		{"nothing", "GET", "/v1/", 404, "", "Invalid URL path: not a recognized HTTP API endpoint; docs/reference/consul.md says which are served"},
		{"no slash behind", "GET", "/v1/kv", 404, "", "Invalid URL path: not a recognized HTTP API endpoint; docs/reference/consul.md says which are served"},
	} {
		c.Send(row.method, row.path, "").Is(t, row.status, row.body, "%s: %s %s", row.name, row.method, row.path).With(t, "Allow", row.allow)
	}
	for _, path := range []string{"/v1/rollcall/nothing", "/v1//rollcall/nothing", "/v1/rollcall/fence/x?index=1&kind=x"} {
		got := c.Get(path)
		expect.That(t, json.Valid([]byte(got.Body)), "%s, which is our own: got %d %q, want JSON", path, got.Status, got.Body)
	}
}

// consulsRoutes are all routes of Consul, below /v1/: those of hashicorp/consul v1.16.3 (agent/http_register.go), and
// those of later versions that its client calls (github.com/hashicorp/consul/api v1.34.4: acl.go,
// exported_services.go, imported_services.go, operator_utilization.go).
const consulsRoutes = `
	PUT:acl/bootstrap POST:acl/login POST:acl/logout GET:acl/replication GET:acl/policies PUT:acl/policy GET,PUT,DELETE:acl/policy/ GET:acl/policy/name/
	GET:acl/roles PUT:acl/role GET:acl/role/name/ GET,PUT,DELETE:acl/role/ GET:acl/binding-rules PUT:acl/binding-rule GET,PUT,DELETE:acl/binding-rule/
	GET:acl/auth-methods PUT:acl/auth-method GET,PUT,DELETE:acl/auth-method/ GET:acl/tokens PUT:acl/token GET:acl/token/self GET,PUT,DELETE:acl/token/
	GET:acl/templated-policies GET:acl/templated-policy/name/ POST:acl/templated-policy/preview/ PUT:agent/token/ GET:agent/self GET:agent/host
	GET:agent/version PUT:agent/maintenance PUT:agent/reload GET:agent/monitor GET:agent/metrics GET:agent/metrics/stream GET:agent/services
	GET:agent/service/ GET:agent/checks GET:agent/members PUT:agent/join/ PUT:agent/leave PUT:agent/force-leave/ GET:agent/health/service/id/
	GET:agent/health/service/name/ PUT:agent/check/register PUT:agent/check/deregister/ PUT:agent/check/pass/ PUT:agent/check/warn/ PUT:agent/check/fail/
	PUT:agent/check/update/ POST:agent/connect/authorize GET:agent/connect/ca/roots GET:agent/connect/ca/leaf/ PUT:agent/service/register
	PUT:agent/service/deregister/ PUT:agent/service/maintenance/ PUT:catalog/register GET:catalog/connect/ PUT:catalog/deregister GET:catalog/datacenters
	GET:catalog/nodes GET:catalog/services GET:catalog/service/ GET:catalog/node/ GET:catalog/node-services/ GET:catalog/gateway-services/
	GET,DELETE:config/ PUT:config GET,PUT:connect/ca/configuration GET:connect/ca/roots GET,POST:connect/intentions GET:connect/intentions/match
	GET:connect/intentions/check GET,PUT,DELETE:connect/intentions/exact GET,PUT,DELETE:connect/intentions/ GET:coordinate/datacenters
	GET:coordinate/nodes GET:coordinate/node/ PUT:coordinate/update GET:internal/federation-states GET:internal/federation-states/mesh-gateways
	GET:internal/federation-state/ GET,POST:discovery-chain/ GET:exported-services GET:imported-services PUT:event/fire/ GET:event/list GET:health/node/
	GET:health/checks/ GET:health/state/ GET:health/service/ GET:health/connect/ GET:health/ingress/ GET:internal/ui/metrics-proxy/ GET:internal/ui/nodes
	GET:internal/ui/node/ GET:internal/ui/services GET:internal/ui/exported-services GET:internal/ui/catalog-overview
	GET:internal/ui/gateway-services-nodes/ GET:internal/ui/gateway-intentions/ GET:internal/ui/service-topology/ POST:internal/acl/authorize
	PUT:internal/service-virtual-ip GET,PUT,DELETE:kv/ GET:operator/raft/configuration POST:operator/raft/transfer-leader DELETE:operator/raft/peer
	GET,POST,PUT,DELETE:operator/keyring GET:operator/usage GET:operator/utilization GET,PUT:operator/autopilot/configuration
	GET:operator/autopilot/health GET:operator/autopilot/state POST:peering/token POST:peering/establish GET,DELETE:peering/ GET:peerings GET,POST:query
	GET,POST,PUT,DELETE:query/ PUT:session/create PUT:session/destroy/ PUT:session/renew/ GET:session/info/ GET:session/node/ GET:session/list
	GET:status/leader GET:status/peers GET,PUT:snapshot PUT:txn
`

// Clients read a 404 as "nothing there", and would count as done what was never done.
func TestConsulPathThatIsNotServedSaysSo(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{})
	refused := 0
	for _, row := range strings.Fields(consulsRoutes) {
		methods, path, _ := strings.Cut(row, ":")
		if strings.HasSuffix(path, "/") {
			path += "x"
		}
		for method := range strings.SplitSeq(methods, ",") {
			got := c.Send(method, "/v1/"+path, "")
			expect.That(t, got.Status != 405 && !strings.Contains(got.Body, "Invalid URL path"), "%s %s: got %d %s", method, path, got.Status, got.Body)
			if got.Status == 501 || got.Status == 401 {
				refused++
			}
			if path == "acl/bootstrap" { // needs a permission in each mode
				expect.That(t, got.Status == 403 && strings.HasPrefix(got.Body, "Permission denied"), "%s %s: got %d %s", method, path, got.Status, got.Body)
				continue
			}
			expect.Equal(t, strings.HasPrefix(path, "acl/") || strings.HasPrefix(path, "agent/token/"), got.Status == 401 && got.Body == "ACL support disabled", "%s %s: got %d %s:", method, path, got.Status, got.Body)
			expect.That(t, got.Status != 501 || strings.Contains(got.Body, "docs/reference/consul.md"), "%s %s: got %s", method, path, got.Body)
		}
	}
	expect.That(t, refused >= 90, "only %d routes are not served", refused)
	for path, want := range map[string]int{"event": 501, "events": 404, "event/": 501, "configuration": 404, "agent/metricsx": 404, "agent/metrics/stream": 501} {
		expect.Equal(t, c.Send("POST", "/v1/"+path, "{}").Status, want, "POST /v1/%s: got", path)
	}
}

func TestConsulParametersWithoutMeaningAreIgnored(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{})
	c.Send("PUT", "/v1/kv/a?token=t&ns=default&partition=&near=x&peer=y&merge-central-config&pretty", "v", "X-Consul-Token: secret", "X-Consul-Namespace: default").Is(t, 200, "true", "a write")
	got := c.Get("/v1/kv/a?token=t&near=_agent&keys")
	expect.That(t, got.Body == `["a"]`, "a read: got %d %s", got.Status, got.Body)
	expect.Equal(t, c.Get("/v1/kv/a?keys&pretty").Body, "[\n    \"a\"\n]\n", "indented: got")
}

// TestConsulNamespacesAreRefused, so that tenants are never merged.
func TestConsulNamespacesAreRefused(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{})
	c.Put(t, "/v1/kv/a", "prod")
	const namespaces, partitions = " - Namespaces are a Consul Enterprise feature", " - Partitions are a Consul Enterprise feature"
	for _, row := range []struct{ method, target, body, header, want string }{
		{"PUT", "/v1/kv/a?ns=stage", "stage", "", `Invalid query parameter: "ns"` + namespaces},
		{"GET", "/v1/kv/a?ns=stage", "", "", `Invalid query parameter: "ns"` + namespaces},
		{"DELETE", "/v1/kv/?recurse&partition=p", "", "", `Invalid query parameter: "partition"` + partitions},
		{"PUT", "/v1/kv/a", "stage", "X-Consul-Namespace: stage", `Invalid header: "X-Consul-Namespace"` + namespaces},
		{"PUT", "/v1/kv/a", "stage", "X-Consul-Partition: p", `Invalid header: "X-Consul-Partition"` + partitions},
		{"GET", "/v1/status/leader?ns=stage", "", "", `Invalid query parameter: "ns"` + namespaces},
		{"GET", "/v1/session/list?ns=stage", "", "", `Invalid query parameter: "ns"` + namespaces},
		{"PUT", "/v1/session/create", `{"Namespace":"stage"}`, "", `Invalid field: "Namespace"` + namespaces},
		{"PUT", "/v1/session/create", `{"ServiceChecks":[{"ID":"c","Namespace":"stage"}]}`, "", `Invalid field: "Namespace"` + namespaces},
		{"PUT", "/v1/txn", `[{"KV":{"Verb":"set","Key":"a","Value":"eA==","Namespace":"stage"}}]`, "", `Invalid field: "Namespace"` + namespaces},
		{"GET", "/v1/health/service/web?ns=stage", "", "", `Invalid query parameter: "ns"` + namespaces},
		{"GET", "/v1/catalog/nodes?partition=p", "", "", `Invalid query parameter: "partition"` + partitions},
		{"PUT", "/v1/agent/service/register", `{"Name":"web","Namespace":"stage"}`, "", `Invalid field: "Namespace"` + namespaces},
		{"PUT", "/v1/agent/service/register", `{"Name":"web","Partition":"p"}`, "", `Invalid field: "Partition"` + partitions},
		{"PUT", "/v1/agent/service/register", `{"Name":"web","Check":{"TTL":"1s","namespace":"stage"}}`, "", `Invalid field: "Namespace"` + namespaces},
		{"PUT", "/v1/agent/check/register", `{"Name":"c","TTL":"1s","Namespace":"stage"}`, "", `Invalid field: "Namespace"` + namespaces},
		{"PUT", "/v1/catalog/register", `{"Node":"n","Address":"a","Partition":"p"}`, "", `Invalid field: "Partition"` + partitions},
		{"PUT", "/v1/catalog/register", `{"Node":"n","Address":"a","Service":{"Service":"s","Namespace":"stage"}}`, "", `Invalid field: "Namespace"` + namespaces},
		{"PUT", "/v1/catalog/deregister", `{"Node":"n","Namespace":"stage"}`, "", `Invalid field: "Namespace"` + namespaces},
	} {
		var headers []string
		if row.header != "" {
			headers = append(headers, row.header)
		}
		c.Send(row.method, row.target, row.body, headers...).Is(t, 400, row.want, "%s %s %s %s", row.method, row.target, row.body, row.header)
	}
	got := c.Get("/v1/kv/a?raw&ns=default&partition=default")
	expect.That(t, got.Body == "prod", "the key of the default namespace is %q afterwards, want prod", got.Body)
	c.Send("PUT", "/v1/session/create", `{"Namespace":"default","Partition":""}`).Says(t, 200, "", "a session in the default namespace")
}

func TestConsulDatacentersHaveNoPath(t *testing.T) {
	for _, row := range []struct{ configured, own string }{{"", "dc1"}, {"north", "north"}} {
		c := httpdtest.NewCoordinated(t, httpd.Config{Datacenter: row.configured})
		for _, path := range []string{"/v1/status/leader", "/v1/status/peers", "/v1/session/list", "/v1/kv/?keys"} {
			sep := "?"
			if strings.Contains(path, "?") {
				sep = "&"
			}
			for _, dc := range []string{"", row.own} {
				c.Get(path+sep+"dc="+dc).Says(t, 200, "", "%s of %q", path, dc)
			}
			c.Get(path+sep+"dc=other").Is(t, 500, "No path to datacenter", "%s elsewhere", path)
		}
	}
}

func TestConsulStatusShowsLeaderAndPeers(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{})
	c.Get("/v1/status/leader").Is(t, 200, `"10.0.0.1:7761"`, "the leader").With(t, "Content-Type", "application/json")
	got := c.Get("/v1/status/peers")
	expect.That(t, got.Body == `["10.0.0.1:7761","10.0.0.2:7761"]`, "the voters: got %d %s", got.Status, got.Body)
}

func TestCoordinationErrorsHaveTheStatusesOfTheirAPI(t *testing.T) {
	for _, row := range []struct {
		name       string
		err        error
		status     int // of a write in Consul's API
		text       string
		own        int // of a write in ours
		wants      string
		unknown    bool
		readStatus int
		readText   string
	}{
		{"no leader", registry.ErrNoLeader, 500, "No cluster leader", 503, "no leader", false, 500, "No cluster leader"},
		{"shutting down", registry.ErrClosed, 500, "this node is shutting down; ask another one", 503, "shutting down", false, 500, "this node is shutting down; ask another one"},
		{"unknown outcome", registry.ErrUnknownOutcome, 504, "it is not known whether the operation took effect; read before trying again", 504, "it is not known", true, 504, ""},
		{"too large", registry.ErrTooLarge, 413, "Request Entity Too Large", 413, "Too Large", false, 413, ""},
		{"unreadable", registry.ErrUnreadable, 501, "the leader runs another version of Rollcall and does not know this operation, so nothing was done: try again when all nodes of the cluster run the same version", 501, "so nothing was done", false, 501, ""},
		{"above the level", &registry.LevelError{Text: "needs all nodes at 0.2; n2 runs 0.1"}, 500, "needs all nodes at 0.2; n2 runs 0.1", 501, "needs all nodes at 0.2; n2 runs 0.1", false, 500, ""},
		{"something else", http.ErrBodyNotAllowed, 500, "", 500, "Internal Server Error", false, 500, ""},
	} {
		httpdtest.Bubble(t, func(t *testing.T) {
			c := httpdtest.NewCoordinated(t, httpd.Config{})
			c.Kv.Fail(row.err)
			got := c.Send("PUT", "/v1/kv/a", "")
			expect.That(t, got.Status == row.status && got.Body == row.text && (got.Header.Get("X-Rollcall-Outcome") == "unknown") == row.unknown, "%s: got %d %q, outcome %q; want %d %q", row.name, got.Status, got.Body, got.Header.Get("X-Rollcall-Outcome"), row.status, row.text)
			got = c.Send("POST", "/v1/rollcall/sessions", "")
			expect.That(t, got.Status == row.own && strings.Contains(got.Body, row.wants) && json.Valid([]byte(got.Body)),
				"%s, ours: got %d %q, want %d and %q", row.name, got.Status, got.Body, row.own, row.wants)
			if row.readText == "" {
				return
			}
			c.Get("/v1/kv/a").Is(t, row.readStatus, row.readText, "%s, a read", row.name)
		})
	}
}

func TestConsulSessionIsCreatedAsInConsul(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{})
	for _, row := range []struct{ name, body, want string }{
		{"nothing said", "", `"Name":"","Node":"rollcall","LockDelay":15000000000,"Behavior":"release","TTL":"","NodeChecks":["serfHealth"],"ServiceChecks":null,`},
		{"null", "null", `"NodeChecks":["serfHealth"]`},
		{"names without case", `{"name":"n","BEHAVIOR":"delete","ttl":"10s","unknown":{"a":[1]}}`, `"Name":"n","Node":"rollcall","LockDelay":15000000000,"Behavior":"delete","TTL":"10s"`},
		{"the node's name", `{"Node":"rollcall"}`, `"Node":"rollcall"`},
		{"a TTL is echoed as given", `{"TTL":"90000ms"}`, `"TTL":"90000ms"`},
		{"a TTL of nothing", `{"TTL":"0s"}`, `"TTL":"0s"`},
		{"the longest TTL", `{"TTL":"86400s"}`, `"TTL":"86400s"`},
		{"lock-delay as text", `{"LockDelay":"2000ms"}`, `"LockDelay":2000000000`},
		{"lock-delay in seconds", `{"LockDelay":999}`, `"LockDelay":999000000000`},
		{"lock-delay in nanoseconds", `{"LockDelay":1000}`, `"LockDelay":1000,`},
		{"no lock-delay", `{"LockDelay":0}`, `"LockDelay":0,`},
		{"no lock-delay as text", `{"LockDelay":"0s"}`, `"LockDelay":0,`},
		{"a negative lock-delay", `{"LockDelay":-5}`, `"LockDelay":0,`},
		{"a negative lock-delay as text", `{"LockDelay":"-5s"}`, `"LockDelay":0,`},
		{"lock-delay null", `{"LockDelay":null}`, `"LockDelay":15000000000`},
		{"no checks", `{"NodeChecks":[]}`, `"TTL":"","NodeChecks":[],"ServiceChecks":null`},
		{"checks null", `{"NodeChecks":null}`, `"NodeChecks":[]`},
		{"legacy checks, empty", `{"Checks":[],"NodeChecks":["serfHealth"]}`, `"TTL":"","NodeChecks":[]`},
		{"legacy checks, null", `{"Checks":null}`, `"TTL":"","NodeChecks":[]`},
		{"legacy checks, the default", `{"Checks":["serfHealth"]}`, `"TTL":"","NodeChecks":["serfHealth"]`},
	} {
		id := c.Session(t, row.body)
		expect.That(t, regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(id),
			"%s: the id is %q, want a random UUID", row.name, id)
		got := c.Get("/v1/session/info/" + strings.ToUpper(id))
		expect.That(t, got.Status == 200 && strings.HasPrefix(got.Body, `[{"ID":"`+id+`",`) && strings.Contains(got.Body, row.want),
			"%s: got %d %s, want %s", row.name, got.Status, got.Body, row.want)
	}
}

// TestConsulSessionLivesTwiceItsTTL: a session of Rollcall's own API ends at its TTL.
func TestConsulSessionLivesTwiceItsTTL(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{})
	for _, row := range []struct {
		name, ttl string
		consul    bool
		want      time.Duration
	}{
		{"consul's", "15s", true, 30 * time.Second},
		{"consul's, the longest", "24h", true, 48 * time.Hour},
		{"consul's without an end", "0s", true, 0},
		{"our own", "15s", false, 15 * time.Second},
	} {
		var id string
		if row.consul {
			id = c.Session(t, `{"TTL":"`+row.ttl+`"}`)
		} else {
			id = httpdtest.DecodeReply[struct{ ID string }](t, c.Send("POST", "/v1/rollcall/sessions", `{"ttl":"`+row.ttl+`"}`)).ID
		}
		shown := httpdtest.DecodeReply[struct {
			TTL    string
			EndsIn int64 `json:"ends_in_ms"`
		}](t, c.Get("/v1/rollcall/sessions/"+id))
		passed := row.want - time.Duration(shown.EndsIn)*time.Millisecond // since it was made
		expect.That(t, shown.TTL == row.ttl && passed >= 0 && passed <= 10*time.Second,
			"%s: the TTL is shown as %s, and it ends in %d ms; want %s and %v", row.name, shown.TTL, shown.EndsIn, row.ttl, row.want)
	}
}

func TestConsulSessionThatCannotBeCreatedSaysWhyInConsulsWords(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{})
	for _, row := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"no JSON", "{", 400, "Request decode failed: unexpected end of JSON input"},
		{"257 checks", `{"ServiceChecks":[` + strings.Repeat(`{"ID":"a"},`, 256) + `{"ID":"a"}]}`, 400, "Too many checks: a session may depend on 256, not on 257"},
		{"a list", "[]", 400, "Request decode failed: json: cannot unmarshal array into Go value of type consul.sessionBody"},
		{"a TTL that is no text", `{"TTL":10}`, 400, "Request decode failed: json: cannot unmarshal number into Go struct field sessionBody.TTL of type string"},
		{"a lock-delay that is no duration", `{"LockDelay":"x"}`, 400, `Request decode failed: time: invalid duration "x"`},
		{"a lock-delay that is an object", `{"LockDelay":{}}`, 400, `Request decode failed: strconv.ParseFloat: parsing "{}": invalid syntax`},
		{"an unknown behavior", `{"Behavior":"x"}`, 500, "Invalid Behavior setting 'x'"},
		{"a TTL that is none", `{"TTL":"x"}`, 500, `Session TTL 'x' invalid: time: invalid duration "x"`},
		{"a TTL too short", `{"TTL":"9s"}`, 500, "Invalid Session TTL '9000000000', must be between [10s=24h0m0s]"},
		{"a TTL too long", `{"TTL":"24h1s"}`, 500, "Invalid Session TTL '86401000000000', must be between [10s=24h0m0s]"},
		{"a negative TTL", `{"TTL":"-10s"}`, 500, "Invalid Session TTL '-10000000000', must be between [10s=24h0m0s]"},
		{"an unknown node", `{"Node":"nowhere"}`, 500, "apply failed: Missing node registration"},
		{"an unknown check", `{"NodeChecks":["x"]}`, 500, "apply failed: Missing check 'x' registration"},
		{"an unknown check of a service", `{"ServiceChecks":[{"ID":"x"}]}`, 500, "apply failed: Missing check 'x' registration"},
		{"an unknown legacy check", `{"Checks":["x"]}`, 500, "apply failed: Missing check 'x' registration"},
		{"too much", `{"Name":"` + strings.Repeat("x", 64<<10) + `"}`, 413, "Request Entity Too Large"},
	} {
		got := c.Send("PUT", "/v1/session/create", row.body)
		expect.That(t, got.Status == row.status && got.Body == row.want && strings.HasPrefix(got.Header.Get("Content-Type"), "text/plain"),
			"%s: got %d %q, want %d %q as plain text", row.name, got.Status, got.Body, row.status, row.want)
	}
}

func TestConsulSessionEndsWithItsChecks(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{})
	check := func(id string, status catalog.CheckStatus) *catalog.Check {
		return &catalog.Check{ID: id, Name: id, Status: status}
	}
	c.Perform(t, registry.RegisterCatalog{Checks: []*catalog.Check{check("fine", catalog.Passing), check("bad", catalog.Critical)}})
	c.Send("PUT", "/v1/session/create", `{"NodeChecks":["bad"]}`).Is(t, 500, "apply failed: Check 'bad' is in critical state", "on a critical check")
	for _, row := range []struct{ body, want string }{
		{`{"NodeChecks":["fine"]}`, `"TTL":"","NodeChecks":["fine"],"ServiceChecks":null`},
		{`{"Checks":["fine"]}`, `"Checks":["fine"],"NodeChecks":["serfHealth"]`},
		{`{"Checks":["fine"],"NodeChecks":[]}`, `"Checks":["fine"],"NodeChecks":[]`},
		{`{"ServiceChecks":[{"ID":"fine"}]}`, `"NodeChecks":["serfHealth"],"ServiceChecks":[{"ID":"fine","Namespace":""}]`},
	} {
		id := c.Session(t, row.body)
		got := c.Get("/v1/session/info/" + id)
		expect.That(t, strings.Contains(got.Body, row.want), "%s is shown as %s, want %s", row.body, got.Body, row.want)
	}
	plain := c.Session(t, "")
	c.Perform(t, registry.SetCheck{Check: "fine", Status: catalog.Critical})
	got := httpdtest.DecodeReply[[]struct{ ID string }](t, c.Get("/v1/session/list"))
	expect.That(t, len(got) == 1 && got[0].ID == plain, "when the check turned critical, %v are left, want the one without it", got)
}

func TestConsulSessionIsListedRenewedAndDestroyed(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{})
	c.Get("/v1/session/list").Is(t, 200, "[]", "no session").With(t, "X-Consul-Index", "1")
	id := c.Session(t, `{"TTL":"10s"}`)
	c.Put(t, "/v1/kv/other", "") // does not change any session's index
	for path, want := range map[string]int{
		"/v1/session/list": 1, "/v1/session/node/rollcall": 1, "/v1/session/node/other": 0, "/v1/session/info/" + id: 1, "/v1/session/info/unknown": 0,
	} {
		got := c.Get(path)
		expect.That(t, len(httpdtest.DecodeReply[[]struct{ ID string }](t, got)) == want && got.Header.Get("X-Consul-Index") == "1", "%s: got %s, index %s; want %d of index 1", path, got.Body, got.Header.Get("X-Consul-Index"), want)
	}
	renewed := c.Send("PUT", "/v1/session/renew/"+strings.ToUpper(id), "{}")
	list := httpdtest.DecodeReply[[]struct{ ID, TTL string }](t, renewed)
	expect.That(t, len(list) == 1 && list[0].ID == id && list[0].TTL == "10s" && renewed.Header.Get("X-Consul-Index") == "", "renewed: got %s, index %q", renewed.Body, renewed.Header.Get("X-Consul-Index"))
	for _, row := range []struct {
		method, path string
		status       int
		want         string
	}{
		{"PUT", "/v1/session/destroy/" + id, 200, "true"},
		{"PUT", "/v1/session/destroy/" + id, 200, "true"},
		{"PUT", "/v1/session/destroy/x/y", 200, "true"},
		{"PUT", "/v1/session/renew/Gone", 404, "Session id 'Gone' not found"},
		{"PUT", "/v1/session/destroy/", 400, "Missing session"},
		{"PUT", "/v1/session/renew/", 400, "Missing session"},
		{"GET", "/v1/session/info/", 400, "Missing session"},
		{"GET", "/v1/session/node/", 400, "Missing node name"},
		{"GET", "/v1/session/info/" + id, 200, "[]"},
		{"GET", "/v1/session/list", 200, "[]"},
	} {
		c.Send(row.method, row.path, "").Is(t, row.status, row.want, "%s %s", row.method, row.path)
	}
	expect.Equal(t, c.Get("/v1/session/list").Header.Get("X-Consul-Index"), "3", "the index of the end is")
}

func TestConsulSessionEndsByItsTTLAndItsLockIsDelayed(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{})
	c.Kv.Pass(time.Hour) // the grace of a young leader is over
	a, b := c.Session(t, `{"TTL":"10s","LockDelay":"5s"}`), c.Session(t, "")
	c.Put(t, "/v1/kv/lock?acquire="+a, "")
	c.Kv.Pass(19 * time.Second)
	got := c.Send("PUT", "/v1/session/renew/"+a, "")
	need.That(t, got.Status == 200, "renewed in time: %d %s", got.Status, got.Body)
	c.Kv.Pass(19500 * time.Millisecond)
	expect.That(t, c.Get("/v1/session/info/"+a).Body != "[]", "it ended before twice its TTL")
	c.Kv.Pass(2500 * time.Millisecond)
	c.Send("PUT", "/v1/session/renew/"+a, "").Says(t, http.StatusNotFound, "", "renewed too late")
	expect.Equal(t, c.Send("PUT", "/v1/kv/lock?acquire="+b, "").Body, "false", "within the lock-delay:")
	c.Send("PUT", "/v1/txn", `[{"KV":{"Verb":"lock","Key":"lock","Session":"`+b+`"}}]`).Says(t, 409, `failed to lock key \"lock\" due to lock delay`, "in a transaction")
	c.Kv.Pass(6 * time.Second)
	c.Put(t, "/v1/kv/lock?acquire="+b, "")
}

// A node is found by any spelling of its name, and shown with the first one.
func TestConsulNodesAreNamedWithoutCase(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	n.Must(t, "PUT", "/v1/catalog/register", `{"Node":"Win-Host","Address":"10.9.0.1","Service":{"Service":"web","ID":"w1","Port":80},"Check":{"Name":"c","Status":"passing","Node":"win-HOST"}}`)
	for _, target := range []string{"/v1/catalog/node/%s", "/v1/catalog/node-services/%s", "/v1/health/node/%s", "/v1/catalog/node/%s?index=1&wait=1ms"} {
		want := n.Must(t, "GET", fmt.Sprintf(target, "Win-Host"), "")
		got := n.Must(t, "GET", fmt.Sprintf(target, "win-host"), "")
		expect.That(t, strings.Contains(want.Body, `"Node":"Win-Host"`) && got.Body == want.Body && got.Header.Get("X-Consul-Index") == want.Header.Get("X-Consul-Index"),
			"GET %s: got %s, want %s", target, got.Body, want.Body)
	}
	names := func() (all []string) {
		for _, node := range httpdtest.Read[[]*api.Node](t, n, "/v1/catalog/nodes") {
			all = append(all, node.Node+" "+node.Address)
		}
		return all
	}
	n.Must(t, "PUT", "/v1/catalog/register", `{"Node":"win-host","Address":"10.9.0.2","Service":{"Service":"web","ID":"w1","Port":81},"Checks":[{"Node":"WIN-HOST","Name":"c","Status":"critical"}]}`)
	services := httpdtest.Read[[]*api.CatalogService](t, n, "/v1/catalog/service/web")
	need.That(t, fmt.Sprint(names()) == "[Win-Host 10.9.0.2 rollcall 10.1.0.1]" && len(services) == 1 && services[0].ServicePort == 81, "after a registration by another spelling: %v, %+v", names(), services)
	checks := httpdtest.Read[api.HealthChecks](t, n, "/v1/health/node/WIN-host")
	expect.That(t, len(checks) == 1 && checks[0].Status == "critical", "its checks are %+v", checks)
	n.Must(t, "PUT", "/v1/catalog/register", `{"Node":"WIN-HOST","SkipNodeUpdate":true,"Check":{"Name":"d","Status":"passing","ServiceID":"w1"}}`)
	n.Must(t, "PUT", "/v1/catalog/deregister", `{"Node":"wIN-host","CheckID":"c"}`)
	checks = httpdtest.Read[api.HealthChecks](t, n, "/v1/health/node/Win-Host")
	expect.That(t, len(checks) == 1 && checks[0].CheckID == "d", "its checks are %+v", checks)

	// An agent is a node, too: heartbeats through another spelling of its name are its own.
	n.Must(t, "PUT", "/agent/Web-7/v1/agent/service/register", `{"Name":"api","Check":{"TTL":"10s"}}`)
	n.Must(t, "PUT", "/agent/web-7/v1/agent/check/pass/service:api", "")
	n.Must(t, "PUT", "/agent/WEB-7/v1/agent/check/register", `{"Name":"e","TTL":"10s","ServiceID":"api"}`)
	own := httpdtest.Read[map[string]*api.AgentCheck](t, n, "/agent/wEB-7/v1/agent/checks")
	expect.That(t, len(own) == 2 && own["service:api"].Status == "passing", "the agent's checks are %+v", own)

	n.Must(t, "PUT", "/v1/catalog/deregister", `{"Node":"WEB-7"}`)
	n.Must(t, "PUT", "/v1/catalog/deregister", `{"Node":"win-host"}`)
	expect.Equal(t, fmt.Sprint(names()), "[rollcall 10.1.0.1]", "the nodes after all were deregistered are")
	n.Must(t, "PUT", "/v1/catalog/register", `{"Node":"ROLLCALL","Address":"10.9.0.1","NodeMeta":{"rack":"7"}}`)
	expect.Equal(t, fmt.Sprint(names()), "[rollcall 10.1.0.1]", "the logical node by another spelling:")
}

// A node's ID stays with it under another name, as with Consul, and must be a UUID.
func TestConsulNodeIsRenamedByItsID(t *testing.T) {
	n := httpdtest.NewCatalog(t)
	const id, other = "a3b1f0c2-0000-4000-8000-00000000000a", "b3b1f0c2-0000-4000-8000-00000000000b"
	register := func(node, id string) string {
		return fmt.Sprintf(`{"Node":%q,"ID":%q,"Address":"10.9.0.1","Service":{"Service":"web","ID":"w1","Port":80}}`, node, id)
	}
	for id, want := range map[string]string{
		"7": "Bad node ID: uuid string is wrong length", "a3b1f0c2-0000-4000-8000-00000000000g": "Bad node ID: encoding/hex: invalid byte: U+0067 'g'",
		"a3b1f0c200000-4000-8000-00000000000a": "Bad node ID: uuid is improperly formatted",
	} {
		n.Call(t, "PUT", "/v1/catalog/register", register("a", id)).Is(t, 500, want, "the ID %s", id)
	}
	names := func() (all []string) {
		for _, node := range httpdtest.Read[[]*api.Node](t, n, "/v1/catalog/nodes") {
			if node.Node != consul.NodeName {
				all = append(all, node.Node)
			}
		}
		return all
	}
	n.Must(t, "PUT", "/v1/catalog/register", register("old", id))
	n.Must(t, "PUT", "/v1/catalog/register", `{"Node":"old","Address":"10.9.0.1","SkipNodeUpdate":true,"Service":{"Service":"gone"}}`)
	n.Must(t, "PUT", "/v1/catalog/register", register("new", strings.ToUpper(id)))
	services := httpdtest.Read[[]*api.CatalogService](t, n, "/v1/catalog/service/web")
	expect.That(t, fmt.Sprint(names()) == "[new]" && len(services) == 1 && services[0].Node == "new", "after the renaming: %v, %+v", names(), services)
	expect.Equal(t, len(httpdtest.Read[[]*api.CatalogService](t, n, "/v1/catalog/service/gone")), 0, "services that were left on the old node:")
	n.Must(t, "PUT", "/v1/catalog/register", register("NEW", id))
	expect.Equal(t, fmt.Sprint(names()), "[new]", "after a registration by another spelling:")
	n.Must(t, "PUT", "/v1/catalog/register", register("second", other))
	expect.Equal(t, fmt.Sprint(names()), "[new second]", "with another ID:")

	// The name of an agent's node, which is alive, cannot be taken by a node with another ID.
	n.Must(t, "PUT", "/agent/web-7/v1/agent/service/register", `{"Name":"api"}`)
	n.Must(t, "PUT", "/v1/catalog/register", `{"Node":"web-7","ID":"c3b1f0c2-0000-4000-8000-00000000000c","Address":"10.9.0.7"}`)
	n.Call(t, "PUT", "/v1/catalog/register", register("web-7", id)).Is(t, 500, `Error while renaming Node ID: "`+id+`": Node name web-7 is reserved by node c3b1f0c2-0000-4000-8000-00000000000c with name web-7 (10.9.0.7)`, "a name that is taken")
	expect.Equal(t, fmt.Sprint(names()), "[new second web-7]", "after the refusal:")
}
