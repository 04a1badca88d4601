package httpd_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestKeyIsWrittenReadAndDeletedAsInConsul(t *testing.T) {
	c := newCoordinated(t, httpd.Config{})
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
		c.send(row.method, row.target, row.body).is(t, row.status, row.want, "%s: %s %s", row.name, row.method, row.target)
	}
}

func TestKeyNameIsTakenAsItComes(t *testing.T) {
	c := newCoordinated(t, httpd.Config{})
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
		c.put(t, "/v1/kv/"+row.path, "")
		entries := decodeReply[[]struct{ Key string }](t, c.get("/v1/kv/"+row.path))
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
		c.send("GET", row.path, "").says(t, row.status, "", "%s", row.name).with(t, "Location", "")
	}
}

func TestKeyValueHasALimit(t *testing.T) {
	c := newCoordinated(t, httpd.Config{})
	c.put(t, "/v1/kv/a", strings.Repeat("x", 512<<10))
	want := "Request body(524289 bytes) too large, max size: 524288 bytes. See docs/reference/protocol/coordination.md."
	c.send("PUT", "/v1/kv/a", strings.Repeat("x", 512<<10+1)).is(t, http.StatusRequestEntityTooLarge, want, "it")
	c.send("PUT", "/v1/txn", strings.Repeat(" ", 512<<10+1)).is(t, http.StatusRequestEntityTooLarge, want, "a transaction")
	n := newNode(t, httpd.Config{Service: c.Memory, Coordination: c.kv}, nil)
	chunked := "PUT /v1/kv/a HTTP/1.1\r\nHost: node\r\nTransfer-Encoding: chunked\r\n\r\n80001\r\n" + strings.Repeat("x", 0x80001) + "\r\n0\r\n\r\n"
	n.send(t, chunked).says(t, http.StatusRequestEntityTooLarge, "more than 524288 bytes", "of unknown length")
	broken := "PUT /v1/kv/b HTTP/1.1\r\nHost: node\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
	n.send(t, broken).says(t, http.StatusBadRequest, "", "broken off")
	c.get("/v1/kv/b").says(t, http.StatusNotFound, "", "what broke off is not stored")
}

func TestKeyRawValueRunsNothing(t *testing.T) {
	c := newCoordinated(t, httpd.Config{})
	c.put(t, "/v1/kv/a", "<script>")
	got := c.get("/v1/kv/a?raw")
	for name, want := range map[string]string{
		"Content-Type": "text/plain", "X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox", "X-Consul-Index": "1",
	} {
		expect.Equal(t, got.header.Get(name), want, "%s is", name)
	}
	c.get("/v1/kv/b?raw").says(t, http.StatusNotFound, "", "an absent one").with(t, "X-Consul-Index", "1")
}

func TestKeyThatIsHeldShowsItsFence(t *testing.T) {
	c := newCoordinated(t, httpd.Config{})
	a, b := c.session(t, ""), c.session(t, "")
	got := c.put(t, "/v1/kv/lock?acquire="+strings.ToUpper(a), "a")
	fence := got.header.Get("X-Rollcall-Fence")
	need.That(t, fence == "3", "the fence is %q, want 3, the index of the acquisition", fence)
	if got := c.send("PUT", "/v1/kv/lock?acquire="+b, "b"); got.body != "false" || got.header.Get("X-Rollcall-Fence") != "" {
		t.Errorf("another's acquisition: got %s, fence %q", got.body, got.header.Get("X-Rollcall-Fence"))
	}
	if got := c.get("/v1/kv/lock"); got.header.Get("X-Rollcall-Fence") != fence || !strings.Contains(got.body, `"LockIndex":1,"Key":"lock","Flags":0,"Value":"YQ==","Session":"`+a+`"`) {
		t.Errorf("it is read as %s, fence %q", got.body, got.header.Get("X-Rollcall-Fence"))
	}
	c.put(t, "/v1/kv/lock?release="+a, "")
	if got := c.get("/v1/kv/lock"); got.header.Get("X-Rollcall-Fence") != "" || strings.Contains(got.body, "Session") {
		t.Errorf("released, it is read as %s, fence %q", got.body, got.header.Get("X-Rollcall-Fence"))
	}
	expect.Equal(t, c.send("PUT", "/v1/kv/lock?release="+a, "other").body, "false", "released twice:")
}

