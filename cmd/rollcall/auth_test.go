package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestAuthCommandsSendTheirRequests(t *testing.T) {
	made := `{"accessor":"k5b7q2mdn3xw4r6c","name":"orders","roles":["service"],"secrets":1,"secret":"rct_k5b7_canary"}`
	for _, tc := range []struct {
		name   string
		args   []string
		body   string
		want   string // request
		sends  string // body
		prints string // all of it on standard output, if it has a secret
		says   string
		code   int
	}{
		{name: "status", args: []string{"auth", "status"}, body: `{"mode":"on","node_mode":"log-only","cluster_mode":"on","bootstrapped":true,"roles":2,"tokens":3,"revision":7,"age_s":0.25,"caller":{"name":"ops","accessor":"a","via":"token"}}`,
			want: "GET /v1/rollcall/auth", prints: "on    log-only  on         yes           2      3       7         250ms  -\n\nYOU  ACCESSOR  BY\nops  a         token\n"},
		{name: "mode", args: []string{"auth", "mode", "on", "--author=me", "--reason=ready"}, body: `{"mode":"on"}`, want: "PUT /v1/rollcall/auth/mode?author=me&mode=on&reason=ready", prints: "on    -"},
		{name: "mode, by force", args: []string{"auth", "mode", "off", "--author=me", "--force"}, body: `{"mode":"off"}`, want: "PUT /v1/rollcall/auth/mode?author=me&force=&mode=off", prints: "off   -"},
		{name: "test", args: []string{"auth", "test", "abc", "app", "ORDERS", "read"}, body: `{"allowed":true,"need":"app ORDERS read"}`, want: "GET /v1/rollcall/auth/test?accessor=abc&need=app+ORDERS+read", prints: "allowed  app ORDERS read\n"},
		{name: "test of what is denied", args: []string{"auth", "test", "abc", "auth write"}, body: `{"need":"auth write"}`, want: "GET /v1/rollcall/auth/test?accessor=abc&need=auth+write", prints: "denied  auth write\n", code: cli.ExitError},
		{name: "bootstrap", args: []string{"auth", "bootstrap", "--author=me"}, body: made, want: "POST /v1/rollcall/auth/bootstrap?author=me", sends: `"name":""`, prints: "rct_k5b7_canary\n", says: "token k5b7q2mdn3xw4r6c of orders"},
		{name: "roles", args: []string{"role", "ls"}, body: `[{"name":"service","rules":["app {app} register","session write"]},{"name":"none","rules":[]}]`, want: "GET /v1/rollcall/auth/roles",
			prints: "ROLE     RULE\nservice  app {app} register\nservice  session write\nnone     -\n"},
		{name: "no roles, in JSON", args: []string{"role", "ls", "-o", "json"}, body: `null`, want: "GET /v1/rollcall/auth/roles", prints: "[]\n"},
		{name: "role", args: []string{"role", "get", "a/b"}, body: `{"name":"a/b","rules":["app * read","session write"]}`, want: "GET /v1/rollcall/auth/roles/a%2Fb", prints: "app * read\nsession write\n"},
		{name: "put a role", args: []string{"role", "put", "r", "app * read", "session write", "--author=me"}, body: `{"name":"r","rules":["app * read"]}`, want: "PUT /v1/rollcall/auth/roles/r?author=me",
			sends: `"rules":["app * read","session write"]`, prints: "r     app * read\n"},
		{name: "delete a role", args: []string{"role", "delete", "r", "--author=me", "--reason=old"}, body: `{}`, want: "DELETE /v1/rollcall/auth/roles/r?author=me&reason=old", prints: "deleted  r\n"},
		{name: "tokens", args: []string{"token", "ls"}, body: `[{"accessor":"a","name":"orders","roles":["x","y"],"app":"ORDERS","secrets":2,"created":1000,"by":"ops"}]`, want: "GET /v1/rollcall/auth/tokens",
			prints: "a         orders  x,y    ORDERS  2        1970-01-01T00:00:01Z  ops  -\n"},
		{name: "create", args: []string{"token", "create", "--name", "orders", "--role", "service", "--role", "x", "--app=ORDERS", "--expires=1h", "--author=me", "--reason=new"}, body: made, want: "POST /v1/rollcall/auth/tokens?author=me&reason=new",
			sends: `{"name":"orders","roles":["service","x"],"app":"ORDERS","expires":"1h"}`, prints: "rct_k5b7_canary\n", says: "(roles: service; ends: never)"},
		{name: "rotate", args: []string{"token", "rotate", "k5b7q2mdn3xw4r6c", "--grace=90m", "--author=me", "--force"}, body: made, want: "POST /v1/rollcall/auth/tokens/k5b7q2mdn3xw4r6c/rotate?author=me&force=&grace=1h30m0s", prints: "rct_k5b7_canary\n", says: "k5b7q2mdn3xw4r6c"},
		{name: "revoke", args: []string{"token", "revoke", "k5b7", "--author=me"}, body: `{}`, want: "DELETE /v1/rollcall/auth/tokens/k5b7?author=me", prints: "revoked  k5b7\n"},
		{name: "audit", args: []string{"audit", "--app=ORDERS", "--principal=ops", "--outcome=denied", "--since=1h", "--limit=9"}, want: "GET /v1/rollcall/audit?app=ORDERS&limit=9&outcome=denied&principal=ops&since=1h",
			body:   `{"records":[{"time":"2026-11-22T08:00:00.5Z","node":"n1","principal":"ops","via":"token","address":"10.0.0.9","operation":"cancel","resource":"app ORDERS","name":"ORDERS/o1","grants":"roles x","outcome":"denied","says":"\u001b[2J"}]}`,
			prints: "2026-11-22T08:00:00.500Z  n1    ops  -         10.0.0.9  cancel     ORDERS/o1  denied   -      [roles x] ?[2J\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newFakeServer(t, 200, tc.body)
			stdout, stderr, code := rollcall(t, append(tc.args, "--addr", s.URL)...)
			whole := !strings.Contains(tc.prints, "canary") || stdout == tc.prints
			expect.That(t, code == tc.code && strings.Contains(stdout, tc.prints) && whole && strings.Contains(stderr, tc.says) && !strings.Contains(stderr, "canary"),
				"exit %d, printed %q, said %q, want %d, %q and %q", code, stdout, stderr, tc.code, tc.prints, tc.says)
			expect.That(t, len(s.requests) == 1 && s.requests[0] == tc.want && strings.Contains(s.bodies[0], tc.sends), "sent %q %q, want %q %q", s.requests, s.bodies, tc.want, tc.sends)
		})
	}
}

