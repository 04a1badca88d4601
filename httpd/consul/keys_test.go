package consul_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/httpdtest"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestKeyIsWrittenReadAndDeletedAsInConsul(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{})
	for _, row := range []struct {
		name, method, target, body string
		status                     int
		want                       string
	}{
		{"nothing yet", "GET", "/v1/kv/a", "", 404, ""},
		{"no tree yet", "GET", "/v1/kv/a?recurse", "", 404, ""},
		{"no names yet", "GET", "/v1/kv/a?keys", "", 404, ""},
		{"no names at all", "GET", "/v1/kv/?keys", "", 200, "[]"},
		{"set", "PUT", "/v1/kv/a?flags=18446744073709551615", "v1", 200, "true"},
		{"get", "GET", "/v1/kv/a", "", 200, `[{"LockIndex":0,"Key":"a","Flags":18446744073709551615,"Value":"djE=","CreateIndex":1,"ModifyIndex":1}]`},
		{"get raw", "GET", "/v1/kv/a?raw", "", 200, "v1"},
		{"an empty value", "PUT", "/v1/kv/a/b", "", 200, "true"},
		{"is null", "GET", "/v1/kv/a/b", "", 200, `[{"LockIndex":0,"Key":"a/b","Flags":0,"Value":null,"CreateIndex":2,"ModifyIndex":2}]`},
		{"a tree is a prefix", "PUT", "/v1/kv/ab", "x", 200, "true"},
		{"names", "GET", "/v1/kv/a?keys", "", 200, `["a","a/b","ab"]`},
		{"names cut", "GET", "/v1/kv/a?keys&separator=/", "", 200, `["a","a/","ab"]`},
		{"names cut, misspelled", "GET", "/v1/kv/a?keys&seperator=/", "", 200, `["a","a/","ab"]`},
		{"create what is there", "PUT", "/v1/kv/a?cas=0", "x", 200, "false"},
		{"create what is not", "PUT", "/v1/kv/c?cas=0", "x", 200, "true"},
		{"replace an older one", "PUT", "/v1/kv/a?cas=7", "x", 200, "false"},
		{"replace", "PUT", "/v1/kv/a?cas=1", "x", 200, "true"},
		{"release what is not held", "PUT", "/v1/kv/a?release=x", "x", 200, "false"},
		{"delete an older one", "DELETE", "/v1/kv/a?cas=1", "", 200, "false"},
		{"delete by index", "DELETE", "/v1/kv/a?cas=5", "", 200, "true"},
		{"delete by index what is gone", "DELETE", "/v1/kv/a?cas=5", "", 200, "true"},
		{"delete a tree", "DELETE", "/v1/kv/a?recurse", "", 200, "true"},
		{"delete", "DELETE", "/v1/kv/c", "", 200, "true"},
		{"delete what is gone", "DELETE", "/v1/kv/c", "", 200, "true"},
		{"nothing is left", "GET", "/v1/kv/?keys", "", 200, "[]"},
		{"no key", "GET", "/v1/kv/", "", 400, "Missing key name"},
		{"no key to set", "PUT", "/v1/kv/", "", 400, "Missing key name"},
		{"no key to delete", "DELETE", "/v1/kv/", "", 400, "Missing key name"},
		{"cas and acquire", "PUT", "/v1/kv/a?cas=1&acquire=x", "", 400, "Conflicting flags: acquire=x&cas=1\n"},
		{"cas and release", "PUT", "/v1/kv/a?cas=1&release=x", "", 400, "Conflicting flags: cas=1&release=x\n"},
		{"acquire and release", "PUT", "/v1/kv/a?acquire=x&release=x", "", 400, "Conflicting flags: acquire=x&release=x\n"},
		{"recurse and cas", "DELETE", "/v1/kv/a?recurse&cas=1", "", 400, "Conflicting flags: cas=1&recurse=\n"},
		{"flags that are no number", "PUT", "/v1/kv/a?flags=-1", "", 400, `flags: strconv.ParseUint: parsing "-1": invalid syntax`},
		{"cas that is no number", "PUT", "/v1/kv/a?cas=x", "", 400, `cas: strconv.ParseUint: parsing "x": invalid syntax`},
		{"cas without a number", "DELETE", "/v1/kv/a?cas", "", 400, `cas: strconv.ParseUint: parsing "": invalid syntax`},
		{"acquire without a session", "PUT", "/v1/kv/a?acquire=", "", 500, "raft apply failed: missing session"},
		{"release without a session", "PUT", "/v1/kv/a?release=", "", 500, "raft apply failed: missing session"},
		{"acquire with a dead session", "PUT", "/v1/kv/a?acquire=dead", "", 500, `raft apply failed: invalid session "dead"`},
	} {
		c.Send(row.method, row.target, row.body).Is(t, row.status, row.want, "%s: %s %s", row.name, row.method, row.target)
	}
}