func TestKeyWriteWithAStaleFenceChangesNothing(t *testing.T) {
	c := newCoordinated(t, httpd.Config{})
	a := c.session(t, `{"LockDelay":0}`)
	stale := c.put(t, "/v1/kv/lock?acquire="+a, "").header.Get("X-Rollcall-Fence")
	c.put(t, "/v1/session/destroy/"+a, "")
	b := c.session(t, `{"LockDelay":0}`)
	now := c.put(t, "/v1/kv/lock?acquire="+b, "b").header.Get("X-Rollcall-Fence")
	c.put(t, "/v1/kv/data", "b's")
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
		before := c.get("/v1/kv/?recurse").header.Get("X-Consul-Index")
		c.send(row.method, row.target, row.name).is(t, 200, row.body, "%s", row.name).with(t, "X-Rollcall-Fence", row.fence)
		after := c.get("/v1/kv/?recurse").header.Get("X-Consul-Index")
		expect.That(t, (after == before) == (row.body == "false"), "%s: the index went from %s to %s", row.name, before, after)
	}
	for _, query := range []string{"fence=x", "fence=", "fence=1&fence-key=a&fence-lock=a", "fence-lock=a"} {
		c.send("PUT", "/v1/kv/data?"+query, "").says(t, http.StatusBadRequest, "fence", "%s", query)
	}
}

func TestKeyWriteIsPerformedOncePerIdempotencyKey(t *testing.T) {
	c := newCoordinated(t, httpd.Config{})
	key := "Idempotency-Key: k1"
	for i := range 2 {
		c.send("PUT", "/v1/kv/a?cas=0", "v", key).is(t, 200, "true", "time %d", i+1)
	}
	expect.Equal(t, c.send("PUT", "/v1/kv/a?cas=0", "v").body, "false", "without the key: got")
	c.send("PUT", "/v1/kv/b", "v", key).says(t, 500, "another operation", "another operation")
	txn := `[{"KV":{"Verb":"cas","Key":"t","Index":0}}]`
	for i := range 2 {
		c.send("PUT", "/v1/txn", txn, "Idempotency-Key: k2").says(t, 200, "", "transaction, time %d", i+1)
	}
	for _, key := range []string{"", strings.Repeat("k", 256)} {
		c.send("PUT", "/v1/kv/a", "v", "Idempotency-Key: "+key).says(t, 400, "1 to 255", "a key of %d bytes", len(key))
	}
}

// kvOp is one operation of a transaction.
func kvOp(members string) string {
	return `{"KV":{` + members + `},"Node":null,"Service":null,"Check":null}`
}

