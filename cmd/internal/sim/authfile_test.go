package sim_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/authfile"
	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/sim"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// fileRoles is the auth.file of the scenarios.
const fileRoles = `roles:
  operator: ["app * read,register,override", "operator read,write", "auth read,write", "metrics read"]
  node: [peer dc1 exchange]
tokens:
`

// inForce is how long a change of auth.file may take, see docs/run/permissions-file.md.
const inForce = 5 * time.Second

// newToken returns the text of a new token and its line of auth.file.
func newToken(t testing.TB, name, role string) (text, line string) {
	t.Helper()
	text = authfile.NewText("")
	k := need.Got(authfile.TokenOf(text))(t)
	k.Name, k.Roles = name, []string{role}
	return text, string(need.Got(authfile.Item(k))(t))
}

// writePrivate replaces a file at once, as programs do that hand out secrets.
func writePrivate(t testing.TB, path, text string) {
	t.Helper()
	need.OK(t, os.WriteFile(path+".new", []byte(text), 0o600))
	need.OK(t, os.Rename(path+".new", path))
}

func bearer(token string) string { return "Authorization: Bearer " + token }

// Three nodes replicate by tokens of a file. One whose token is taken out of the file, or that sends in another's name, is refused,
// and says so.
func TestApNodesKnowEachOtherByTheirAuthFile(t *testing.T) {
	dir := t.TempDir()
	of := func(node, what string) string { return filepath.Join(dir, node+"."+what) }
	operator, lines := newToken(t, "ann", "operator")
	tokens, lineOf := map[string]string{}, map[string]string{}
	write := func(text string, nodes ...string) {
		for _, n := range nodes {
			writePrivate(t, of(n, "auth"), fileRoles+text)
		}
	}
	for _, n := range []string{"n1", "n2", "n3"} {
		tokens[n], lineOf[n] = newToken(t, n, "node")
		writePrivate(t, of(n, "token"), tokens[n]+"\n")
	}
	all := lines + lineOf["n1"] + lineOf["n2"] + lineOf["n3"]
	write(all, "n1", "n2", "n3")
	settings := func(c *config.Config) {
		c.Auth.Mode, c.Auth.File = "on", of(c.NodeName, "auth")
		c.Replication.TokenFiles = map[string]string{"dc1": of(c.NodeName, "token")}
	}
	sim.Run(t, sim.Cluster{Nodes: 3, Mode: config.AP, Configure: settings}, func(w *sim.World) {
		ann := bearer(operator)
		status := func(n string) api.AuthStatus { return sim.Document[api.AuthStatus](w, n, "/v1/rollcall/auth", ann) }
		peer := func(n, other string) api.Peer {
			peers := sim.Document[api.Peers](w, n, "/v1/rollcall/peers", ann).Peers
			return peers[slices.IndexFunc(peers, func(p api.Peer) bool { return p.Name == w.Address(other) })]
		}
		register := func(n, id string) {
			w.Helper()
			body := `{"instance":{"instanceId":"` + id + `","app":"ORDERS","hostName":"h","ipAddr":"10.1.1.1","status":"UP",` +
				`"dataCenterInfo":{"name":"MyOwn"},"leaseInfo":{"durationInSecs":3600,"renewalIntervalInSecs":1200}}}`
			need.Equal(w, w.Call(n, "POST", "/eureka/apps/ORDERS", body, ann).Status, http.StatusNoContent, "register %s at %s", id, n)
		}
		have := func(within time.Duration, nodes []string, number int) {
			w.Helper()
			w.AwaitAll(nodes, within, "has all", func(n string) bool { return len(w.Lists(n, ann)) == number })
		}
		register("n3", "a")
		have(told, w.Names(), 1)
		w.Do(http.StatusForbidden, "n1", "GET", "/eureka/apps", bearer(tokens["n1"]))
		w.Do(http.StatusUnauthorized, "n1", "GET", "/eureka/apps")
		s := status("n1")
		expect.That(w, s.FileDigest != "" && s.FileDigest == status("n3").FileDigest && s.FileError == "" && s.Caller.Via == "file", "status: %+v", s)
		expect.Equal(w, peer("n1", "n3").AuthFile, "same", "auth.file of n3")

		// A file with a mistake is not in force, and that is said.
		write("mode: [\n", "n1")
		w.Await(inForce, "the mistake is said", func() bool { return status("n1").FileError != "" })
		s = status("n1")
		expect.That(w, strings.Contains(s.FileError, "n1.auth") && s.Tokens == 4, "status: %+v", s)
		metrics := w.Do(http.StatusOK, "n1", "GET", "/metrics", ann).Body
		expect.That(w, strings.Contains(metrics, "rollcall_auth_file_error 1\n"), "no metric tells of the mistake")

		// n3 is thrown out at n1 alone.
		write(lines+lineOf["n1"]+lineOf["n2"], "n1")
		w.Await(inForce, "the change is in force", func() bool { return status("n1").Tokens == 3 })
		w.Await(alive+told, "n3 says that it is refused", func() bool {
			p := peer("n3", "n1")
			return p.State == "failing" && strings.Contains(p.Reason, "401")
		})
		w.Await(alive+told, "the difference is shown", func() bool {
			p := peer("n1", "n3")
			return p.AuthFile == "differs" && strings.Contains(p.Reason, "auth.file")
		})
		register("n3", "b")
		have(told, []string{"n2", "n3"}, 2)
		w.Wait(told) // and before the next comparison, by which n2 tells n1 of it
		expect.Equal(w, len(w.Lists("n1", ann)), 1, "instances at n1, which believes no node that is not in its file")

		// In the name of n3 none but its principal speaks.
		write(all, "n1")
		have(inForce+retried, w.Names(), 2)
		writePrivate(t, of("n3", "token"), tokens["n2"])
		w.Await(alive+told, "n3 says that its name is another's", func() bool {
			p := peer("n3", "n1")
			return p.State == "failing" && strings.Contains(p.Reason, "403") && strings.Contains(p.Reason, "n3 used the name")
		})
		need.OK(w, w.Stop("n1"))
		w.Start("n1")
		w.ReadyBy("n1", 5*time.Second)
		senders := sim.Document[api.Peers](w, "n1", "/v1/rollcall/peers", ann).Senders
		at := slices.IndexFunc(senders, func(s api.PeerSender) bool { return s.Principal == "n3" })
		need.That(w, at >= 0, "after a restart n1 has forgotten whose name it is: %+v", senders)
		register("n3", "c")
		w.Wait(retried)
		for n, want := range map[string]int{"n1": 2, "n2": 2, "n3": 3} {
			expect.Equal(w, len(w.Lists(n, ann)), want, "instances at "+n)
		}
		for _, n := range []string{"n1", "n2"} {
			w.Do(http.StatusNoContent, n, "POST", "/v1/rollcall/peers/"+senders[at].Sender+"/forget?author=ann&reason=token", ann)
		}
		have(retried, w.Names(), 3)
		for name, secret := range tokens {
			expect.That(w, !strings.Contains(w.Log(), secret[21:60]), "a log has the token of %s", name)
		}
	})
}