func TestKeyNameIsTakenAsItComes(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{})
	for _, row := range []struct{ path, key string }{
		{"a//b", "a//b"},
		{"/a", "/a"},
		{"a%2Fb%2f", "a/b/"},
		{"a/../b", "a/../b"},
		{"./a/.", "./a/."},
		{"..", ".."},
		{"a%20b%3F", "a b?"},
		{"%25", "%"},
		{"a+b", "a+b"},
		{"%C3%A9", "é"},
		{"é", "é"},
		{"a/", "a/"},
		{strings.Repeat("k", 8000), strings.Repeat("k", 8000)},
	} {
		c.Put(t, "/v1/kv/"+row.path, "")
		entries := httpdtest.DecodeReply[[]struct{ Key string }](t, c.Get("/v1/kv/"+row.path))
		expect.That(t, len(entries) == 1 && entries[0].Key == row.key, "%.50s: got %.50v, want %.50s", row.path, entries, row.key)
	}
	for _, row := range []struct {
		name, path string
		status     int
	}{
		{"too long", "/v1/kv/" + strings.Repeat("k", 8192), 414},
		{"a line break", "/v1/kv/a%0ab", 400},
		{"a zero byte", "/v1/kv/a%00", 400},
		{"not UTF-8", "/v1/kv/a%ff", 400},
		{"too many parameters", "/v1/kv/a?" + strings.Repeat("x&", 32), 400},
		{"a parameter escaped badly", "/v1/kv/a?keys&separator=%zz", 400},
	} {
		c.Send("GET", row.path, "").Says(t, row.status, "", "%s", row.name).With(t, "Location", "")
	}
}

func TestKeyValueHasALimit(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{})
	c.Put(t, "/v1/kv/a", strings.Repeat("x", 512<<10))
	want := "Request body(524289 bytes) too large, max size: 524288 bytes. See docs/reference/protocol/coordination.md."
	c.Send("PUT", "/v1/kv/a", strings.Repeat("x", 512<<10+1)).Is(t, http.StatusRequestEntityTooLarge, want, "it")
	c.Send("PUT", "/v1/txn", strings.Repeat(" ", 512<<10+1)).Is(t, http.StatusRequestEntityTooLarge, want, "a transaction")
	n := httpdtest.NewNode(t, httpd.Config{Service: c.Memory, Coordination: c.Kv}, nil)
	chunked := "PUT /v1/kv/a HTTP/1.1\r\nHost: node\r\nTransfer-Encoding: chunked\r\n\r\n80001\r\n" + strings.Repeat("x", 0x80001) + "\r\n0\r\n\r\n"
	n.Send(t, chunked).Says(t, http.StatusRequestEntityTooLarge, "more than 524288 bytes", "of unknown length")
	broken := "PUT /v1/kv/b HTTP/1.1\r\nHost: node\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
	n.Send(t, broken).Says(t, http.StatusBadRequest, "", "broken off")
	c.Get("/v1/kv/b").Says(t, http.StatusNotFound, "", "what broke off is not stored")
}

