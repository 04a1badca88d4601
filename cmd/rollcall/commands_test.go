package main

import (
	"bytes"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// fakeServer answers every request alike and records it.
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
		w.WriteHeader(status)
		io.WriteString(w, body)
	}))
	t.Cleanup(f.Close)
	return f
}

// rollcall runs a command line as main does, and returns what it printed and its exit code.
func rollcall(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&errs)
	err := root.ExecuteContext(t.Context())
	code = exitCode(&errs, err)
	return out.String(), errs.String(), code
}

func TestCommandsSendWhatTheyAreAskedTo(t *testing.T) {
	for _, tc := range []struct {
		name   string
		args   []string
		status int
		body   string
		want   string // request
		prints string
	}{
		{name: "cancel", args: []string{"cancel", "orders/orders-1"}, status: 200, want: "DELETE /eureka/v2/apps/ORDERS/orders-1", prints: "canceled  ORDERS/orders-1\n"},
		{name: "cancel an id with slashes", args: []string{"cancel", "orders/a/b"}, status: 200, want: "DELETE /eureka/v2/apps/ORDERS/a%2Fb", prints: "canceled  ORDERS/a/b\n"},
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
		{name: "events", args: []string{"events"}, status: 200, body: "{}", want: "GET /v1/rollcall/events", prints: "EVENT"},
		{name: "members", args: []string{"members"}, status: 200, body: `{"nodes":[{"id":"n1","role":"learner"}]}`, want: "GET /v1/rollcall/status", prints: "n1    learner"},
		{name: "members in JSON", args: []string{"members", "-o", "json"}, status: 200, body: `{}`, want: "GET /v1/rollcall/status", prints: "[]\n"},
		{name: "remove a member", args: []string{"members", "remove", "n1"}, status: 200, body: `{"removed":"n1"}`, want: "DELETE /v1/rollcall/members/n1", prints: "removed  n1\n"},
		{name: "remove a member, in JSON", args: []string{"members", "remove", "n1", "-o", "json"}, status: 200, want: "DELETE /v1/rollcall/members/n1", prints: `"removed": "n1"`},
		{name: "ls", args: []string{"ls", "--consistency", "stale"}, status: 200, body: `[]`, want: "GET /v1/rollcall/apps?consistency=stale", prints: "VIP"},
		{name: "ls of one", args: []string{"ls", "orders", "-o", "json"}, status: 200, body: `null`, want: "GET /v1/rollcall/apps?app=orders", prints: "[]\n"},
		{name: "ls of the quarantined", args: []string{"ls", "--quarantined"}, status: 200, body: `[{"app":"A","id":"1"},{"app":"A","id":"2","quarantined_until":1000}]`,
			want: "GET /v1/rollcall/apps?quarantined=true", prints: "UNTIL\nA    2"},
		{name: "ls of the quarantined of one", args: []string{"ls", "orders", "--quarantined", "-o", "json", "--consistency=stale"}, status: 200, body: `[{"app":"ORDERS","id":"1"}]`,
			want: "GET /v1/rollcall/apps?app=orders&consistency=stale&quarantined=true", prints: "[]\n"},
		{name: "register", args: []string{"register", "orders", "--id=orders-1"}, status: 204, want: "POST /eureka/v2/apps/ORDERS", prints: "registered  ORDERS/orders-1  UP\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newFakeServer(t, tc.status, tc.body)
			stdout, stderr, code := rollcall(t, append(tc.args, "--addr", s.URL)...)
			if code != exitOK || !strings.Contains(stdout, tc.prints) {
				t.Errorf("exit %d, printed %q and %q, want %q", code, stdout, stderr, tc.prints)
			}
			if len(s.requests) != 1 || s.requests[0] != tc.want {
				t.Errorf("sent %q, want %q", s.requests, tc.want)
			}
		})
	}
}