func TestSecretIsWrittenIntoANewFileAlone(t *testing.T) {
	s := newFakeServer(t, 200, `{"accessor":"abc","name":"orders","secret":"rct_canary"}`)
	file := filepath.Join(t.TempDir(), "orders.token")
	create := func(addr string, more ...string) (stdout, stderr string, code int) {
		return rollcall(t, append([]string{"token", "create", "--name=orders", "--out", file, "--addr", addr}, more...)...)
	}
	refusing := newFakeServer(t, 409, `{"error":"there is no role"}`)
	_, _, code := create(refusing.URL)
	_, err := os.Stat(file)
	expect.That(t, code == cli.ExitError && errors.Is(err, fs.ErrNotExist), "refused: exit %d, and the file: %v", code, err)

	stdout, stderr, code := create(s.URL, "-o", "json")
	expect.That(t, code == cli.ExitOK && strings.Contains(stdout, `"accessor": "abc"`) && !strings.Contains(stdout+stderr, "canary"), "exit %d, printed %q, said %q, want no secret", code, stdout, stderr)
	info := need.Got(os.Stat(file))(t)
	expect.That(t, info.Mode() == 0o600 && string(need.Got(os.ReadFile(file))(t)) == "rct_canary\n", "mode %v", info.Mode())

	_, stderr, code = create(s.URL)
	expect.That(t, code == cli.ExitError && strings.Contains(stderr, "not overwritten") && len(s.requests) == 1, "again: exit %d, said %q, sent %q", code, stderr, s.requests)
}