func TestKeyRawValueRunsNothing(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{})
	c.Put(t, "/v1/kv/a", "<script>")
	got := c.Get("/v1/kv/a?raw")
	for name, want := range map[string]string{
		"Content-Type": "text/plain", "X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox", "X-Consul-Index": "1",
	} {
		expect.Equal(t, got.Header.Get(name), want, "%s is", name)
	}
	c.Get("/v1/kv/b?raw").Says(t, http.StatusNotFound, "", "an absent one").With(t, "X-Consul-Index", "1")
}

func TestKeyThatIsHeldShowsItsFence(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{})
	a, b := c.Session(t, ""), c.Session(t, "")
	got := c.Put(t, "/v1/kv/lock?acquire="+strings.ToUpper(a), "a")
	fence := got.Header.Get("X-Rollcall-Fence")
	need.That(t, fence == "3", "the fence is %q, want 3, the index of the acquisition", fence)
	if got := c.Send("PUT", "/v1/kv/lock?acquire="+b, "b"); got.Body != "false" || got.Header.Get("X-Rollcall-Fence") != "" {
		t.Errorf("another's acquisition: got %s, fence %q", got.Body, got.Header.Get("X-Rollcall-Fence"))
	}
	if got := c.Get("/v1/kv/lock"); got.Header.Get("X-Rollcall-Fence") != fence || !strings.Contains(got.Body, `"LockIndex":1,"Key":"lock","Flags":0,"Value":"YQ==","Session":"`+a+`"`) {
		t.Errorf("it is read as %s, fence %q", got.Body, got.Header.Get("X-Rollcall-Fence"))
	}
	c.Put(t, "/v1/kv/lock?release="+a, "")
	if got := c.Get("/v1/kv/lock"); got.Header.Get("X-Rollcall-Fence") != "" || strings.Contains(got.Body, "Session") {
		t.Errorf("released, it is read as %s, fence %q", got.Body, got.Header.Get("X-Rollcall-Fence"))
	}
	expect.Equal(t, c.Send("PUT", "/v1/kv/lock?release="+a, "other").Body, "false", "released twice:")
}

func TestKeyWriteWithAStaleFenceChangesNothing(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{})
	a := c.Session(t, `{"LockDelay":0}`)
	stale := c.Put(t, "/v1/kv/lock?acquire="+a, "").Header.Get("X-Rollcall-Fence")
	c.Put(t, "/v1/session/destroy/"+a, "")
	b := c.Session(t, `{"LockDelay":0}`)
	now := c.Put(t, "/v1/kv/lock?acquire="+b, "b").Header.Get("X-Rollcall-Fence")
	c.Put(t, "/v1/kv/data", "b's")
	for _, row := range []struct{ name, method, target, body, fence string }{
		{"own key, stale", "PUT", "/v1/kv/lock?fence=" + stale, "false", now},
		{"own key", "PUT", "/v1/kv/lock?fence=" + now, "true", now},
		{"another key, stale", "PUT", "/v1/kv/data?fence=" + stale + "&fence-key=lock", "false", now},
		{"another key", "PUT", "/v1/kv/data?fence=" + now + "&fence-key=lock", "true", "0"},
		{"a key that is not held", "PUT", "/v1/kv/data?fence=" + now, "false", "0"},
		{"a lock that is not held", "PUT", "/v1/kv/data?fence=" + now + "&fence-lock=lock", "false", "0"},
		{"a semaphore that is not held", "PUT", "/v1/kv/data?fence=" + now + "&fence-semaphore=lock", "false", "0"},
		{"never acquired", "PUT", "/v1/kv/data?fence=0", "false", "0"},
		{"delete, stale", "DELETE", "/v1/kv/data?fence=" + stale + "&fence-key=lock", "false", now},
		{"delete a tree, stale", "DELETE", "/v1/kv/da?recurse&fence=" + stale + "&fence-key=lock", "false", now},
		{"delete", "DELETE", "/v1/kv/data?fence=" + now + "&fence-key=lock", "true", "0"},
	} {
		before := c.Get("/v1/kv/?recurse").Header.Get("X-Consul-Index")
		c.Send(row.method, row.target, row.name).Is(t, 200, row.body, "%s", row.name).With(t, "X-Rollcall-Fence", row.fence)
		after := c.Get("/v1/kv/?recurse").Header.Get("X-Consul-Index")
		expect.That(t, (after == before) == (row.body == "false"), "%s: the index went from %s to %s", row.name, before, after)
	}
	for _, query := range []string{"fence=x", "fence=", "fence=1&fence-key=a&fence-lock=a", "fence-lock=a"} {
		c.Send("PUT", "/v1/kv/data?"+query, "").Says(t, http.StatusBadRequest, "fence", "%s", query)
	}
}

