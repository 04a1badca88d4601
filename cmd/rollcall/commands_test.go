package main

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// fakeServer responds to all requests alike, and records them.
type fakeServer struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string // METHOD path?query
	bodies   []string
}

func newFakeServer(t *testing.T, status int, body string) *fakeServer {
	t.Helper()
	f := new(fakeServer)
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent, _ := io.ReadAll(r.Body)
		f.mu.Lock()
		f.requests = append(f.requests, r.Method+" "+r.URL.RequestURI())
		f.bodies = append(f.bodies, string(sent))
		f.mu.Unlock()
		if strings.HasPrefix(r.URL.Path, "/v1/kv/") {
			w.Header().Set("X-Consul-Index", "1")
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}))
	t.Cleanup(f.Close)
	return f
}

func rollcall(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&errs)
	err := root.ExecuteContext(t.Context())
	code = cli.ExitCode(&errs, "rollcall", err)
	return out.String(), errs.String(), code
}

func TestCommandsSendTheirRequests(t *testing.T) {
	for _, tc := range []struct {
		name   string
		args   []string
		status int
		body   string
		want   string // request
		prints string
	}{
		{name: "cancel", args: []string{"cancel", "orders/orders-1"}, status: 200, want: "DELETE /eureka/apps/ORDERS/orders-1", prints: "canceled  ORDERS/orders-1\n"},
		{name: "cancel an id with slashes", args: []string{"cancel", "orders/a/b"}, status: 200, want: "DELETE /eureka/apps/ORDERS/a%2Fb", prints: "canceled  ORDERS/a/b\n"},
		{name: "override", args: []string{"override", "orders/orders-1", "OUT_OF_SERVICE", "--author=me", "--reason=kernel update", "--for=90s"}, status: 200, body: "{}",
			want: "PUT /v1/rollcall/apps/ORDERS/orders-1/override?author=me&for=1m30s&reason=kernel+update&value=OUT_OF_SERVICE", prints: "overridden  ORDERS/orders-1  OUT_OF_SERVICE\n"},
		{name: "override without end", args: []string{"override", "orders/a/b", "UP", "--author=me"}, status: 200, body: "{}",
			want: "PUT /v1/rollcall/apps/ORDERS/a%2Fb/override?author=me&value=UP", prints: "overridden  ORDERS/a/b  UP\n"},
		{name: "end an override", args: []string{"override", "orders/orders-1", "--delete", "--author=me"}, status: 200, body: "{}",
			want: "DELETE /v1/rollcall/apps/ORDERS/orders-1/override?author=me", prints: "override deleted  ORDERS/orders-1\n"},
		{name: "quarantine", args: []string{"quarantine", "orders/orders-1", "--for=10m", "--author=me"}, status: 200, body: "{}",
			want: "PUT /v1/rollcall/apps/ORDERS/orders-1/quarantine?author=me&for=10m0s", prints: "quarantined  ORDERS/orders-1\n"},
		{name: "end a quarantine", args: []string{"quarantine", "orders/orders-1", "--end", "--author=me"}, status: 200, body: "{}",
			want: "DELETE /v1/rollcall/apps/ORDERS/orders-1/quarantine?author=me", prints: "quarantine ended  ORDERS/orders-1\n"},
		{name: "explain", args: []string{"explain", "orders/a/b"}, status: 200, body: `{"summary":"It is listed."}`,
			want: "GET /v1/rollcall/apps/ORDERS/a%2Fb/explain", prints: "It is listed.\n"},
		{name: "explain in JSON", args: []string{"explain", "orders/orders-1", "-o", "json"}, status: 200, body: `{"silent_ms":3}`,
			want: "GET /v1/rollcall/apps/ORDERS/orders-1/explain", prints: `"silent_ms": 3`},
		{name: "self-preservation", args: []string{"self-preservation"}, status: 200, body: `{"state":"on"}`, want: "GET /v1/rollcall/self-preservation", prints: "\non     "},
		{name: "self-preservation status", args: []string{"self-preservation", "status", "-o", "json"}, status: 200, body: `{"state":"on"}`, want: "GET /v1/rollcall/self-preservation", prints: `"state": "on"`},
		{name: "release", args: []string{"self-preservation", "release", "--author=me", "--reason=gone"}, status: 200, body: `{"state":"released"}`,
			want: "POST /v1/rollcall/self-preservation/release?author=me&reason=gone", prints: "\nreleased  "},
		{name: "hold", args: []string{"self-preservation", "hold", "--for=30m", "--author=me"}, status: 200, body: `{"state":"held"}`,
			want: "POST /v1/rollcall/self-preservation/hold?author=me&for=30m0s", prints: "\nheld   "},
		{name: "status", args: []string{"status"}, status: 200, body: "{}", want: "GET /v1/rollcall/status", prints: "LEADER"},
		{name: "status of two clusters", args: []string{"status"}, status: 200, body: `{"foreign":[{"id":"n4","address":"10.0.0.4:7761","cluster_id":"ab12"}]}`, want: "GET /v1/rollcall/status", prints: "OF ANOTHER CLUSTER  CLUSTER ADDRESS  ITS CLUSTER\nn4                  10.0.0.4:7761    ab12\n"},
		{name: "verify", args: []string{"verify"}, status: 200, body: `{"verdict":"equal","sentence":"All.","index":7,"nodes":[{"id":"n1","index":7,"digest":"0a","sentence":"Good."},{"id":"n2","sentence":"None."}]}`,
			want: "GET /v1/rollcall/verify", prints: "NODE  INDEX  DIGEST  -\nn1    7      0a      Good.\nn2    -      -       None.\n\nAll.\n"},
		{name: "events", args: []string{"events"}, status: 200, body: "{}", want: "GET /v1/rollcall/events", prints: "EVENT"},
		{name: "members", args: []string{"members"}, status: 200, body: `{"nodes":[{"id":"n1","role":"learner"}]}`, want: "GET /v1/rollcall/status", prints: "n1    learner"},
		{name: "members in JSON", args: []string{"members", "-o", "json"}, status: 200, body: `{}`, want: "GET /v1/rollcall/status", prints: "[]\n"},
		{name: "remove a member", args: []string{"members", "remove", "n1", "--author=me", "--reason=lost"}, status: 200, body: `{"removed":"n1"}`, want: "DELETE /v1/rollcall/members/n1?author=me&reason=lost", prints: "removed  n1\n"},
		{name: "remove a member, in JSON", args: []string{"members", "remove", "n1", "-o", "json", "--author=me"}, status: 200, want: "DELETE /v1/rollcall/members/n1?author=me", prints: `"removed": "n1"`},
		{name: "transfer leadership", args: []string{"members", "transfer"}, status: 200, body: `{"leader":"n2"}`, want: "POST /v1/rollcall/transfer", prints: "leader  n2\n"},
		{name: "transfer leadership to a node", args: []string{"members", "transfer", "n3"}, status: 200, body: `{"leader":"n3"}`, want: "POST /v1/rollcall/transfer?to=n3", prints: "leader  n3\n"},
		{name: "upgrade status", args: []string{"upgrade", "status"}, status: 200, body: `{"level":1,"next":2,"lacking":"n2 runs 0.1","nodes":[{"id":"n1","version":"0.2","oldest":1,"newest":2,"since":1700000000000,"writes":1}],"waiting":[{"level":2,"version":"0.2","brings":"notes"}]}`,
			want: "GET /v1/rollcall/upgrade", prints: "The cluster writes level 1. Level 2 waits: n2 runs 0.1.\n\nNODE  VERSION  READS  SINCE                 WRITES\nn1    0.2      1-2    2023-11-14T22:13:20Z  1\n\nLEVEL  FROM VERSION  WAITING FOR IT\n2      0.2           notes\n"},
		{name: "upgrade finalize", args: []string{"upgrade", "finalize"}, status: 200, body: `{"level":2}`, want: "POST /v1/rollcall/upgrade/finalize", prints: "The cluster writes level 2, the newest.\n"},
		{name: "ls", args: []string{"ls", "--consistency", "stale"}, status: 200, body: `[]`, want: "GET /v1/rollcall/apps?consistency=stale", prints: "VIP"},
		{name: "ls of one", args: []string{"ls", "orders", "-o", "json"}, status: 200, body: `null`, want: "GET /v1/rollcall/apps?app=orders", prints: "[]\n"},
		{name: "ls of the quarantined", args: []string{"ls", "--quarantined"}, status: 200, body: `[{"app":"A","id":"1"},{"app":"A","id":"2","quarantined_until":1000}]`,
			want: "GET /v1/rollcall/apps?quarantined=true", prints: "UNTIL\nA    2"},
		{name: "ls of the quarantined of one", args: []string{"ls", "orders", "--quarantined", "-o", "json", "--consistency=stale"}, status: 200, body: `[{"app":"ORDERS","id":"1"}]`,
			want: "GET /v1/rollcall/apps?app=orders&consistency=stale&quarantined=true", prints: "[]\n"},
		{name: "kv get", args: []string{"kv", "get", "a/b"}, status: 200, body: `[{"Key":"a/b","Value":"Ymx1ZQ=="}]`, want: "GET /v1/kv/a%2Fb", prints: "blue"},
		{name: "kv get, stale", args: []string{"kv", "get", "a", "--consistency=stale"}, status: 200, body: `[{"Key":"a","Value":null}]`, want: "GET /v1/kv/a?stale=", prints: ""},
		{name: "kv get in detail", args: []string{"kv", "get", "a", "--detail"}, status: 200, body: `[{"Key":"a","Value":"AAE=","Flags":18446744073709551615,"ModifyIndex":57}]`,
			want: "GET /v1/kv/a", prints: "a    18446744073709551615  57     0        0       -        -      2 bytes"},
		{name: "kv get in JSON", args: []string{"kv", "get", "a", "-o", "json"}, status: 200, body: `[{"Key":"a","Value":"Ymx1ZQ==","ModifyIndex":57}]`, want: "GET /v1/kv/a", prints: `"modify_index": 57`},
		{name: "kv put", args: []string{"kv", "put", "a", "blue"}, status: 200, body: "true", want: "PUT /v1/kv/a", prints: "written  a\n"},
		{name: "kv put if absent, with flags", args: []string{"kv", "put", "a", "blue", "--cas=0", "--flags=7"}, status: 200, body: "true", want: "PUT /v1/kv/a?cas=0&flags=7", prints: "written  a\n"},
		{name: "kv put to acquire", args: []string{"kv", "put", "a", "me", "--acquire=s1"}, status: 200, body: "true", want: "PUT /v1/kv/a?acquire=s1", prints: "acquired  a\n"},
		{name: "kv put to release", args: []string{"kv", "put", "a", "me", "--release=s1"}, status: 200, body: "true", want: "PUT /v1/kv/a?release=s1", prints: "released  a\n"},
		{name: "kv put with the key's own token", args: []string{"kv", "put", "a", "me", "--fence=57"}, status: 200, body: "true", want: "PUT /v1/kv/a?fence=57", prints: "written  a\n"},
		{name: "kv put with a lock's token", args: []string{"kv", "put", "a", "me", "--fence=57", "--fence-lock=demo"}, status: 200, body: "true", want: "PUT /v1/kv/a?fence=57&fence-lock=demo", prints: "written  a\n"},
		{name: "kv del", args: []string{"kv", "del", "a"}, status: 200, body: "true", want: "DELETE /v1/kv/a", prints: "deleted  a\n"},
		{name: "kv del if unchanged", args: []string{"kv", "del", "a", "--cas=57"}, status: 200, body: "true", want: "DELETE /v1/kv/a?cas=57", prints: "deleted  a\n"},
		{name: "kv del of a prefix", args: []string{"kv", "del", "a/", "--prefix"}, status: 200, body: "true", want: "DELETE /v1/kv/a%2F?recurse=", prints: "deleted  a/\n"},
		{name: "kv ls", args: []string{"kv", "ls"}, status: 200, body: `[{"Key":"a","Value":"Ymx1ZQ==","ModifyIndex":57,"Session":"s1"}]`, want: "GET /v1/kv/?recurse=", prints: "a    4      0      57     s1\n"},
		{name: "kv ls of nothing", args: []string{"kv", "ls", "b", "-o", "json"}, status: 404, want: "GET /v1/kv/b?recurse=", prints: "[]\n"},
		{name: "kv ls of names", args: []string{"kv", "ls", "--keys", "--separator=/"}, status: 200, body: `["a/","b"]`, want: "GET /v1/kv/?keys=&separator=%2F", prints: "a/\nb\n"},
		{name: "session create", args: []string{"session", "create"}, status: 200, body: `{"id":"s1"}`, want: "POST /v1/rollcall/sessions", prints: "s1\n"},
		{name: "session renew", args: []string{"session", "renew", "s1"}, status: 200, body: `{"id":"s1"}`, want: "PUT /v1/rollcall/sessions/s1/renew", prints: "renewed  s1\n"},
		{name: "session destroy", args: []string{"session", "destroy", "s1"}, status: 200, body: `{}`, want: "DELETE /v1/rollcall/sessions/s1", prints: "destroyed  s1\n"},
		{name: "session ls", args: []string{"session", "ls"}, status: 200, body: `[{"id":"s1","ttl":"15s","age_ms":61000,"ends_in_ms":9400,"holds":[{"kind":"lock","name":"demo","fence":57},{"kind":"key","name":"a"}]},{"id":"s2","ttl":""}]`,
			want: "GET /v1/rollcall/sessions", prints: "s1       -     1m1s  15s  9s       lock demo, key a\ns2       -     0s    -    never    -\n"},
		{name: "session ls in JSON", args: []string{"session", "ls", "-o", "json"}, status: 200, body: `null`, want: "GET /v1/rollcall/sessions", prints: "[]\n"},
		{name: "prune", args: []string{"prune", "--not-passing", "--service", "orders"}, status: 200, body: `[{"app":"ORDERS","id":"orders-1","status":"DOWN","reason":"check c is critical"}]`,
			want: "POST /v1/rollcall/prune?not-passing=&service=orders", prints: "ORDERS  orders-1  DOWN    check c is critical\n"},
		{name: "prune nothing", args: []string{"prune", "--not-passing", "--dry-run", "-o", "json"}, status: 200, body: `[]`, want: "POST /v1/rollcall/prune?dry-run=&not-passing=", prints: "[]\n"},
		{name: "register", args: []string{"register", "orders", "--id=orders-1"}, status: 204, want: "POST /eureka/apps/ORDERS", prints: "registered  ORDERS/orders-1  UP\n"},
		{name: "peers", args: []string{"peers"}, status: 200, body: `{"peers":[{"name":"dc2","kind":"datacenter","state":"ok"}]}`, want: "GET /v1/rollcall/peers", prints: "\ndc2   datacenter  ok"},
		{name: "peers status, in JSON", args: []string{"peers", "status", "-o", "json"}, status: 200, body: `{"node":"n1"}`, want: "GET /v1/rollcall/peers", prints: `"peers": []`},
		{name: "peers diff", args: []string{"peers", "diff", "10.0.0.1:8761"}, status: 200, body: `{"apps":1,"missing":1,"items":[{"app":"ORDERS","id":"o1","what":"missing"}]}`,
			want: "GET /v1/rollcall/peers/10.0.0.1:8761/diff", prints: "\nORDERS/o1  missing\n"},
		{name: "peers diff of nothing, in JSON", args: []string{"peers", "diff", "dc2", "-o", "json"}, status: 200, body: `{"items":null}`, want: "GET /v1/rollcall/peers/dc2/diff", prints: `"items": []`},
		{name: "peers repair", args: []string{"peers", "repair", "a/b"}, status: 200, body: `{"apps":2,"missing":3,"extra":4}`, want: "POST /v1/rollcall/peers/a%2Fb/repair", prints: "\n2     3        4\n"},
		{name: "peers pause", args: []string{"peers", "pause", "dc2", "--author=me", "--reason=rebuilt"}, status: 204, want: "POST /v1/rollcall/peers/dc2/pause?author=me&reason=rebuilt", prints: "paused  dc2\n"},
		{name: "peers resume", args: []string{"peers", "resume", "dc2", "--author=me", "-o", "json"}, status: 204, want: "POST /v1/rollcall/peers/dc2/resume?author=me", prints: `"done": "resumed"`},
		{name: "peers forget", args: []string{"peers", "forget", "n2.902c570f70f5", "--author=me"}, status: 204, want: "POST /v1/rollcall/peers/n2.902c570f70f5/forget?author=me", prints: "forgotten  n2.902c570f70f5\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newFakeServer(t, tc.status, tc.body)
			stdout, stderr, code := rollcall(t, append(tc.args, "--addr", s.URL)...)
			expect.That(t, code == cli.ExitOK && strings.Contains(stdout, tc.prints), "exit %d, printed %q and %q, want %q", code, stdout, stderr, tc.prints)
			expect.That(t, len(s.requests) == 1 && s.requests[0] == tc.want, "sent %q, want %q", s.requests, tc.want)
		})
	}
}