func TestTokenOfAFileIsSent(t *testing.T) {
	var sent []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = append(sent, r.Header.Get("Authorization"))
		w.Write([]byte("{}"))
	}))
	defer s.Close()
	dir := t.TempDir()
	for _, tc := range []struct {
		name    string
		content string
		mode    fs.FileMode
		byEnv   bool
		says    string // "" if it is sent
	}{
		{name: "with a line's end", content: "rct_canary\n", mode: 0o600},
		{name: "readable by the group, of the environment", content: "rct_canary", mode: 0o640, byEnv: true},
		{name: "readable by others", content: "rct_canary", mode: 0o644, says: "mode 0644, wider than 0640"},
		{name: "writable by the group", content: "rct_canary", mode: 0o660, byEnv: true, says: tokenFileEnv + ": "},
		{name: "empty", mode: 0o600, says: ": it is empty"},
		{name: "two lines", content: "rct_canary\nrct_canary", mode: 0o600, says: "one word"},
	} {
		file := filepath.Join(dir, strings.ReplaceAll(tc.name, " ", "-"))
		need.OK(t, os.WriteFile(file, []byte(tc.content), 0o600))
		need.OK(t, os.Chmod(file, tc.mode))
		args := []string{"status", "--addr", s.URL}
		t.Setenv(tokenFileEnv, "")
		if tc.byEnv {
			t.Setenv(tokenFileEnv, file)
		} else {
			args = append(args, "--token-file", file)
		}
		sent = nil
		_, stderr, code := rollcall(t, args...)
		switch {
		case tc.says == "":
			expect.That(t, code == cli.ExitOK && len(sent) == 1 && sent[0] == "Bearer rct_canary", "%s: exit %d, said %q, sent %q", tc.name, code, stderr, sent)
		default:
			expect.That(t, code == cli.ExitUsage && strings.Contains(stderr, tc.says) && strings.Contains(stderr, file) && len(sent) == 0 && !strings.Contains(stderr, "canary"), "%s: exit %d, said %q, sent %q, want %q", tc.name, code, stderr, sent, tc.says)
		}
	}
}

func TestCredentialInTheAddressIsWarnedOfAndNotShown(t *testing.T) {
	s := newFakeServer(t, 500, "no")
	address := strings.Replace(s.URL, "http://", "http://orders:rct_canary@", 1)
	for name, args := range map[string][]string{
		"a server that fails": {"status", "--addr", address},
		"no URL":              {"status", "--addr", address + "x"},
		"a table":             {"ls", "--addr", address},
	} {
		stdout, stderr, code := rollcall(t, args...)
		expect.That(t, code != cli.ExitOK && strings.Contains(stderr, "use --token-file") && !strings.Contains(stdout+stderr, "canary"), "%s: exit %d, %q, %q", name, code, stdout, stderr)
	}
	_, stderr, _ := rollcall(t, "status", "--addr", s.URL)
	expect.That(t, !strings.Contains(stderr, "token-file"), "without a credential: %q", stderr)
}

func TestAuditIsFollowedWithoutGapAndRepetition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		at := func(second int) client.AuditRecord {
			return client.AuditRecord{Time: time.Unix(int64(second), 0).In(time.FixedZone("", 3600)), Operation: "register", Outcome: "done"}
		}
		responses := [][]client.AuditRecord{{at(1), at(2)}, {at(2), at(3)}, nil, {at(2), at(3)}, {at(3), at(4)}}
		var since []string
		var out, errs bytes.Buffer
		f := follower{out: &out, errs: &errs, form: cli.JSON, ask: func(q client.AuditQuery) ([]client.AuditRecord, error) {
			since = append(since, q.Since)
			if len(since) > len(responses) {
				cancel()
				return nil, ctx.Err()
			}
			if len(since) == 3 {
				return nil, errors.New("no server")
			}
			return responses[len(since)-1], nil
		}}
		need.OK(t, f.run(ctx, client.AuditQuery{Since: "1h"}))
		var printed []int64
		for dec := json.NewDecoder(&out); dec.More(); {
			var r client.AuditRecord
			need.OK(t, dec.Decode(&r))
			printed = append(printed, r.Time.Unix())
		}
		expect.Deep(t, printed, []int64{1, 2, 3, 4}, "printed")
		expect.Deep(t, since, []string{"1h", "4s", "4s", "5s", "4s", "4s"}, "since")
		expect.Equal(t, errs.String(), "no server; trying again\nthe audit is read again\n", "said")
	})
	f := follower{ask: func(client.AuditQuery) ([]client.AuditRecord, error) { return nil, &client.StatusError{Status: 403} }}
	expect.That(t, errors.Is(f.run(t.Context(), client.AuditQuery{}), client.ErrDenied), "a refusal does not end it")
}

