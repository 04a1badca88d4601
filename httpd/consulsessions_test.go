package httpd_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestConsulSessionIsCreatedAsInConsul(t *testing.T) {
	c := newCoordinated(t, httpd.Config{})
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
		id := c.session(t, row.body)
		expect.That(t, regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(id),
			"%s: the id is %q, want a random UUID", row.name, id)
		got := c.get("/v1/session/info/" + strings.ToUpper(id))
		expect.That(t, got.status == 200 && strings.HasPrefix(got.body, `[{"ID":"`+id+`",`) && strings.Contains(got.body, row.want),
			"%s: got %d %s, want %s", row.name, got.status, got.body, row.want)
	}
}

// TestConsulSessionLivesTwiceItsTTL: that of Rollcall's own API ends at its TTL.
func TestConsulSessionLivesTwiceItsTTL(t *testing.T) {
	c := newCoordinated(t, httpd.Config{})
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
			id = c.session(t, `{"TTL":"`+row.ttl+`"}`)
		} else {
			id = decodeReply[struct{ ID string }](t, c.send("POST", "/v1/rollcall/sessions", `{"ttl":"`+row.ttl+`"}`)).ID
		}
		shown := decodeReply[struct {
			TTL    string
			EndsIn int64 `json:"ends_in_ms"`
		}](t, c.get("/v1/rollcall/sessions/"+id))
		passed := row.want - time.Duration(shown.EndsIn)*time.Millisecond // since it was made
		expect.That(t, shown.TTL == row.ttl && passed >= 0 && passed <= 10*time.Second,
			"%s: the TTL is shown as %s, and it ends in %d ms; want %s and %v", row.name, shown.TTL, shown.EndsIn, row.ttl, row.want)
	}
}

func TestConsulSessionThatCannotBeCreatedSaysWhyInConsulsWords(t *testing.T) {
	c := newCoordinated(t, httpd.Config{})
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
		got := c.send("PUT", "/v1/session/create", row.body)
		expect.That(t, got.status == row.status && got.body == row.want && strings.HasPrefix(got.header.Get("Content-Type"), "text/plain"),
			"%s: got %d %q, want %d %q as plain text", row.name, got.status, got.body, row.status, row.want)
	}
}

func TestConsulSessionEndsWithItsChecks(t *testing.T) {
	c := newCoordinated(t, httpd.Config{})
	check := func(id string, status catalog.CheckStatus) *catalog.Check {
		return &catalog.Check{ID: id, Name: id, Status: status}
	}
	c.Perform(t, registry.RegisterCatalog{Checks: []*catalog.Check{check("fine", catalog.Passing), check("bad", catalog.Critical)}})
	c.send("PUT", "/v1/session/create", `{"NodeChecks":["bad"]}`).is(t, 500, "apply failed: Check 'bad' is in critical state", "on a critical check")
	for _, row := range []struct{ body, want string }{
		{`{"NodeChecks":["fine"]}`, `"TTL":"","NodeChecks":["fine"],"ServiceChecks":null`},
		{`{"Checks":["fine"]}`, `"Checks":["fine"],"NodeChecks":["serfHealth"]`},
		{`{"Checks":["fine"],"NodeChecks":[]}`, `"Checks":["fine"],"NodeChecks":[]`},
		{`{"ServiceChecks":[{"ID":"fine"}]}`, `"NodeChecks":["serfHealth"],"ServiceChecks":[{"ID":"fine","Namespace":""}]`},
	} {
		id := c.session(t, row.body)
		got := c.get("/v1/session/info/" + id)
		expect.That(t, strings.Contains(got.body, row.want), "%s is shown as %s, want %s", row.body, got.body, row.want)
	}
	plain := c.session(t, "")
	c.Perform(t, registry.SetCheck{Check: "fine", Status: catalog.Critical})
	if got := decodeReply[[]struct{ ID string }](t, c.get("/v1/session/list")); len(got) != 1 || got[0].ID != plain {
		t.Errorf("when the check turned critical, %v are left, want the one without it", got)
	}
}

func TestConsulSessionIsListedRenewedAndDestroyed(t *testing.T) {
	c := newCoordinated(t, httpd.Config{})
	c.get("/v1/session/list").is(t, 200, "[]", "no session").with(t, "X-Consul-Index", "1")
	id := c.session(t, `{"TTL":"10s"}`)
	c.put(t, "/v1/kv/other", "") // which moves no session's index
	for path, want := range map[string]int{
		"/v1/session/list": 1, "/v1/session/node/rollcall": 1, "/v1/session/node/other": 0, "/v1/session/info/" + id: 1, "/v1/session/info/unknown": 0,
	} {
		got := c.get(path)
		expect.That(t, len(decodeReply[[]struct{ ID string }](t, got)) == want && got.header.Get("X-Consul-Index") == "1", "%s: got %s, index %s; want %d of index 1", path, got.body, got.header.Get("X-Consul-Index"), want)
	}
	renewed := c.send("PUT", "/v1/session/renew/"+strings.ToUpper(id), "{}")
	list := decodeReply[[]struct{ ID, TTL string }](t, renewed)
	expect.That(t, len(list) == 1 && list[0].ID == id && list[0].TTL == "10s" && renewed.header.Get("X-Consul-Index") == "", "renewed: got %s, index %q", renewed.body, renewed.header.Get("X-Consul-Index"))
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
		c.send(row.method, row.path, "").is(t, row.status, row.want, "%s %s", row.method, row.path)
	}
	expect.Equal(t, c.get("/v1/session/list").header.Get("X-Consul-Index"), "3", "the index of the end is")
}

func TestConsulSessionEndsByItsTTLAndItsLockIsDelayed(t *testing.T) {
	c := newCoordinated(t, httpd.Config{})
	c.kv.pass(time.Hour) // the grace of a young leader is over
	a, b := c.session(t, `{"TTL":"10s","LockDelay":"5s"}`), c.session(t, "")
	c.put(t, "/v1/kv/lock?acquire="+a, "")
	c.kv.pass(19 * time.Second)
	got := c.send("PUT", "/v1/session/renew/"+a, "")
	need.That(t, got.status == 200, "renewed in time: %d %s", got.status, got.body)
	c.kv.pass(19500 * time.Millisecond)
	expect.That(t, c.get("/v1/session/info/"+a).body != "[]", "it ended before twice its TTL")
	c.kv.pass(2500 * time.Millisecond)
	c.send("PUT", "/v1/session/renew/"+a, "").says(t, http.StatusNotFound, "", "renewed too late")
	expect.Equal(t, c.send("PUT", "/v1/kv/lock?acquire="+b, "").body, "false", "within the lock-delay:")
	c.send("PUT", "/v1/txn", `[{"KV":{"Verb":"lock","Key":"lock","Session":"`+b+`"}}]`).says(t, 409, `failed to lock key \"lock\" due to lock delay`, "in a transaction")
	c.kv.pass(6 * time.Second)
	c.put(t, "/v1/kv/lock?acquire="+b, "")
}
