package integration

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// newTokenFor runs rollcall auth hash, and returns the text of a new token and its line of auth.file.
func newTokenFor(t testing.TB, name, role string) (text, line string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), name)
	line = string(runProgram(t, Binary(t), "auth", "hash", "--name", name, "--role", role, "--out", out))
	return strings.TrimSpace(string(need.Got(os.ReadFile(out))(t))), line
}

// writePrivate replaces a file at once, as programs do that hand out secrets.
func writePrivate(t testing.TB, path, text string) {
	t.Helper()
	need.OK(t, os.WriteFile(path+".new", []byte(text), 0o600))
	need.OK(t, os.Rename(path+".new", path))
}

// fileRoles are those of the tests' auth.file.
const fileRoles = `roles:
  operator: ["app * read,register,override", "operator read,write", "auth read,write", "metrics read"]
  node: [peer dc1 exchange]
tokens:
`

// inForce is how long a change of auth.file may take by its promise.
const inForce = 5 * time.Second

// TestWithoutConsensusNodesKnowEachOtherByTheirAuthFile: three nodes replicate by tokens of a file; one whose token is taken
// out of the file, or that sends in another's name, is refused, and says so.
func TestWithoutConsensusNodesKnowEachOtherByTheirAuthFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	operator, lines := newTokenFor(t, "ann", "operator")
	tokens, lineOf := map[string]string{}, map[string]string{}
	of := func(node, what string) string { return filepath.Join(dir, node+"."+what) }
	for _, node := range []string{"n1", "n2", "n3"} {
		tokens[node], lineOf[node] = newTokenFor(t, node, "node")
		writePrivate(t, of(node, "token"), tokens[node]+"\n")
	}
	write := func(text string, nodes ...string) {
		for _, node := range nodes {
			writePrivate(t, of(node, "auth"), fileRoles+text)
		}
	}
	all := lines + lineOf["n1"] + lineOf["n2"] + lineOf["n3"]
	write(all, "n1", "n2", "n3")
	c := NewCluster(t, Config{AP: true, Of: func(node string) map[string]string {
		return map[string]string{"auth.mode": "on", "auth.file": of(node, "auth"), "replication.token-files": "dc1=" + of(node, "token")}
	}})
	for _, n := range c.Nodes {
		n.Token = operator
	}
	c.Start()
	first, third := c.Nodes[0], c.Nodes[2]
	mustRegister(t, third, Instance{App: "ORDERS", ID: "a", Duration: 600})
	mustConverge(t, c.Nodes)
	response := first.Do(Request{Path: "/eureka/apps", Bearer: tokens["n1"]})
	expect.That(t, response.Status == http.StatusForbidden, "a node's token reads the list: %v", response)
	expect.That(t, request(t.Context(), transport, first.URL(), Request{Path: "/eureka/apps"}).Status == http.StatusUnauthorized, "the list is shown to all")

	status := func(n *Node) api.AuthStatus {
		t.Helper()
		return need.Got(ask[api.AuthStatus](n, "/v1/rollcall/auth"))(t)
	}
	peerOf := func(n, other *Node) (api.Peer, error) { return n.Peer(other.HTTP) }
	s := status(first)
	expect.That(t, s.FileDigest != "" && s.FileDigest == status(third).FileDigest && s.FileError == "" && s.Caller.Via == "file", "status: %+v", s)
	p := need.Got(peerOf(first, third))(t)
	expect.Equal(t, p.AuthFile, "same", "auth.file of the third:")

	// A file with a mistake is not in force, and that is said.
	write("mode: [\n", "n1")
	Eventually(t, inForce, "the mistake is said", func() error {
		s := status(first)
		return unless(strings.Contains(s.FileError, "n1.auth") && s.Tokens == 4, "%+v", s)
	})
	expect.That(t, strings.Contains(string(first.Get("/metrics").Body), "rollcall_auth_file_error 1\n"), "no metric tells of the mistake")

	// The third is thrown out at the first alone: files differ.
	write(lines+lineOf["n1"]+lineOf["n2"], "n1")
	Eventually(t, ReadyLimit, "the third says that it is refused", func() error {
		p, err := peerOf(third, first)
		return errors.Join(err, unless(p.State == "failing" && strings.Contains(p.Reason, "401"), "%s: %s", p.State, p.Reason))
	})
	Eventually(t, ReadyLimit, "the difference is shown", func() error {
		p, err := peerOf(first, third)
		return errors.Join(err, unless(p.AuthFile == "differs" && strings.Contains(p.Reason, "auth.file"), "%s: %s", p.AuthFile, p.Reason))
	})
	mustRegister(t, third, Instance{App: "ORDERS", ID: "b", Duration: 600})
	Eventually(t, replicated, "the second hears the third", func() error { return wantListed("a", "b")(mustList(t, c.Nodes[1])) })
	expect.OKf(t, wantListed("a")(mustList(t, first)), "the first believes a node that is not in its file:")

	// In the name of the third none but its principal speaks.
	write(all, "n1")
	mustConverge(t, c.Nodes)
	writePrivate(t, of("n3", "token"), tokens["n2"])
	Eventually(t, ReadyLimit, "the third says that its name is another's", func() error {
		p, err := peerOf(third, first)
		return errors.Join(err, unless(p.State == "failing" && strings.Contains(p.Reason, "403") && strings.Contains(p.Reason, "n3 used the name"), "%s: %s", p.State, p.Reason))
	})
	first.Stop(t)
	first.Start(t)
	first.WaitReady(t)
	var sender string
	for _, s := range need.Got(first.Peers())(t).Senders {
		if s.Principal == "n3" {
			sender = s.Sender
		}
	}
	need.That(t, sender != "", "after a restart the first has forgotten whose name it is")
	for _, n := range c.Nodes[:2] {
		need.Equal(t, n.Do(Request{Method: http.MethodPost, Path: "/v1/rollcall/peers/" + sender + "/forget?" + signed("ann", "another token")}).Status, 204, "forget:")
	}
	mustRegister(t, third, Instance{App: "ORDERS", ID: "c", Duration: 600})
	mustConverge(t, c.Nodes)
	for _, n := range c.Nodes {
		out := n.Output(t)
		for name, secret := range tokens {
			expect.That(t, !strings.Contains(out, secret[21:60]), "%s prints the token of %s", n.Name, name)
		}
	}
}