// Every node has the file of the first operator's token, and one of them makes the operator. What a restore brings back of roles and
// tokens, it does only when asked to.
func TestFirstOperatorComesFromAFileAndPermissionsSurviveARestart(t *testing.T) {
	operator, file := authfile.NewText(""), filepath.Join(t.TempDir(), "bootstrap")
	writePrivate(t, file, operator+"\n")
	settings := func(c *config.Config) { c.Auth.Mode, c.Auth.BootstrapTokenFile = "on", file }
	sim.Run(t, sim.Cluster{Nodes: 3, Configure: settings}, func(w *sim.World) {
		const auth, snapshot = "/v1/rollcall/auth/", "/v1/rollcall/snapshot"
		first := bearer(operator)
		do := func(status int, method, path, body string) sim.Reply {
			w.Helper()
			r := w.Call("n1", method, path, body, first)
			need.That(w, r.Status == status, "%s %s: %v, want %d", method, path, r, status)
			return r
		}
		w.Await(2*time.Second, "there is an operator", func() bool { return w.Call("n1", "GET", "/v1/rollcall/auth", "", first).Status == http.StatusOK })
		do(http.StatusOK, "PUT", auth+"roles/reader", `{"rules":["app * read"]}`)
		var made api.NewToken
		need.OK(w, json.Unmarshal([]byte(do(http.StatusOK, "POST", auth+"tokens", `{"name":"ann","roles":["reader"]}`).Body), &made))
		reads := func(want int) { // at n3, and about as soon as it has the entry
			w.Helper()
			w.Wait(reach)
			w.Do(want, "n3", "GET", "/eureka/apps?consistency=stale", bearer(made.Secret))
		}
		reads(http.StatusOK)
		saved := do(http.StatusOK, "GET", snapshot, "").Body
		expect.That(w, !strings.Contains(saved, made.Secret[21:60]), "the snapshot has a secret")

		need.OK(w, w.Stop("n3"))
		w.Start("n3")
		w.ReadyBy("n3", sim.ReadyWithin)
		reads(http.StatusOK)

		restore := func(query string) (done api.Restored) {
			w.Helper()
			need.OK(w, json.Unmarshal([]byte(do(http.StatusOK, "PUT", snapshot+"?"+query+"reason=test", saved).Body), &done))
			return done
		}
		do(http.StatusOK, "DELETE", auth+"roles/reader", "")
		expect.Equal(w, restore("").Roles, 0, "roles that came back without being asked for")
		reads(http.StatusForbidden)
		done := restore("auth&")
		expect.That(w, done.Roles == 1 && done.Tokens == 0 && done.From.Tokens == 2, "restored: %+v", done)
		reads(http.StatusOK)

		do(http.StatusOK, "DELETE", auth+"tokens/"+made.Accessor, "")
		restore("auth&")
		reads(http.StatusUnauthorized)
		do(http.StatusBadRequest, "PUT", snapshot+"?auth&keys-only&reason=test", saved)
	})
}