func TestTransactionRespondsInConsulsWords(t *testing.T) {
	for _, row := range []struct {
		name   string
		ops    []string // S stands for a session
		status int
		want   string
	}{
		{"nothing", nil, 200, `{"Results":[],"Errors":null}`},
		{"set and get", []string{kvOp(`"Verb":"set","Key":"k","Value":"dGVzdA==","Flags":18446744073709551615`), kvOp(`"Verb":"get","Key":"k"`)}, 200,
			`{"Results":[{"KV":{"LockIndex":0,"Key":"k","Flags":18446744073709551615,"Value":null,"CreateIndex":3,"ModifyIndex":3}},{"KV":{"LockIndex":0,"Key":"k","Flags":18446744073709551615,"Value":"dGVzdA==","CreateIndex":3,"ModifyIndex":3}}],"Errors":null}`},
		{"lock", []string{kvOp(`"Verb":"lock","Key":"k","Session":"S"`)}, 200,
			`{"Results":[{"KV":{"LockIndex":1,"Key":"k","Flags":0,"Value":null,"Session":"S","CreateIndex":3,"ModifyIndex":3}}],"Errors":null}`},
		{"get a tree", []string{kvOp(`"Verb":"get-tree","Key":"o"`)}, 200,
			`{"Results":[{"KV":{"LockIndex":0,"Key":"old","Flags":0,"Value":"dg==","CreateIndex":2,"ModifyIndex":2}}],"Errors":null}`},
		{"get or empty", []string{kvOp(`"Verb":"get-or-empty","Key":"k"`)}, 200,
			`{"Results":[{"KV":{"LockIndex":0,"Key":"k","Flags":0,"Value":null,"CreateIndex":0,"ModifyIndex":0}}],"Errors":null}`},
		{"deletes say nothing", []string{kvOp(`"Verb":"delete","Key":"old"`), kvOp(`"Verb":"delete-tree","Key":""`), kvOp(`"Verb":"check-not-exists","Key":"old"`)}, 200, `{"Results":[],"Errors":null}`},
		{"all errors are told", []string{kvOp(`"Verb":"lock","Key":"k"`), kvOp(`"Verb":"get","Key":"k"`)}, 409,
			`{"Results":null,"Errors":[{"OpIndex":0,"What":"missing session"},{"OpIndex":1,"What":"key \"k\" doesn't exist"}]}`},
		{"read only, failing", []string{kvOp(`"Verb":"get","Key":"k"`)}, 409, `{"Results":null,"Errors":[{"OpIndex":0,"What":"key \"k\" doesn't exist"}]}`},
		{"stale index", []string{kvOp(`"Verb":"cas","Key":"old","Index":1`)}, 409, `{"Results":null,"Errors":[{"OpIndex":0,"What":"failed to set key \"old\", index is stale"}]}`},
		{"wrong index", []string{kvOp(`"Verb":"check-index","Key":"old","Index":9`)}, 409, `{"Results":null,"Errors":[{"OpIndex":0,"What":"failed index check for key \"old\", current modify index 2 != 9"}]}`},
		{"unknown verb", []string{kvOp(`"Verb":"set","Key":"k"`), kvOp(`"Verb":"x","Key":"k"`)}, 409, `{"Results":null,"Errors":[{"OpIndex":1,"What":"unknown KV operation: x"}]}`},
		{"no key", []string{kvOp(`"Verb":"set"`), kvOp(`"Verb":"get"`)}, 409, `{"Results":null,"Errors":[{"OpIndex":0,"What":"Must provide key"},{"OpIndex":1,"What":"Must provide key"}]}`},
		{"no kind of operation", []string{kvOp(`"Verb":"get","Key":"old"`), `{"Intention":{}}`}, 409, `{"Results":null,"Errors":[{"OpIndex":1,"What":"unknown operation type"}]}`},
		{"bad base64", []string{kvOp(`"Verb":"set","Key":"k","Value":"%"`)}, 400, "Failed to parse body: illegal base64 data at input byte 0"},
		{"too many", slicesRepeat(kvOp(`"Verb":"get","Key":"old"`), 129), 413, "Transaction contains too many operations (129 > 128)"},
	} {
		c := newCoordinated(t, httpd.Config{})
		session := c.session(t, "")
		c.put(t, "/v1/kv/old", "v")
		body := strings.ReplaceAll("["+strings.Join(row.ops, ",")+"]", `"S"`, `"`+session+`"`)
		want := strings.ReplaceAll(row.want, `"S"`, `"`+session+`"`)
		c.send("PUT", "/v1/txn", body).is(t, row.status, want, "%s", row.name)
		if row.status == 409 {
			got := c.get("/v1/kv/?recurse")
			expect.That(t, got.header.Get("X-Consul-Index") == "2", "%s: it failed, and moved the index to %s", row.name, got.header.Get("X-Consul-Index"))
		}
	}
}

func slicesRepeat(text string, n int) []string {
	return strings.Split(strings.Repeat(text+"\n", n-1)+text, "\n")
}

func TestTransactionThatIsNoListIsRefused(t *testing.T) {
	c := newCoordinated(t, httpd.Config{})
	for _, body := range []string{"", "{}", "[", `[{"KV":{"Flags":-1}}]`, `[{"KV":{"Flags":1.5}}]`} {
		got := c.send("PUT", "/v1/txn", body)
		expect.That(t, got.status == 400 && strings.HasPrefix(got.body, "Failed to parse body: "),
			"%q: got %d %s, want 400 and why", body, got.status, got.body)
	}
}

func TestTransactionThatWritesNothingIsARead(t *testing.T) {
	c := newCoordinated(t, httpd.Config{})
	c.put(t, "/v1/kv/a", "v")
	body := "[" + kvOp(`"Verb":"get","Key":"a"`) + "]"
	for _, row := range []struct {
		query  string
		views  int64
		status int
		mode   string
	}{{"", 1, 200, "consistent"}, {"?consistent", 1, 200, "consistent"}, {"?stale", 0, 200, "stale"}, {"?stale&consistent", 0, 400, ""}} {
		before := c.kv.views.Load()
		got := c.send("PUT", "/v1/txn"+row.query, body)
		views := c.kv.views.Load() - before
		expect.That(t, got.status == row.status && views == row.views && got.header.Get("X-Consul-Effective-Consistency") == row.mode,
			"%q: got %d %s after asking %d times, want %d after %d", row.query, got.status, got.body, views, row.status, row.views)
		known := got.header.Get("X-Consul-KnownLeader")
		expect.That(t, row.status != 200 || known == "true", "%q: a leader is known: %q", row.query, known)
	}
	applied := c.kv.applied.Load()
	expect.That(t, applied == 1, "%d operations were applied, want the set alone", applied)
}
