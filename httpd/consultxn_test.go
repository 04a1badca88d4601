package httpd_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// withFar has node far with a service, a check of it and one of the node.
func withFar(t *testing.T, config httpd.Config) *coordinated {
	t.Helper()
	c := newCoordinated(t, config)
	got := c.send("PUT", "/v1/catalog/register", `{"Node":"far","Address":"10.9.0.1","NodeMeta":{"rack":"7"},
		"Service":{"Service":"web","ID":"w1","Tags":["v1"],"Port":80},"Checks":[{"CheckID":"alive","ServiceID":"w1","Status":"passing"},{"CheckID":"disk","Status":"warning"}]}`)
	need.That(t, got.status == 200, "register: %d %s", got.status, got.body)
	return c
}

func (c *coordinated) txn(ops ...string) reply {
	return c.send("PUT", "/v1/txn", "["+strings.Join(ops, ",")+"]")
}

// indexOf is a member of what a read responds, by path.
func (c *coordinated) indexOf(t *testing.T, path string, members ...any) uint64 {
	t.Helper()
	var at any
	need.OK(t, json.Unmarshal([]byte(c.get(path).body), &at))
	for _, m := range members {
		switch m := m.(type) {
		case int:
			at = at.([]any)[m]
		case string:
			at = at.(map[string]any)[m]
		}
	}
	return uint64(at.(float64))
}

// failed is the response to a transaction of which one operation failed.
func failed(op int, what string) string {
	text, _ := json.Marshal(what)
	return fmt.Sprintf(`{"Results":null,"Errors":[{"OpIndex":%d,"What":%s}]}`, op, text)
}

func TestTransactionOnTheCatalogRespondsWithTheObjects(t *testing.T) {
	c := withFar(t, httpd.Config{})
	got := c.txn(
		`{"Node":{"Verb":"set","Node":{"Node":"new","Address":"10.9.0.2","Meta":{"rack":"8"}}}}`,
		`{"Service":{"Verb":"set","Node":"new","Service":{"ID":"d1","Service":"db","Port":5432,"Meta":{"v":"1"},"Weights":{"Passing":0,"Warning":0}}}}`,
		kvOp(`"Verb":"set","Key":"k","Value":"dg=="`),
		`{"Check":{"Verb":"set","Check":{"Node":"new","CheckID":"up","Name":"is up","ServiceID":"d1","Status":"passing","Output":"fine","Definition":{"Interval":"10s","TCP":"10.9.0.2:5432"}}}}`,
		`{"Check":{"Verb":"get","Check":{"Node":"far","CheckID":"alive"}}}`,
		kvOp(`"Verb":"get","Key":"k"`),
		`{"Check":{"Verb":"delete","Check":{"Node":"far","CheckID":"disk"}}}`,
		`{"Node":{"Verb":"get","Node":{"Node":"rollcall"}}}`,
		`{"Service":{"Verb":"get","Node":"far","Service":{"ID":"w1"}}}`,
	)
	var done struct {
		Results []map[string]map[string]any
		Errors  []any
	}
	need.That(t, got.status == 200, "got %d %s", got.status, got.body)
	need.OK(t, json.Unmarshal([]byte(got.body), &done))
	var said []string
	for _, r := range done.Results {
		need.That(t, len(r) == 1, "result %v has other than one member", r)
		for kind, o := range r {
			switch kind {
			case "KV":
				said = append(said, fmt.Sprintln(kind, o["Key"], o["Value"]))
			case "Node":
				said = append(said, fmt.Sprintln(kind, o["Node"], o["Datacenter"], o["Meta"].(map[string]any)["rack"]))
			case "Service":
				said = append(said, fmt.Sprintln(kind, o["ID"], o["Service"], o["Port"], o["Tags"], o["Meta"], o["Weights"]))
			case "Check":
				said = append(said, fmt.Sprintln(kind, o["Node"], o["CheckID"], o["Status"], o["ServiceName"], o["ServiceTags"], o["Type"]))
			}
		}
	}
	expect.Equal(t, strings.Join(said, ""), `Node new dc1 8
Service d1 db 5432 <nil> map[v:1] map[Passing:1 Warning:1]
KV k <nil>
Check new up passing db <nil> tcp
Check far alive passing web [v1]`+" "+`
KV k dg==
Node rollcall dc1 <nil>
Service w1 web 80 [v1] <nil> map[Passing:1 Warning:1]
`, "results of %s:", got.body)
	for path, want := range map[string]string{
		"/v1/catalog/service/db": `"ServiceAddress":""`, "/v1/health/node/new": `"Output":"fine"`, "/v1/kv/k?raw": "v", "/v1/catalog/node/new": `"rack":"8"`,
	} {
		expect.That(t, strings.Contains(c.get(path).body, want), "%s is %s, want %s in it", path, c.get(path).body, want)
	}
	expect.That(t, !strings.Contains(c.get("/v1/health/node/far").body, "disk"), "the check that was deleted is there")
	c.get("/eureka/apps/DB").says(t, 200, "10.9.0.2", "for Eureka's clients")
}

