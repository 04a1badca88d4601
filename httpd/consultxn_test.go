package httpd_test

import (
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// kvOp is one operation of a transaction.
func kvOp(members string) string {
	return `{"KV":{` + members + `},"Node":null,"Service":null,"Check":null}`
}

func TestTransactionsAnswerInConsulsWords(t *testing.T) {
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
		{"unknown verb", []string{kvOp(`"Verb":"set","Key":"k"`), kvOp(`"Verb":"x","Key":"k"`)}, 409, `{"Results":null,"Errors":[{"OpIndex":1,"What":"unknown KV verb \"x\""}]}`},
		{"no key", []string{kvOp(`"Verb":"set"`), kvOp(`"Verb":"get"`)}, 409, `{"Results":null,"Errors":[{"OpIndex":0,"What":"Must provide key"},{"OpIndex":1,"What":"Must provide key"}]}`},
		{"other kinds of operations", []string{`{"Node":{"Verb":"get"}}`}, 400, "Failed to parse body: operation 0 has no KV; transactions are offered for keys only"},
		{"bad base64", []string{kvOp(`"Verb":"set","Key":"k","Value":"%"`)}, 400, "Failed to parse body: illegal base64 data at input byte 0"},
		{"too many", slicesRepeat(kvOp(`"Verb":"get","Key":"old"`), 129), 413, "Transaction contains too many operations (129 > 128)"},
	} {
		c := newCoordinated(t, httpd.Config{})
		session := c.session(t, "")
		c.put(t, "/v1/kv/old", "v")
		body := strings.ReplaceAll("["+strings.Join(row.ops, ",")+"]", `"S"`, `"`+session+`"`)
		want := strings.ReplaceAll(row.want, `"S"`, `"`+session+`"`)
		if got := c.ask("PUT", "/v1/txn", body); got.status != row.status || got.body != want {
			t.Errorf("%s: got %d %s, want %d %s", row.name, got.status, got.body, row.status, want)
		}
		if row.status == 409 {
			if got := c.get("/v1/kv/?recurse"); got.header.Get("X-Consul-Index") != "2" {
				t.Errorf("%s: it failed, and moved the index to %s", row.name, got.header.Get("X-Consul-Index"))
			}
		}
	}
}

func slicesRepeat(text string, n int) []string {
	return strings.Split(strings.Repeat(text+"\n", n-1)+text, "\n")
}

func TestATransactionThatIsNoListIsRefused(t *testing.T) {
	c := newCoordinated(t, httpd.Config{})
	for _, body := range []string{"", "{}", "[", `[{"KV":{"Flags":-1}}]`, `[{"KV":{"Flags":1.5}}]`} {
		got := c.ask("PUT", "/v1/txn", body)
		expect.That(t, got.status == 400 && strings.HasPrefix(got.body, "Failed to parse body: "),
			"%q: got %d %s, want 400 and why", body, got.status, got.body)
	}
}

func TestATransactionThatWritesNothingIsARead(t *testing.T) {
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
		got := c.ask("PUT", "/v1/txn"+row.query, body)
		views := c.kv.views.Load() - before
		expect.That(t, got.status == row.status && views == row.views && got.header.Get("X-Consul-Effective-Consistency") == row.mode,
			"%q: got %d %s after asking %d times, want %d after %d", row.query, got.status, got.body, views, row.status, row.views)
		if known := got.header.Get("X-Consul-KnownLeader"); row.status == 200 && known != "true" {
			t.Errorf("%q: a leader is known: %q", row.query, known)
		}
	}
	applied := c.kv.applied.Load()
	expect.That(t, applied == 1, "%d operations were applied, want the set alone", applied)
}