func TestKeyWriteIsPerformedOncePerIdempotencyKey(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{})
	key := "Idempotency-Key: k1"
	for i := range 2 {
		c.Send("PUT", "/v1/kv/a?cas=0", "v", key).Is(t, 200, "true", "time %d", i+1)
	}
	expect.Equal(t, c.Send("PUT", "/v1/kv/a?cas=0", "v").Body, "false", "without the key: got")
	c.Send("PUT", "/v1/kv/b", "v", key).Says(t, 500, "another operation", "another operation")
	txn := `[{"KV":{"Verb":"cas","Key":"t","Index":0}}]`
	for i := range 2 {
		c.Send("PUT", "/v1/txn", txn, "Idempotency-Key: k2").Says(t, 200, "", "transaction, time %d", i+1)
	}
	for _, key := range []string{"", strings.Repeat("k", 256)} {
		c.Send("PUT", "/v1/kv/a", "v", "Idempotency-Key: "+key).Says(t, 400, "1 to 255", "a key of %d bytes", len(key))
	}
}

func TestTransactionRespondsInConsulsWords(t *testing.T) {
	for _, row := range []struct {
		name   string
		ops    []string // S stands for a session
		status int
		want   string
	}{
		{"nothing", nil, 200, `{"Results":[],"Errors":null}`},
		{"set and get", []string{httpdtest.KvOp(`"Verb":"set","Key":"k","Value":"dGVzdA==","Flags":18446744073709551615`), httpdtest.KvOp(`"Verb":"get","Key":"k"`)}, 200,
			`{"Results":[{"KV":{"LockIndex":0,"Key":"k","Flags":18446744073709551615,"Value":null,"CreateIndex":3,"ModifyIndex":3}},{"KV":{"LockIndex":0,"Key":"k","Flags":18446744073709551615,"Value":"dGVzdA==","CreateIndex":3,"ModifyIndex":3}}],"Errors":null}`},
		{"lock", []string{httpdtest.KvOp(`"Verb":"lock","Key":"k","Session":"S"`)}, 200,
			`{"Results":[{"KV":{"LockIndex":1,"Key":"k","Flags":0,"Value":null,"Session":"S","CreateIndex":3,"ModifyIndex":3}}],"Errors":null}`},
		{"get a tree", []string{httpdtest.KvOp(`"Verb":"get-tree","Key":"o"`)}, 200,
			`{"Results":[{"KV":{"LockIndex":0,"Key":"old","Flags":0,"Value":"dg==","CreateIndex":2,"ModifyIndex":2}}],"Errors":null}`},
		{"get or empty", []string{httpdtest.KvOp(`"Verb":"get-or-empty","Key":"k"`)}, 200,
			`{"Results":[{"KV":{"LockIndex":0,"Key":"k","Flags":0,"Value":null,"CreateIndex":0,"ModifyIndex":0}}],"Errors":null}`},
		{"deletes say nothing", []string{httpdtest.KvOp(`"Verb":"delete","Key":"old"`), httpdtest.KvOp(`"Verb":"delete-tree","Key":""`), httpdtest.KvOp(`"Verb":"check-not-exists","Key":"old"`)}, 200, `{"Results":[],"Errors":null}`},
		{"all errors are told", []string{httpdtest.KvOp(`"Verb":"lock","Key":"k"`), httpdtest.KvOp(`"Verb":"get","Key":"k"`)}, 409,
			`{"Results":null,"Errors":[{"OpIndex":0,"What":"missing session"},{"OpIndex":1,"What":"key \"k\" doesn't exist"}]}`},
		{"read only, failing", []string{httpdtest.KvOp(`"Verb":"get","Key":"k"`)}, 409, `{"Results":null,"Errors":[{"OpIndex":0,"What":"key \"k\" doesn't exist"}]}`},
		{"stale index", []string{httpdtest.KvOp(`"Verb":"cas","Key":"old","Index":1`)}, 409, `{"Results":null,"Errors":[{"OpIndex":0,"What":"failed to set key \"old\", index is stale"}]}`},
		{"wrong index", []string{httpdtest.KvOp(`"Verb":"check-index","Key":"old","Index":9`)}, 409, `{"Results":null,"Errors":[{"OpIndex":0,"What":"failed index check for key \"old\", current modify index 2 != 9"}]}`},
		{"unknown verb", []string{httpdtest.KvOp(`"Verb":"set","Key":"k"`), httpdtest.KvOp(`"Verb":"x","Key":"k"`)}, 409, `{"Results":null,"Errors":[{"OpIndex":1,"What":"unknown KV operation: x"}]}`},
		{"no key", []string{httpdtest.KvOp(`"Verb":"set"`), httpdtest.KvOp(`"Verb":"get"`)}, 409, `{"Results":null,"Errors":[{"OpIndex":0,"What":"Must provide key"},{"OpIndex":1,"What":"Must provide key"}]}`},
		{"no kind of operation", []string{httpdtest.KvOp(`"Verb":"get","Key":"old"`), `{"Intention":{}}`}, 409, `{"Results":null,"Errors":[{"OpIndex":1,"What":"unknown operation type"}]}`},
		{"bad base64", []string{httpdtest.KvOp(`"Verb":"set","Key":"k","Value":"%"`)}, 400, "Failed to parse body: illegal base64 data at input byte 0"},
		{"too many", slicesRepeat(httpdtest.KvOp(`"Verb":"get","Key":"old"`), 129), 413, "Transaction contains too many operations (129 > 128)"},
	} {
		c := httpdtest.NewCoordinated(t, httpd.Config{})
		session := c.Session(t, "")
		c.Put(t, "/v1/kv/old", "v")
		body := strings.ReplaceAll("["+strings.Join(row.ops, ",")+"]", `"S"`, `"`+session+`"`)
		want := strings.ReplaceAll(row.want, `"S"`, `"`+session+`"`)
		c.Send("PUT", "/v1/txn", body).Is(t, row.status, want, "%s", row.name)
		if row.status == 409 {
			got := c.Get("/v1/kv/?recurse")
			expect.That(t, got.Header.Get("X-Consul-Index") == "2", "%s: it failed, and moved the index to %s", row.name, got.Header.Get("X-Consul-Index"))
		}
	}
}