// consul-esm updates the checks of external nodes so.
func TestTransactionComparesAndSetsByModifyIndex(t *testing.T) {
	c := withFar(t, httpd.Config{})
	for _, o := range []struct {
		path    string
		members []any
		op      string
		stale   string
	}{
		{"/v1/health/node/far", []any{1, "ModifyIndex"}, `{"Check":{"Verb":"cas","Check":{"Node":"far","CheckID":"disk","Status":"critical","Output":"full","ModifyIndex":%d}}}`, `failed to set check "disk" on node "far", index is stale`},
		{"/v1/catalog/nodes", []any{0, "ModifyIndex"}, `{"Node":{"Verb":"cas","Node":{"Node":"far","Address":"10.9.0.3","ModifyIndex":%d}}}`, `failed to set node "far", index is stale`},
		{"/v1/catalog/nodes", []any{1, "ModifyIndex"}, `{"Node":{"Verb":"cas","Node":{"Node":"rollcall","Meta":{"rack":"9"},"ModifyIndex":%d}}}`, `failed to set node "rollcall", index is stale`},
		{"/v1/catalog/node/far", []any{"Services", "w1", "ModifyIndex"}, `{"Service":{"Verb":"cas","Node":"far","Service":{"ID":"w1","Service":"web","Port":81,"ModifyIndex":%d}}}`, `failed to set service "w1" on node "far", index is stale`},
		{"/v1/health/node/far", []any{1, "ModifyIndex"}, `{"Check":{"Verb":"delete-cas","Check":{"Node":"far","CheckID":"disk","ModifyIndex":%d}}}`, `failed to delete check "disk" on node "far", index is stale`},
		{"/v1/catalog/node/far", []any{"Services", "w1", "ModifyIndex"}, `{"Service":{"Verb":"delete-cas","Node":"far","Service":{"ID":"w1","Service":"web","ModifyIndex":%d}}}`, `failed to delete service "w1" on node "far", index is stale`},
		{"/v1/catalog/nodes", []any{0, "ModifyIndex"}, `{"Node":{"Verb":"delete-cas","Node":{"Node":"far","ModifyIndex":%d}}}`, `failed to delete node "far", index is stale`},
	} {
		index := c.indexOf(t, o.path, o.members...)
		for _, stale := range []uint64{0, index - 1, index + 1} {
			c.txn(fmt.Sprintf(o.op, stale)).is(t, 409, failed(0, o.stale), "%s at %d", o.op, stale)
		}
		c.txn(fmt.Sprintf(o.op, index)).says(t, 200, "", "%s at %d", o.op, index)
	}
	expect.Equal(t, c.get("/v1/catalog/node/far").body, "null", "the node, after it was deleted:")
	expect.That(t, strings.Contains(c.get("/v1/catalog/nodes").body, `"rack":"9"`), "the logical node has not the metadata that it was given")
	got := c.txn(`{"Node":{"Verb":"cas","Node":{"Node":"far","Address":"10.9.0.1"}}}`, `{"Check":{"Verb":"cas","Check":{"Node":"far","CheckID":"disk"}}}`,
		`{"Service":{"Verb":"cas","Node":"far","Service":{"Service":"web"}}}`)
	expect.That(t, got.status == 200, "index 0 of what is absent: %d %s", got.status, got.body)
}