// TestFirstOperatorComesFromAFileAndPermissionsSurviveARestart: every node has the file, and one of them makes the operator.
// What a restore brings back of roles and tokens, it does only when asked to.
func TestFirstOperatorComesFromAFileAndPermissionsSurviveARestart(t *testing.T) {
	t.Parallel()
	operator, _ := newTokenFor(t, "operator", "none")
	file := filepath.Join(t.TempDir(), "bootstrap")
	writePrivate(t, file, operator+"\n")
	c := NewCluster(t, Config{Settings: map[string]string{"auth.mode": "on", "auth.bootstrap-token-file": file}})
	for _, n := range c.Nodes {
		n.Token = operator
	}
	c.Start()
	n := c.Nodes[0]
	do := func(method, path, body string) Response { // a busy machine may be without a leader for a while
		return untilLed(func() Response { return n.Do(Request{Method: method, Path: path, Body: []byte(body)}) })
	}
	need.Equal(t, do(http.MethodPut, authPath+"roles/reader", `{"rules":["app * read"]}`).Status, 200, "put a role:")
	made := need.Got(decoded[api.NewToken](n, "token", do(http.MethodPost, authPath+"tokens", `{"name":"ann","roles":["reader"]}`)))(t)
	reads := func(of *Node, want int) {
		t.Helper()
		Eventually(t, ReadyLimit, fmt.Sprint("ann gets ", want), func() error {
			r := of.Do(Request{Path: "/eureka/apps?consistency=stale", Bearer: made.Secret})
			return unless(r.Status == want, "%v", r)
		})
	}
	reads(c.Nodes[2], 200)
	saved := do(http.MethodGet, "/v1/rollcall/snapshot", "")
	need.Equal(t, saved.Status, 200, "save:")
	expect.That(t, !strings.Contains(string(saved.Body), made.Secret[21:60]), "the snapshot has a secret")

	restarted := c.Nodes[2]
	restarted.Stop(t)
	restarted.Start(t)
	restarted.WaitReady(t)
	reads(restarted, 200)

	restore := func(query string) api.Restored {
		t.Helper()
		r := do(http.MethodPut, "/v1/rollcall/snapshot?"+query+signed("", "test"), string(saved.Body))
		return need.Got(decoded[api.Restored](n, "restore", r))(t)
	}
	need.Equal(t, do(http.MethodDelete, authPath+"roles/reader", "").Status, 200, "delete the role:")
	need.Equal(t, restore("").Roles, 0, "roles that came back without being asked for:")
	reads(restarted, 403)
	done := restore("auth&")
	expect.That(t, done.Roles == 1 && done.Tokens == 0 && done.From.Tokens == 2, "restored: %+v", done)
	reads(restarted, 200)

	need.Equal(t, do(http.MethodDelete, authPath+"tokens/"+made.Accessor, "").Status, 200, "revoke:")
	restore("auth&")
	reads(restarted, 401)
	refused := do(http.MethodPut, "/v1/rollcall/snapshot?auth&keys-only&"+signed("", "test"), string(saved.Body))
	expect.That(t, refused.Status == 400, "auth with keys-only: %v", refused)
}