func slicesRepeat(text string, n int) []string {
	return strings.Split(strings.Repeat(text+"\n", n-1)+text, "\n")
}

func TestTransactionThatIsNoListIsRefused(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{})
	for _, body := range []string{"", "{}", "[", `[{"KV":{"Flags":-1}}]`, `[{"KV":{"Flags":1.5}}]`} {
		got := c.Send("PUT", "/v1/txn", body)
		expect.That(t, got.Status == 400 && strings.HasPrefix(got.Body, "Failed to parse body: "),
			"%q: got %d %s, want 400 and why", body, got.Status, got.Body)
	}
}

func TestTransactionThatWritesNothingIsARead(t *testing.T) {
	c := httpdtest.NewCoordinated(t, httpd.Config{})
	c.Put(t, "/v1/kv/a", "v")
	body := "[" + httpdtest.KvOp(`"Verb":"get","Key":"a"`) + "]"
	for _, row := range []struct {
		query  string
		views  int64
		status int
		mode   string
	}{{"", 1, 200, "consistent"}, {"?consistent", 1, 200, "consistent"}, {"?stale", 0, 200, "stale"}, {"?stale&consistent", 0, 400, ""}} {
		before := c.Kv.Views.Load()
		got := c.Send("PUT", "/v1/txn"+row.query, body)
		views := c.Kv.Views.Load() - before
		expect.That(t, got.Status == row.status && views == row.views && got.Header.Get("X-Consul-Effective-Consistency") == row.mode,
			"%q: got %d %s after asking %d times, want %d after %d", row.query, got.Status, got.Body, views, row.status, row.views)
		known := got.Header.Get("X-Consul-KnownLeader")
		expect.That(t, row.status != 200 || known == "true", "%q: a leader is known: %q", row.query, known)
	}
	expect.Equal(t, c.Kv.Applied.Load(), 1, "operations were applied:")
}