func TestTransactionOnTheCatalogNamesWhatIsWrong(t *testing.T) {
	c := withFar(t, httpd.Config{})
	good := `{"Check":{"Verb":"set","Check":{"Node":"far","CheckID":"disk","Status":"critical"}}}`
	before := c.get("/v1/health/state/any")
	for _, row := range []struct{ op, want string }{
		{`{"KV":{"Verb":"x","Key":"k"}}`, "unknown KV operation: x"},
		{`{"Node":{"Verb":"x","Node":{"Node":"far"}}}`, "unknown node operation: x"},
		{`{"Service":{"Verb":"x","Node":"far"}}`, "unknown service operation: x"},
		{`{"Check":{"Verb":"x"}}`, "unknown check operation: x"},
		{`{"Session":{"Verb":"x"}}`, "unknown session operation: x"},
		{`{"Session":{"Verb":"delete"}}`, "missing session"},
		{`{"Intention":{}}`, "unknown operation type"},
		{`{"Node":{"Verb":"get","Node":{"ID":"3f"}}}`, "Must provide node"},
		{`{"Node":{"Verb":"delete"}}`, "Must provide node"},
		{`{"Node":{"Verb":"delete","Node":{"Node":"rollcall"}}}`, `node "rollcall" stands for the cluster itself and is not deleted`},
		{`{"Node":{"Verb":"set","Node":{"Node":".."}}}`, `Invalid node name, it must be 1 to 255 bytes of UTF-8 without control characters, and neither "." nor ".."`},
		{`{"Node":{"Verb":"set","Node":{"Node":"n","Datacenter":"dc2"}}}`, `node "n" is of datacenter "dc2", and this one is "dc1"`},
		{`{"Service":{"Verb":"delete","Service":{"ID":"w1","Service":"web"}}}`, "Must provide node"},
		{`{"Service":{"Verb":"delete","Node":"far","Service":{"ID":"w1"}}}`, "Must provide service name (Service.Service) when service ID is provided"},
		{`{"Service":{"Verb":"set","Node":"far","Service":{}}}`, "service name (Service.Service) is required; both Service ID (Service.ID) and Service Name cannot be empty"},
		{`{"Service":{"Verb":"set","Node":"far","Service":{"Service":"web","Port":-1}}}`, "Invalid service port -1, it must be from 0 to 65535"},
		{`{"Service":{"Verb":"set","Node":"rollcall","Service":{"Service":"consul","ID":"consul"}}}`, `Invalid service id, "consul" stands for the cluster itself`},
		{`{"Service":{"Verb":"set","Node":"none","Service":{"Service":"web"}}}`, "Missing node registration"},
		{`{"Service":{"Verb":"set","Node":"far","Service":{"Service":"WEB","ID":"w2"}}}`, `failed to set service "w2" on node "far", names that differ in case only are one application, and it has another spelling already`},
		{`{"Service":{"Verb":"get","Node":"far","Service":{}}}`, `service "" on node "far" doesn't exist`},
		{`{"Check":{"Verb":"get","Check":{"Node":"far"}}}`, `check "" on node "far" doesn't exist`},
		{`{"Check":{"Verb":"set","Check":{"Node":"far"}}}`, "Must provide check id (Check.CheckID) or name (Check.Name)"},
		{`{"Check":{"Verb":"set","Check":{"CheckID":"c"}}}`, "Must provide node"},
		{`{"Check":{"Verb":"set","Check":{"Node":"far","CheckID":"c","Status":"well"}}}`, "Invalid check status: 'well'"},
		{`{"Check":{"Verb":"set","Check":{"Node":"far","CheckID":"c","ServiceID":"none"}}}`, "Missing service registration"},
		{`{"Check":{"Verb":"set","Check":{"Node":"none","CheckID":"c"}}}`, "Missing node registration"},
	} {
		c.txn(good, kvOp(`"Verb":"set","Key":"k"`), row.op).is(t, 409, failed(2, row.want), "%s", row.op)
	}
	after := c.get("/v1/health/state/any")
	expect.That(t, after.body == before.body && after.header.Get("X-Consul-Index") == before.header.Get("X-Consul-Index"),
		"all were refused, and the checks at %s are\n%s\nbefore at %s:\n%s", after.header.Get("X-Consul-Index"), after.body, before.header.Get("X-Consul-Index"), before.body)
	expect.Equal(t, c.get("/v1/kv/k").status, 404, "the key's status:")
	for body, want := range map[string]string{
		`{"Node":{"Verb":"set","Node":[]}}`: "Failed to parse body: want an object, got [",
		`{"Check":{"Verb":1}}`:              "Failed to parse body: Verb: json: cannot unmarshal number into Go value of type string",
		`{"Service":{"Verb":"get","Node":"far","Service":{"Namespace":"ns1"}}}`: `Invalid field: "Namespace" - Namespaces are a Consul Enterprise feature`,
	} {
		c.txn(body).is(t, 400, want, "%s", body)
	}
}