func TestStatusCheckSaysByItsExitCodeHowTheClusterIs(t *testing.T) {
	for condition, want := range map[string]int{"well": 0, "degraded": 1, "leaderless": 2, "": 1} {
		s := newFakeServer(t, 200, fmt.Sprintf(`{"condition":%q,"summary":"So it is."}`, condition))
		stdout, stderr, code := rollcall(t, "status", "--check", "--addr", s.URL)
		expect.That(t, code == want && strings.Contains(stdout, "So it is.\n") && stderr == "", "%q: exit %d, printed %q and %q, want exit %d and the sentence", condition, code, stdout, stderr, want)
		_, _, code = rollcall(t, "status", "--addr", s.URL)
		expect.Equal(t, code, 0, "%q, without --check: exit", condition)
	}
	_, _, code := rollcall(t, "status", "--check", "--addr", "http://127.0.0.1:1")
	expect.Equal(t, code, 1, "without a server: exit")
}

func TestRegisterSendsItsFlags(t *testing.T) {
	s := newFakeServer(t, 204, "")
	_, stderr, code := rollcall(t, "register", "orders", "--addr", s.URL, "--id=orders-1", "--host=h", "--ip=10.0.0.1", "--port=81",
		"--vip=v", "--status=STARTING", "--meta", "b=2,a=1", "--lease=30s", "--interval=10s")
	need.That(t, code == cli.ExitOK, "exit %d: %s", code, stderr)
	got := need.Got(eureka.DecodeRegistration([]byte(s.bodies[0]), eureka.Format{}, "ORDERS"))(t)
	if got.ID() != "orders-1" || got.HostName != "h" || got.IPAddr != "10.0.0.1" || got.Port.Number != 81 || !got.Port.Enabled ||
		got.VIP != "v" || got.Status.String() != "STARTING" || got.Meta("a") != "1" || got.Meta("b") != "2" ||
		got.Duration != 30 || got.RenewalInterval != 10 || got.LastDirty == 0 {
		t.Errorf("the server reads %+v", got)
	}
}