func TestTLSIssueAddsACertificateAndOverwritesNone(t *testing.T) {
	dir := t.TempDir()
	cluster, out := filepath.Join(dir, "cluster"), filepath.Join(dir, "out")
	_, stderr, code := rollcall(t, "config", "init", "--tls", cluster, "n1=127.0.0.1")
	need.That(t, code == cli.ExitOK, "exit %d: %s", code, stderr)
	for _, step := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"client", []string{"ci", "--days", "9"}, cli.ExitOK, filepath.Join(out, "ci.key")},
		{"again", []string{"ci"}, cli.ExitError, "not overwritten"},
		{"node", []string{"n1", "--hosts", "10.0.0.1,n1.internal", "-o", "json"}, cli.ExitOK, `"key": `},
		{"a port", []string{"n2", "--hosts", "10.0.0.1:1"}, cli.ExitUsage, "without a port"},
		{"no name", []string{"../n2"}, cli.ExitUsage, "is not a name"},
		{"no time", []string{"n2", "--days", "0"}, cli.ExitUsage, "--days"},
		{"no authority", []string{"n2", "--authority", dir}, cli.ExitError, "config init --tls"},
	} {
		args := append([]string{"tls", "issue", "--authority", cluster, "--out", out}, step.args...)
		stdout, stderr, code := rollcall(t, args...)
		expect.That(t, code == step.code && strings.Contains(stdout+stderr, step.says), "%s: exit %d, %q, %q, want %d and %q", step.name, code, stdout, stderr, step.code, step.says)
	}
	expect.Equal(t, need.Got(os.Stat(filepath.Join(out, "ci.key")))(t).Mode(), fs.FileMode(0o600), "mode of the key")
	need.OK(t, os.Remove(filepath.Join(cluster, "authority.key")))
	_, stderr, code = rollcall(t, "tls", "issue", "n3", "--authority", cluster, "--out", out)
	expect.That(t, code == cli.ExitError && strings.Contains(stderr, "authority.key is missing"), "without the authority's key: exit %d, %q", code, stderr)
}

// The socket is in a node's data directory; the server runs in a process of its own.
func TestAccessControlBeginsAndIsRecoveredByTheSocket(t *testing.T) {
	nodes := need.Got(localcluster.LayOut(t.TempDir(), localcluster.CP, 1, 1))(t)
	node := nodes[0]
	node.Settings["auth.mode"] = "on"
	defer localcluster.StopAll(nodes)
	node.Introduce(nodes)
	need.OK(t, node.Start(os.Args[0]))
	dir := t.TempDir()
	ready, cancel := localcluster.WithinReady(t.Context())
	defer cancel()
	need.OK(t, node.AwaitReady(ready, false))
	run := func(code int, says string, args ...string) (stdout string) {
		t.Helper()
		stdout, stderr, got := rollcall(t, args...)
		need.That(t, got == code && strings.Contains(stdout+stderr, says), "%q: exit %d, printed %q, said %q, want %d and %q", args, got, stdout, stderr, code, says)
		return stdout
	}
	ops, orders := filepath.Join(dir, "ops"), filepath.Join(dir, "orders")
	socket := "--data-dir=" + node.Dir
	address := "--addr=" + node.URL()
	byOps, byOrders := "--token-file="+ops, "--token-file="+orders

	run(cli.ExitError, "401", "ls", address)
	run(cli.ExitError, "401", "auth", "bootstrap", address)
	run(cli.ExitOK, "of operator", "auth", "bootstrap", socket, "--out", ops)
	run(cli.ExitError, "made already", "auth", "bootstrap", socket)
	run(cli.ExitOK, "operator", "auth", "status", address, byOps)
	run(cli.ExitOK, "app {app} read,register", "role", "put", "service", "app {app} read,register", address, byOps)
	secret := run(cli.ExitOK, "", "token", "create", "--name=orders", "--role=service", "--app=ORDERS", address, byOps)
	need.OK(t, os.WriteFile(orders, []byte(secret), 0o600))
	run(cli.ExitOK, "", "ls", "ORDERS", address, byOrders)
	run(cli.ExitError, "403", "ls", "PAYMENTS", address, byOrders)
	accessor := strings.Split(secret, "_")[1]
	run(cli.ExitOK, "allowed", "auth", "test", accessor, "app ORDERS register", address, byOps)
	run(cli.ExitError, "denied", "auth", "test", accessor, "app PAYMENTS read", address, byOps)
	run(cli.ExitOK, "rct_", "token", "rotate", accessor, "--grace=1h", address, byOps)
	run(cli.ExitOK, "", "ls", "ORDERS", address, byOrders)
	run(cli.ExitOK, "revoked", "token", "revoke", accessor, "--reason=test", address, byOps)
	run(cli.ExitError, "401", "ls", "ORDERS", address, byOrders)

	operator := strings.Split(string(need.Got(os.ReadFile(ops))(t)), "_")[1]
	run(cli.ExitError, "say it with force", "token", "revoke", operator, address, byOps)
	run(cli.ExitOK, "revoked", "token", "revoke", operator, "--force", address, byOps)
	run(cli.ExitError, "401", "token", "ls", address, byOps)
	run(cli.ExitOK, "rct_", "token", "create", "--name=anna", "--role=operator", socket) // the last operator is lost
	run(cli.ExitOK, "anna", "token", "ls", socket)
}