func TestRegisterSendsItsFlags(t *testing.T) {
	s := newFakeServer(t, 204, "")
	_, stderr, code := rollcall(t, "register", "orders", "--addr", s.URL, "--id=orders-1", "--host=h", "--ip=10.0.0.1", "--port=81",
		"--vip=v", "--status=STARTING", "--meta", "b=2,a=1", "--lease=30s", "--interval=10s")
	if code != exitOK {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	got, err := eureka.DecodeRegistration([]byte(s.bodies[0]), eureka.Format{}, "ORDERS")
	if err != nil {
		t.Fatal(err)
	}
	if got.ID() != "orders-1" || got.HostName != "h" || got.IPAddr != "10.0.0.1" || got.Port.Number != 81 || !got.Port.Enabled ||
		got.VIP != "v" || got.Status.String() != "STARTING" || got.Meta("a") != "1" || got.Meta("b") != "2" ||
		got.Duration != 30 || got.RenewalInterval != 10 || got.LastDirty == 0 {
		t.Errorf("the server reads %+v", got)
	}
}

func TestTheNextServerIsTriedWhenOneIsDown(t *testing.T) {
	down, up := newFakeServer(t, 503, ""), newFakeServer(t, 200, "{}")
	t.Setenv(addrEnv, down.URL+","+strings.TrimPrefix(up.URL, "http://"))
	if _, stderr, code := rollcall(t, "status"); code != exitOK {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if len(down.requests) != 1 || len(up.requests) != 1 {
		t.Errorf("asked the first %d times and the second %d times, want once each", len(down.requests), len(up.requests))
	}
}

func TestExitCodesTellMistakesFromFailures(t *testing.T) {
	s := newFakeServer(t, 404, "")
	for _, tc := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{name: "unknown instance", args: []string{"cancel", "a/b", "--addr", s.URL}, code: exitError, says: "cancel A/b: not registered"},
		{name: "unknown member", args: []string{"members", "remove", "n9", "--addr", s.URL}, code: exitError, says: `remove node "n9": the cluster has no such node`},
		{name: "no member", args: []string{"members", "remove"}, code: exitUsage, says: "accepts 1 arg"},
		{name: "unknown subcommand of members", args: []string{"members", "n9"}, code: exitUsage, says: "unknown command"},
		{name: "nobody there", args: []string{"status", "--addr", "127.0.0.1:1"}, code: exitError, says: "connection refused"},
		{name: "unknown command", args: []string{"frobnicate"}, code: exitUsage, says: "unknown command"},
		{name: "unknown subcommand", args: []string{"config", "frobnicate"}, code: exitUsage, says: "unknown command"},
		{name: "unknown flag", args: []string{"status", "--frobnicate"}, code: exitUsage, says: "unknown flag"},
		{name: "missing argument", args: []string{"cancel"}, code: exitUsage, says: "accepts 1 arg"},
		{name: "no instance", args: []string{"cancel", "orders"}, code: exitUsage, says: "write APP/ID"},
		{name: "unknown form", args: []string{"ls", "-o", "xml"}, code: exitUsage, says: "--output"},
		{name: "unknown form of version", args: []string{"version", "-o", "xml"}, code: exitUsage, says: "--output"},
		{name: "no URL", args: []string{"ls", "--addr", "ftp://a"}, code: exitUsage, says: "--addr"},
		{name: "certificate without key", args: []string{"ls", "--cert", "c.pem"}, code: exitUsage, says: "--cert and --key"},
		{name: "missing authority", args: []string{"ls", "--ca", "missing.pem"}, code: exitUsage, says: "--ca: open missing.pem"},
		{name: "unknown status word", args: []string{"register", "a", "--status", "up"}, code: exitUsage, says: "--status"},
		{name: "half a second", args: []string{"register", "a", "--lease", "1500ms"}, code: exitUsage, says: "--lease: 1.5s is not a whole number of seconds"},
		{name: "status and --delete", args: []string{"override", "a/b", "UP", "--delete"}, code: exitUsage, says: "not both"},
		{name: "neither status nor --delete", args: []string{"override", "a/b"}, code: exitUsage, says: "or --delete"},
		{name: "override for no time", args: []string{"override", "a/b", "UP", "--for", "1ms"}, code: exitUsage, says: "--for: 1ms is not between 1s and 168h"},
		{name: "end an override later", args: []string{"override", "a/b", "--delete", "--for", "1m"}, code: exitUsage, says: "--delete ends one"},
		{name: "quarantine for ever", args: []string{"quarantine", "a/b"}, code: exitUsage, says: "--for: is required"},
		{name: "quarantine for too long", args: []string{"quarantine", "a/b", "--for", "169h"}, code: exitUsage, says: "--for: 169h0m0s is not between"},
		{name: "end a quarantine later", args: []string{"quarantine", "a/b", "--end", "--for", "1m"}, code: exitUsage, says: "not both"},
		{name: "hold for ever", args: []string{"self-preservation", "hold"}, code: exitUsage, says: "--for: is required"},
		{name: "drain in no time", args: []string{"drain", "a/b", "--timeout", "0s"}, code: exitUsage, says: "--timeout: 0s leaves no time for the nodes"},
		{name: "drain backwards", args: []string{"drain", "a/b", "--settle", "-1s"}, code: exitUsage, says: "--settle: -1s is negative"},
		{name: "explain nothing", args: []string{"explain", "a"}, code: exitUsage, says: "write APP/ID"},
		{name: "explain a stranger", args: []string{"explain", "a/b", "--addr", s.URL}, code: exitError, says: "explain A/b: not registered, and nothing is remembered of it"},
		{name: "drain a stranger", args: []string{"drain", "a/b", "--addr", s.URL}, code: exitError, says: "A/b: not registered"},
		{name: "watch what is not offered", args: []string{"watch", "--addr", s.URL}, code: exitError, says: "404 Not Found"},
		{name: "watch two applications", args: []string{"watch", "a", "b"}, code: exitUsage, says: "accepts at most 1 arg"},
		{name: "override with another word", args: []string{"override", "a/b", "ON"}, code: exitUsage, says: "STATUS"},
		{name: "server without a data directory", args: []string{"server"}, code: exitUsage, says: "data.dir"},
		{name: "configuration with a mistake", args: []string{"config", "show", "--mode", "ca"}, code: exitUsage, says: "mode"},
		{name: "dev in another mode", args: []string{"dev", "--mode", "ca", "--dcs", "10"}, code: exitUsage, says: "--dcs"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stdout, stderr, code := rollcall(t, tc.args...)
			if code != tc.code || !strings.Contains(stderr, tc.says) {
				t.Errorf("exit %d, said %q, want exit %d and %q", code, stderr, tc.code, tc.says)
			}
			if stdout != "" {
				t.Errorf("printed %q on standard output, want nothing there", stdout)
			}
		})
	}
}

func TestVersionIsPrinted(t *testing.T) {
	stdout, _, code := rollcall(t, "version", "-o", "json")
	if code != exitOK || !strings.Contains(stdout, `"version": "unknown"`) {
		t.Errorf("exit %d, printed %s", code, stdout)
	}
}

func TestConfigShowPrintsTheEffectiveSettings(t *testing.T) {
	stdout, stderr, code := rollcall(t, "config", "show", "--effective", "--data-dir", "d", "--insecure")
	if code != exitOK || !strings.Contains(stdout, "insecure: true # flag\n") || !strings.Contains(stdout, "election-timeout: 1s # default\n") {
		t.Errorf("exit %d, %s, printed\n%s", code, stderr, stdout)
	}
}

func TestAnAuthorityOfTheServersCanBeGiven(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") }))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := rollcall(t, "status", "--addr", s.URL, "--ca", ca); code != exitOK {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if _, _, code := rollcall(t, "status", "--addr", s.URL); code != exitError {
		t.Errorf("exit %d without the authority, want %d", code, exitError)
	}
}