func TestCommandsExitWithCodesOfMistakesAndFailures(t *testing.T) {
	s := newFakeServer(t, 404, `{"error":"there is none"}`)
	for _, tc := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{name: "unknown instance", args: []string{"cancel", "a/b", "--addr", s.URL}, code: cli.ExitError, says: "cancel A/b: not registered"},
		{name: "unknown member", args: []string{"members", "remove", "n9", "--addr", s.URL}, code: cli.ExitError, says: `remove node "n9": the cluster has no such node`},
		{name: "no member", args: []string{"members", "remove"}, code: cli.ExitUsage, says: "accepts 1 arg"},
		{name: "unknown subcommand of members", args: []string{"members", "n9"}, code: cli.ExitUsage, says: "unknown command"},
		{name: "no server there", args: []string{"status", "--addr", "127.0.0.1:1"}, code: cli.ExitError, says: "connection refused"},
		{name: "unknown command", args: []string{"frobnicate"}, code: cli.ExitUsage, says: "unknown command"},
		{name: "unknown subcommand", args: []string{"config", "frobnicate"}, code: cli.ExitUsage, says: "unknown command"},
		{name: "unknown flag", args: []string{"status", "--frobnicate"}, code: cli.ExitUsage, says: "unknown flag"},
		{name: "missing argument", args: []string{"cancel"}, code: cli.ExitUsage, says: "accepts 1 arg"},
		{name: "no instance", args: []string{"cancel", "orders"}, code: cli.ExitUsage, says: "write APP/ID"},
		{name: "unknown form", args: []string{"ls", "-o", "xml"}, code: cli.ExitUsage, says: "--output"},
		{name: "unknown form of version", args: []string{"version", "-o", "xml"}, code: cli.ExitUsage, says: "--output"},
		{name: "no URL", args: []string{"ls", "--addr", "ftp://a"}, code: cli.ExitUsage, says: "--addr"},
		{name: "certificate without key", args: []string{"ls", "--cert", "c.pem"}, code: cli.ExitUsage, says: "--cert and --key"},
		{name: "missing authority", args: []string{"ls", "--ca", "missing.pem"}, code: cli.ExitUsage, says: "--ca: open missing.pem"},
		{name: "unknown status word", args: []string{"register", "a", "--status", "up"}, code: cli.ExitUsage, says: "--status"},
		{name: "a lease without a heartbeat in it", args: []string{"register", "a", "--heartbeat", "--lease", "10s"}, code: cli.ExitUsage, says: "--interval: 30s is not shorter than --lease 10s"},
		{name: "half a second", args: []string{"register", "a", "--lease", "1500ms"}, code: cli.ExitUsage, says: "--lease: 1.5s is not a whole number of seconds"},
		{name: "status and --delete", args: []string{"override", "a/b", "UP", "--delete"}, code: cli.ExitUsage, says: "not both"},
		{name: "neither status nor --delete", args: []string{"override", "a/b"}, code: cli.ExitUsage, says: "or --delete"},
		{name: "override for no time", args: []string{"override", "a/b", "UP", "--for", "1ms"}, code: cli.ExitUsage, says: "--for: 1ms is not between 1s and 168h"},
		{name: "end an override later", args: []string{"override", "a/b", "--delete", "--for", "1m"}, code: cli.ExitUsage, says: "--delete ends one"},
		{name: "quarantine without a time", args: []string{"quarantine", "a/b"}, code: cli.ExitUsage, says: "--for: is required"},
		{name: "quarantine for too long", args: []string{"quarantine", "a/b", "--for", "169h"}, code: cli.ExitUsage, says: "--for: 169h0m0s is not between"},
		{name: "end a quarantine later", args: []string{"quarantine", "a/b", "--end", "--for", "1m"}, code: cli.ExitUsage, says: "not both"},
		{name: "hold for ever", args: []string{"self-preservation", "hold"}, code: cli.ExitUsage, says: "--for: is required"},
		{name: "drain in no time", args: []string{"drain", "a/b", "--timeout", "0s"}, code: cli.ExitUsage, says: "--timeout: 0s leaves no time for the nodes"},
		{name: "drain backwards", args: []string{"drain", "a/b", "--settle", "-1s"}, code: cli.ExitUsage, says: "--settle: -1s is negative"},
		{name: "explain nothing", args: []string{"explain", "a"}, code: cli.ExitUsage, says: "write APP/ID"},
		{name: "explain an unknown instance", args: []string{"explain", "a/b", "--addr", s.URL}, code: cli.ExitError, says: "explain A/b: not registered, and nothing is remembered of it"},
		{name: "drain an unknown instance", args: []string{"drain", "a/b", "--addr", s.URL}, code: cli.ExitError, says: "A/b: not registered"},
		{name: "watch what is not offered", args: []string{"watch", "--addr", s.URL}, code: cli.ExitError, says: "404 Not Found"},
		{name: "watch two applications", args: []string{"watch", "a", "b"}, code: cli.ExitUsage, says: "accepts at most 1 arg"},
		{name: "override with another word", args: []string{"override", "a/b", "ON"}, code: cli.ExitUsage, says: "STATUS"},
		{name: "server without a data directory", args: []string{"server"}, code: cli.ExitUsage, says: "data.dir"},
		{name: "configuration with a mistake", args: []string{"config", "show", "--mode", "ca"}, code: cli.ExitUsage, says: "mode"},
		{name: "kv get of nothing", args: []string{"kv", "get", "a", "--addr", s.URL}, code: cli.ExitError, says: `get key "a": no such key`},
		{name: "kv get with a consistency of lists", args: []string{"kv", "get", "a", "--consistency", "leader"}, code: cli.ExitUsage, says: "--consistency"},
		{name: "kv put without a value", args: []string{"kv", "put", "a"}, code: cli.ExitUsage, says: "accepts 2 arg"},
		{name: "kv put with two conditions", args: []string{"kv", "put", "a", "b", "--cas", "1", "--acquire", "s"}, code: cli.ExitUsage, says: "give one of --cas, --acquire and --release"},
		{name: "kv put with a lock and no token", args: []string{"kv", "put", "a", "b", "--fence-lock", "l"}, code: cli.ExitUsage, says: "--fence: is required"},
		{name: "kv put with two acquisitions", args: []string{"kv", "put", "a", "b", "--fence", "1", "--fence-lock", "l", "--fence-key", "k"}, code: cli.ExitUsage, says: "give one of --fence-key"},
		{name: "kv put of a missing file", args: []string{"kv", "put", "a", "@missing"}, code: cli.ExitError, says: "open missing"},
		{name: "kv del of nothing", args: []string{"kv", "del", ""}, code: cli.ExitUsage, says: "an empty KEY"},
		{name: "kv del of a prefix under a condition", args: []string{"kv", "del", "a", "--prefix", "--cas", "1"}, code: cli.ExitUsage, says: "not both"},
		{name: "kv ls with a separator", args: []string{"kv", "ls", "--separator", "/"}, code: cli.ExitUsage, says: "goes with --keys"},
		{name: "renew no session", args: []string{"session", "renew", "s", "--addr", s.URL}, code: cli.ExitError, says: `renew session "s": no such session`},
		{name: "session of another behavior", args: []string{"session", "create", "--behavior", "keep"}, code: cli.ExitUsage, says: "--behavior"},
		{name: "session without end", args: []string{"session", "create", "--ttl", "0s"}, code: cli.ExitUsage, says: "--ttl"},
		{name: "session with a long lock-delay", args: []string{"session", "create", "--lock-delay", "61s"}, code: cli.ExitUsage, says: "--lock-delay"},
		{name: "prune everything", args: []string{"prune"}, code: cli.ExitUsage, says: "--not-passing: is required"},
		{name: "lock without a command", args: []string{"lock", "demo"}, code: cli.ExitUsage, says: "write rollcall lock NAME [flags] -- COMMAND"},
		{name: "lock without the two dashes", args: []string{"lock", "demo", "true"}, code: cli.ExitUsage, says: "write rollcall lock NAME [flags] -- COMMAND"},
		{name: "lock of two names", args: []string{"lock", "a", "b", "--", "true"}, code: cli.ExitUsage, says: "write rollcall lock NAME [flags] -- COMMAND"},
		{name: "lock that waits and does not", args: []string{"lock", "a", "--try", "--timeout", "1s", "--", "true"}, code: cli.ExitUsage, says: "not both"},
		{name: "lock in no time", args: []string{"lock", "a", "--timeout", "-1s", "--grace", "-1s", "--", "true"}, code: cli.ExitUsage, says: "--timeout: -1s is negative\n--grace: -1s is negative"},
		{name: "semaphore without a limit", args: []string{"semaphore", "a", "--", "true"}, code: cli.ExitUsage, says: "--limit: is required"},
		{name: "dev in another mode", args: []string{"dev", "--mode", "ca", "--dcs", "10"}, code: cli.ExitUsage, says: "--dcs"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stdout, stderr, code := rollcall(t, tc.args...)
			expect.That(t, code == tc.code && strings.Contains(stderr, tc.says), "exit %d, said %q, want exit %d and %q", code, stderr, tc.code, tc.says)
			expect.That(t, stdout == "", "printed %q on standard output, want nothing there", stdout)
		})
	}
}