func authHash(t *testing.T, stdin string, args ...string) (out, shown string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := newAuthHash()
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err = cmd.Execute()
	return stdout.String(), stderr.String(), err
}

func TestAuthHashMakesALineAndGivesTheTextOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orders.token")
	args := []string{"--name", "orders", "--role", "service", "--app", "ORDERS", "--expires", "1h"}
	out, shown, err := authHash(t, "", append(args, "--out", path)...)
	need.OK(t, err)
	info := need.Got(os.Stat(path))(t)
	text := strings.TrimSpace(string(need.Got(os.ReadFile(path))(t)))
	expect.That(t, info.Mode().Perm() == 0o600 && shown == "" && !strings.Contains(out, text), "mode %o, shown %q, %q", info.Mode().Perm(), shown, out)
	c := need.Got(config.ParseAuthFile("f", []byte("roles: {service: []}\ntokens:\n"+out)))(t)
	k := c.Tokens[0]
	expect.That(t, k.Good(access.HashOf(text), k.Expires-1) && !k.Good(access.HashOf(text), k.Expires) && k.App == "ORDERS", "got %+v", k)

	_, _, err = authHash(t, "", append(args, "--out", path)...)
	expect.That(t, err != nil && strings.Contains(err.Error(), "already exists"), "a file was overwritten: %v", err)

	again, shown, err := authHash(t, text+"\n", "--name", "orders", "--role", "service", "--app", "ORDERS", "--from", "-")
	need.OK(t, err)
	expect.That(t, shown == "" && strings.HasPrefix(out, again), "got %q, want the same but for the end as %q", again, out)

	out, shown, err = authHash(t, "", "--name", "orders", "--accessor", k.Accessor)
	need.OK(t, err)
	other := need.Got(config.TokenOf(strings.TrimSpace(shown[strings.LastIndex(shown, "rct_"):])))(t)
	expect.That(t, other.Accessor == k.Accessor && other.Secrets[0] != k.Secrets[0] && strings.Contains(out, k.Accessor), "got %+v of %s", other, k.Accessor)
}

func TestAuthHashRepeatsNoTextInErrors(t *testing.T) {
	text := config.NewTokenText("")
	for _, c := range []struct {
		stdin string
		args  []string
		want  string
	}{
		{text[:60], []string{"--name", "a", "--from", "-"}, "it was cut off"},
		{"canary", []string{"--name", "a", "--from", "-"}, "the credential is no token"},
		{"", []string{"--name", "a", "--accessor", text}, "--accessor"},
		{text, []string{"--from", "-"}, "give --name"},
	} {
		out, shown, err := authHash(t, c.stdin, c.args...)
		expect.That(t, err != nil && strings.Contains(err.Error(), c.want) && !strings.Contains(err.Error()+out+shown, text[21:59]) && !strings.Contains(err.Error(), "canary"), "%q: got %v", c.args, err)
	}
}