// withFar registers node far with a service, a check of it and one of the node.
func withFar(t *testing.T, config httpd.Config) *httpdtest.Coordinated {
	t.Helper()
	c := httpdtest.NewCoordinated(t, config)
	got := c.Send("PUT", "/v1/catalog/register", `{"Node":"far","Address":"10.9.0.1","NodeMeta":{"rack":"7"},
		"Service":{"Service":"web","ID":"w1","Tags":["v1"],"Port":80},"Checks":[{"CheckID":"alive","ServiceID":"w1","Status":"passing"},{"CheckID":"disk","Status":"warning"}]}`)
	need.That(t, got.Status == 200, "register: %d %s", got.Status, got.Body)
	return c
}

// failed returns the response to a transaction with one failed operation.
func failed(op int, what string) string {
	text, _ := json.Marshal(what)
	return fmt.Sprintf(`{"Results":null,"Errors":[{"OpIndex":%d,"What":%s}]}`, op, text)
}

func TestTransactionNamesNodesWithoutCase(t *testing.T) {
	c := withFar(t, httpd.Config{})
	got := c.Txn(
		`{"Node":{"Verb":"set","Node":{"Node":"FAR","Address":"10.9.0.2"}}}`,
		`{"Service":{"Verb":"set","Node":"Far","Service":{"Service":"db","Ports":[{"Name":"a","Port":5432,"Default":true}]}}}`,
		`{"Check":{"Verb":"set","Check":{"Node":"fAr","Name":"up","ServiceID":"db"}}}`,
		`{"Check":{"Verb":"get","Check":{"Node":"faR","CheckID":"alive"}}}`,
	)
	need.That(t, got.Status == 200 && strings.Count(got.Body, `"Node":"far"`) == 3 && strings.Contains(got.Body, `"Port":5432,"Ports"`), "got %d %s", got.Status, got.Body)
	var nodes []*api.Node
	need.OK(t, json.Unmarshal([]byte(c.Get("/v1/catalog/nodes").Body), &nodes))
	expect.That(t, len(nodes) == 2 && nodes[0].Node == "far" && nodes[0].Address == "10.9.0.2", "the nodes are %s", c.Get("/v1/catalog/nodes").Body)
	c.Txn(`{"Node":{"Verb":"set","Node":{"Node":"x","ID":"7","Address":"a"}}}`).Is(t, 409, failed(0, "Bad node ID: uuid string is wrong length"), "an ID that is no UUID")
	session := c.Send("PUT", "/v1/session/create", `{"Node":"FAR","NodeChecks":[]}`)
	need.That(t, session.Status == 200, "a session of a node by another spelling: %d %s", session.Status, session.Body)
	expect.That(t, strings.Contains(c.Get("/v1/session/node/fAR").Body, `"Node":"far"`), "its sessions are %s", c.Get("/v1/session/node/fAR").Body)
}