func TestCommandsSayWhyTheyAreRefused(t *testing.T) {
	t.Setenv(cli.AddrEnv, "")
	t.Setenv(dataDirEnv, "")
	for _, tc := range []struct {
		name   string
		args   []string
		status int
		body   string
		code   int
		says   string
	}{
		{name: "denied", args: []string{"token", "ls"}, status: 403, body: `{"error":"Permission denied: token with AccessorID 'a' lacks permission 'auth:read'"}`, code: cli.ExitError, says: "lacks permission 'auth:read'"},
		{name: "bootstrapped", args: []string{"auth", "bootstrap"}, status: 409, body: `{"error":"the first operator was made already"}`, code: cli.ExitError, says: "made already"},
		{name: "no such token", args: []string{"token", "revoke", "a"}, status: 404, body: `{"error":"no"}`, code: cli.ExitError, says: `revoke token "a": no such token`},
		{name: "another mode", args: []string{"auth", "mode", "maybe"}, code: cli.ExitUsage, says: `"maybe" is not one of`},
		{name: "no holder", args: []string{"token", "create"}, code: cli.ExitUsage, says: "--name: is required"},
		{name: "no rule", args: []string{"role", "put", "r"}, code: cli.ExitUsage, says: "requires at least 2 arg"},
		{name: "two addresses", args: []string{"auth", "status", "--data-dir=d"}, code: cli.ExitUsage, says: "--addr or --data-dir"},
		{name: "a negative grace", args: []string{"token", "rotate", "a", "--grace=-1s"}, code: cli.ExitUsage, says: "is negative"},
		{name: "no override to end", args: []string{"override", "a/b", "--delete"}, status: 200, body: `{"nothing":true}`, code: cli.ExitError, says: "end the override of A/b: none is in force"},
		{name: "no quarantine to end", args: []string{"quarantine", "a/b", "--end"}, status: 200, body: `{"nothing":true}`, code: cli.ExitError, says: "end the quarantine of A/b: none is in force"},
		{name: "peers, none are configured", args: []string{"peers"}, status: 501, body: `{"error":"this node replicates nothing"}`, code: cli.ExitError, says: "this node replicates nothing"},
		{name: "peers, unknown", args: []string{"peers", "pause", "dc9"}, status: 404, body: `{"error":"no such peer: \"dc9\""}`, code: cli.ExitError, says: `pause peer "dc9": no such peer`},
		{name: "peers, an unknown sender", args: []string{"peers", "forget", "n9"}, status: 404, body: `{"error":"no such sender: nothing was heard from \"n9\""}`, code: cli.ExitError, says: `forget sender "n9": no such sender`},
		{name: "peers, a Eureka server", args: []string{"peers", "diff", "old"}, status: 409, body: `{"error":"not offered for Eureka servers"}`, code: cli.ExitError, says: "not offered for Eureka servers"},
		{name: "peers, unreachable", args: []string{"peers", "repair", "dc2"}, status: 503, body: `{"error":"dial tcp: refused"}`, code: cli.ExitError, says: "dial tcp: refused"},
		{name: "peers, no name", args: []string{"peers", "repair"}, code: cli.ExitUsage, says: "accepts 1 arg"},
		{name: "peers, another word", args: []string{"peers", "stop"}, code: cli.ExitUsage, says: "unknown command"},
	} {
		s := newFakeServer(t, tc.status, tc.body)
		stdout, stderr, code := rollcall(t, append(tc.args, "--addr", s.URL)...)
		expect.That(t, code == tc.code && strings.Contains(stderr, tc.says) && stdout == "", "%s: exit %d, printed %q, said %q, want %d and %q", tc.name, code, stdout, stderr, tc.code, tc.says)
	}
	_, stderr, code := rollcall(t, "auth", "bootstrap")
	expect.That(t, code == cli.ExitUsage && strings.Contains(stderr, "give --data-dir"), "bootstrap without an address: exit %d, said %q", code, stderr)
}