func TestTransactionThatReadsTheCatalogAloneIsARead(t *testing.T) {
	c := withFar(t, httpd.Config{})
	applied := c.kv.applied.Load()
	body := `[{"Node":{"Verb":"get","Node":{"Node":"far"}}},{"Check":{"Verb":"get","Check":{"Node":"rollcall","CheckID":"serfHealth"}}}]`
	for query, mode := range map[string]string{"": "consistent", "?stale": "stale"} {
		got := c.send("PUT", "/v1/txn"+query, body)
		expect.That(t, got.status == 200 && got.header.Get("X-Consul-Effective-Consistency") == mode && strings.Contains(got.body, `"rack":"7"`) && strings.Contains(got.body, "Serf Health Status"),
			"%q: got %d %s, %s", query, got.status, got.body, got.header.Get("X-Consul-Effective-Consistency"))
	}
	expect.Equal(t, c.kv.applied.Load(), applied, "operations applied:")
}

func TestTransactionOnTheCatalogIsBoundAsRegistrationsAre(t *testing.T) {
	c := withFar(t, httpd.Config{Limits: web.Limits{InstancesInApp: 1}})
	second := `{"Service":{"Verb":"set","Node":"far","Service":{"ID":"w2","Service":"web"}}}`
	c.txn(kvOp(`"Verb":"set","Key":"k"`), second).is(t, 429, "the application has too many instances", "one instance too many")
	expect.Equal(t, c.get("/v1/kv/k").status, 404, "the key's status:")
	c.txn(strings.Replace(second, "w2", "w1", 1)).says(t, 200, "", "the same instance again")
}

func TestTransactionOnTheCatalogIsPerformedOncePerKey(t *testing.T) {
	c := withFar(t, httpd.Config{})
	body := `[{"Node":{"Verb":"cas","Node":{"Node":"new","Address":"10.9.0.2"}}}]` // fails if it is performed twice
	first := c.send("PUT", "/v1/txn", body, "Idempotency-Key: k1")
	again := c.send("PUT", "/v1/txn", body, "Idempotency-Key: k1")
	expect.That(t, first.status == 200 && again.status == 200 && first.body == again.body, "first %d %s, again %d %s", first.status, first.body, again.status, again.body)
	withService := `[{"Node":{"Verb":"cas","Node":{"Node":"host","Address":"10.9.0.4"}}},{"Service":{"Verb":"set","Node":"host","Service":{"Service":"api"}}}]`
	done := c.send("PUT", "/v1/txn", withService, "Idempotency-Key: k2")
	repeated := c.send("PUT", "/v1/txn", withService, "Idempotency-Key: k2") // now the node has an address
	expect.That(t, done.status == 200 && repeated.status == 200 && done.body == repeated.body, "first %d %s, again %d %s", done.status, done.body, repeated.status, repeated.body)
	c.send("PUT", "/v1/txn", strings.Replace(body, "new", "newer", 1), "Idempotency-Key: k1").says(t, 500, "was used for another operation", "another one")
}

func TestTransactionEndsSessions(t *testing.T) {
	c := withFar(t, httpd.Config{})
	session := c.session(t, "")
	c.put(t, "/v1/kv/held?acquire="+session, "v")
	got := c.txn(`{"Session":{"Verb":"delete","Session":{"ID":"`+session+`"}}}`, kvOp(`"Verb":"get","Key":"held"`))
	expect.That(t, got.status == 200 && !strings.Contains(got.body, session), "got %d %s, want the key without its holder", got.status, got.body)
	expect.Equal(t, c.get("/v1/session/info/"+session).body, "[]", "the session:")
}