func TestTransactionOnTheCatalogRespondsWithTheObjects(t *testing.T) {
	c := withFar(t, httpd.Config{})
	got := c.Txn(
		`{"Node":{"Verb":"set","Node":{"Node":"new","Address":"10.9.0.2","Meta":{"rack":"8"}}}}`,
		`{"Service":{"Verb":"set","Node":"new","Service":{"ID":"d1","Service":"db","Port":5432,"Meta":{"v":"1"},"Weights":{"Passing":0,"Warning":0}}}}`,
		httpdtest.KvOp(`"Verb":"set","Key":"k","Value":"dg=="`),
		`{"Check":{"Verb":"set","Check":{"Node":"new","CheckID":"up","Name":"is up","ServiceID":"d1","Status":"passing","Output":"fine","Definition":{"Interval":"10s","TCP":"10.9.0.2:5432"}}}}`,
		`{"Check":{"Verb":"get","Check":{"Node":"far","CheckID":"alive"}}}`,
		httpdtest.KvOp(`"Verb":"get","Key":"k"`),
		`{"Check":{"Verb":"delete","Check":{"Node":"far","CheckID":"disk"}}}`,
		`{"Node":{"Verb":"get","Node":{"Node":"rollcall"}}}`,
		`{"Service":{"Verb":"get","Node":"far","Service":{"ID":"w1"}}}`,
	)
	var done struct {
		Results []map[string]map[string]any
		Errors  []any
	}
	need.That(t, got.Status == 200, "got %d %s", got.Status, got.Body)
	need.OK(t, json.Unmarshal([]byte(got.Body), &done))
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
`, "results of %s:", got.Body)
	for path, want := range map[string]string{
		"/v1/catalog/service/db": `"ServiceAddress":""`, "/v1/health/node/new": `"Output":"fine"`, "/v1/kv/k?raw": "v", "/v1/catalog/node/new": `"rack":"8"`,
	} {
		expect.That(t, strings.Contains(c.Get(path).Body, want), "%s is %s, want %s in it", path, c.Get(path).Body, want)
	}
	expect.That(t, !strings.Contains(c.Get("/v1/health/node/far").Body, "disk"), "the check that was deleted is there")
	c.Get("/eureka/apps/DB").Says(t, 200, "10.9.0.2", "for Eureka's clients")
}

// consul-esm updates the checks of external nodes this way.
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
		index := c.IndexOf(t, o.path, o.members...)
		for _, stale := range []uint64{0, index - 1, index + 1} {
			c.Txn(fmt.Sprintf(o.op, stale)).Is(t, 409, failed(0, o.stale), "%s at %d", o.op, stale)
		}
		c.Txn(fmt.Sprintf(o.op, index)).Says(t, 200, "", "%s at %d", o.op, index)
	}
	expect.Equal(t, c.Get("/v1/catalog/node/far").Body, "null", "the node, after it was deleted:")
	expect.That(t, strings.Contains(c.Get("/v1/catalog/nodes").Body, `"rack":"9"`), "the logical node has not the metadata that it was given")
	got := c.Txn(`{"Node":{"Verb":"cas","Node":{"Node":"far","Address":"10.9.0.1"}}}`, `{"Check":{"Verb":"cas","Check":{"Node":"far","CheckID":"disk"}}}`,
		`{"Service":{"Verb":"cas","Node":"far","Service":{"Service":"web"}}}`)
	expect.That(t, got.Status == 200, "index 0 of what is absent: %d %s", got.Status, got.Body)
}

func TestTransactionOnTheCatalogNamesWhatIsWrong(t *testing.T) {
	c := withFar(t, httpd.Config{})
	good := `{"Check":{"Verb":"set","Check":{"Node":"far","CheckID":"disk","Status":"critical"}}}`
	before := c.Get("/v1/health/state/any")
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
		c.Txn(good, httpdtest.KvOp(`"Verb":"set","Key":"k"`), row.op).Is(t, 409, failed(2, row.want), "%s", row.op)
	}
	after := c.Get("/v1/health/state/any")
	expect.That(t, after.Body == before.Body && after.Header.Get("X-Consul-Index") == before.Header.Get("X-Consul-Index"),
		"all were refused, and the checks at %s are\n%s\nbefore at %s:\n%s", after.Header.Get("X-Consul-Index"), after.Body, before.Header.Get("X-Consul-Index"), before.Body)
	expect.Equal(t, c.Get("/v1/kv/k").Status, 404, "the key's status:")
	for body, want := range map[string]string{
		`{"Node":{"Verb":"set","Node":[]}}`: "Failed to parse body: want an object, got [",
		`{"Check":{"Verb":1}}`:              "Failed to parse body: Verb: json: cannot unmarshal number into Go value of type string",
		`{"Service":{"Verb":"get","Node":"far","Service":{"Namespace":"ns1"}}}`: `Invalid field: "Namespace" - Namespaces are a Consul Enterprise feature`,
	} {
		c.Txn(body).Is(t, 400, want, "%s", body)
	}
}

func TestTransactionThatReadsTheCatalogAloneIsARead(t *testing.T) {
	c := withFar(t, httpd.Config{})
	applied := c.Kv.Applied.Load()
	body := `[{"Node":{"Verb":"get","Node":{"Node":"far"}}},{"Check":{"Verb":"get","Check":{"Node":"rollcall","CheckID":"serfHealth"}}}]`
	for query, mode := range map[string]string{"": "consistent", "?stale": "stale"} {
		got := c.Send("PUT", "/v1/txn"+query, body)
		expect.That(t, got.Status == 200 && got.Header.Get("X-Consul-Effective-Consistency") == mode && strings.Contains(got.Body, `"rack":"7"`) && strings.Contains(got.Body, "Serf Health Status"),
			"%q: got %d %s, %s", query, got.Status, got.Body, got.Header.Get("X-Consul-Effective-Consistency"))
	}
	expect.Equal(t, c.Kv.Applied.Load(), applied, "operations applied:")
}

func TestTransactionOnTheCatalogIsBoundAsRegistrationsAre(t *testing.T) {
	c := withFar(t, httpd.Config{Limits: web.Limits{InstancesInApp: 1}})
	second := `{"Service":{"Verb":"set","Node":"far","Service":{"ID":"w2","Service":"web"}}}`
	c.Txn(httpdtest.KvOp(`"Verb":"set","Key":"k"`), second).Is(t, 429, "the application has too many instances", "one instance too many")
	expect.Equal(t, c.Get("/v1/kv/k").Status, 404, "the key's status:")
	c.Txn(strings.Replace(second, "w2", "w1", 1)).Says(t, 200, "", "the same instance again")
}

func TestTransactionOnTheCatalogIsPerformedOncePerKey(t *testing.T) {
	c := withFar(t, httpd.Config{})
	body := `[{"Node":{"Verb":"cas","Node":{"Node":"new","Address":"10.9.0.2"}}}]` // fails if performed twice
	first := c.Send("PUT", "/v1/txn", body, "Idempotency-Key: k1")
	again := c.Send("PUT", "/v1/txn", body, "Idempotency-Key: k1")
	expect.That(t, first.Status == 200 && again.Status == 200 && first.Body == again.Body, "first %d %s, again %d %s", first.Status, first.Body, again.Status, again.Body)
	withService := `[{"Node":{"Verb":"cas","Node":{"Node":"host","Address":"10.9.0.4"}}},{"Service":{"Verb":"set","Node":"host","Service":{"Service":"api"}}}]`
	done := c.Send("PUT", "/v1/txn", withService, "Idempotency-Key: k2")
	repeated := c.Send("PUT", "/v1/txn", withService, "Idempotency-Key: k2") // now the node has an address
	expect.That(t, done.Status == 200 && repeated.Status == 200 && done.Body == repeated.Body, "first %d %s, again %d %s", done.Status, done.Body, repeated.Status, repeated.Body)
	c.Send("PUT", "/v1/txn", strings.Replace(body, "new", "newer", 1), "Idempotency-Key: k1").Says(t, 500, "was used for another operation", "another one")
}

func TestTransactionEndsSessions(t *testing.T) {
	c := withFar(t, httpd.Config{})
	session := c.Session(t, "")
	c.Put(t, "/v1/kv/held?acquire="+session, "v")
	got := c.Txn(`{"Session":{"Verb":"delete","Session":{"ID":"`+session+`"}}}`, httpdtest.KvOp(`"Verb":"get","Key":"held"`))
	expect.That(t, got.Status == 200 && !strings.Contains(got.Body, session), "got %d %s, want the key without its holder", got.Status, got.Body)
	expect.Equal(t, c.Get("/v1/session/info/"+session).Body, "[]", "the session:")
}