func TestOverrideWithoutAnEndSaysHowLongItLasts(t *testing.T) {
	s := newFakeServer(t, 200, "{}")
	for flag, says := range map[string]bool{"": true, "--for=1m": false} {
		args := append([]string{"override", "a/b", "OUT_OF_SERVICE", "--addr", s.URL}, strings.Fields(flag)...)
		_, stderr, code := rollcall(t, args...)
		expect.That(t, code == cli.ExitOK && strings.Contains(stderr, "until --delete") == says, "%q: exit %d, said %q", flag, code, stderr)
	}
}

func TestVersionIsPrinted(t *testing.T) {
	stdout, _, code := rollcall(t, "version", "-o", "json")
	expect.That(t, code == cli.ExitOK && strings.Contains(stdout, `"version": "unknown"`), "exit %d, printed %s", code, stdout)
}

func TestCommandsTrustAGivenAuthority(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") }))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	need.OK(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600))
	_, stderr, code := rollcall(t, "status", "--addr", s.URL, "--ca", ca)
	expect.That(t, code == cli.ExitOK, "exit %d: %s", code, stderr)
	_, _, code = rollcall(t, "status", "--addr", s.URL)
	expect.That(t, code == cli.ExitError, "exit %d without the authority, want %d", code, cli.ExitError)
}

func TestVerifyFailsUnlessAllAreEqual(t *testing.T) {
	for _, verdict := range []string{"differ", "undecided"} {
		f := newFakeServer(t, 200, `{"verdict":"`+verdict+`","sentence":"So it is."}`)
		out, errs, code := rollcall(t, "verify", "--wait", "0", "--addr", f.URL)
		expect.That(t, code == cli.ExitError && strings.Contains(out, "So it is.") && errs == "", "%s: exit code %d, %q, %q", verdict, code, out, errs)
	}
	f := newFakeServer(t, 200, `{"verdict":"undecided"}`)
	_, _, code := rollcall(t, "verify", "--wait", "1100ms", "--addr", f.URL)
	expect.That(t, code == cli.ExitError && len(f.requests) >= 2, "it asks %d times, and ends with %d; want that it asks again, and 1", len(f.requests), code)
}

// TestMain lets the tests' own program be what dev and lock start: a node; or dev itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"server", "dev", "lock"}, os.Args[1]) {
		main()
	}
	os.Exit(m.Run())
}

func TestDrainReturnsWhenEveryNodeHasAppliedIt(t *testing.T) {
	var requests []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.Method+" "+r.URL.RequestURI())
		io.WriteString(w, `{"index":"e-7","nodes":[{"id":"n1","index":"e-7"}]}`)
	}))
	defer s.Close()
	stdout, stderr, code := rollcall(t, "drain", "orders/orders-1", "--settle=0s", "--author=me", "--addr", s.URL)
	expect.That(t, code == cli.ExitOK && stdout == "drained  ORDERS/orders-1  OUT_OF_SERVICE\n", "exit %d, printed %q and %q", code, stdout, stderr)
	want := []string{"PUT /v1/rollcall/apps/ORDERS/orders-1/override?author=me&drain=true&value=OUT_OF_SERVICE", "GET /v1/rollcall/status"}
	expect.That(t, strings.Join(requests, "\n") == strings.Join(want, "\n"), "sent %q, want %q", requests, want)
}

func TestDrainNamesTheNodeThatIsMissing(t *testing.T) {
	s := newFakeServer(t, 200, `{"index":"e-7","nodes":[{"id":"n1","index":"e-7"},{"id":"n2","cluster":"10.0.0.2:7761","role":"unreachable"}]}`)
	_, stderr, code := rollcall(t, "drain", "orders/orders-1", "--settle=0s", "--timeout=2s", "--addr", s.URL)
	expect.That(t, code == cli.ExitError && strings.Contains(stderr, "n2 (10.0.0.2:7761) is unreachable"), "exit %d, said %q", code, stderr)
}
