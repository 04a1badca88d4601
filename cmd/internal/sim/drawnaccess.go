package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/rollcallpeer"
)

// bearer adds the operator's token to calls without a credential.
type bearer struct {
	http.RoundTripper
	header string
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") == "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", b.header)
	}
	return b.RoundTripper.RoundTrip(r)
}

// permits gives a stranger few rights, and changes its role and token. The right to write keys below mine/ comes and
// goes.
type permits struct {
	l        *load
	file     *permitFile // nil if roles and tokens are the cluster's
	stranger *World      // its clients have an address of their own: bad credentials are counted by address
	byTheLog bool        // a write is allowed by the roles and tokens at its place in the log, whatever its node knows

	mu       sync.Mutex
	accessor string
	secret   string    // empty if it has no token
	rules    string    // of the file, as JSON
	lines    string    // of the file, with the token
	changed  time.Time // when the file was changed
	denied   time.Time // since when it must not write; zero if it may, or nobody knows
	revoked  string    // a token that was revoked, and when
	at       time.Time
}

// hidden is a value that the stranger may not read.
const hidden = "hidden-from-strangers"

const (
	wideRules   = `["app MINE read,register","kv mine/ read,write"]`
	narrowRules = `["app MINE read"]`
	newStranger = `{"name":"stranger","app":"MINE","roles":["stranger"]}`
)

// begin creates the first operator, whose token all clients use from now on, and the stranger.
func (p *permits) begin(l *load) {
	w := l.w
	var operator api.NewToken
	if p.file != nil {
		operator.Secret = p.file.operator
		p.file.addVisits(w.TB)
		p.file.write(w.TB, wideRules, "")
	} else {
		w.Await(ReadyWithin, "the first operator is made", func() bool {
			return w.Admin(w.nodes[0].Name, "POST", "/v1/rollcall/auth/bootstrap", "").decode(&operator)
		})
	}
	open := w.clients.Transport
	w.clients = &http.Client{Transport: bearer{open, "Bearer " + operator.Secret}}
	stranger := *w
	stranger.clients = w.Client("127.0.9.7")
	p.l, p.stranger = l, &stranger
	first := w.nodes[0].Name
	w.Await(ReadyWithin, "the operator is known everywhere, and hides something", func() bool {
		secret := Registration("SECRET", "s", longLease, map[string]string{"hidden": hidden})
		return w.Call(first, "POST", "/eureka/apps/SECRET", secret).Status == http.StatusNoContent
	})
	if w.Mode() == config.CP {
		w.Await(ReadyWithin, "it hides a key", func() bool {
			return w.Call(first, "PUT", "/v1/kv/secret/x", hidden).Status == http.StatusOK
		})
	}
	w.Wait(2 * time.Second) // so that no kill loses it
	var u api.Upgrade
	w.Call(first, "GET", "/v1/rollcall/upgrade", "").decode(&u)
	p.byTheLog = p.file == nil && u.Level >= 3
	p.grant()
	need.That(w, p.secret != "", "the stranger has no token")
}

// change makes an operator's call at a random node, and reports whether it was done.
func (p *permits) change(kind, method, path, body string, to any) bool {
	r := p.l.ask(kind, p.l.node(), method, path, body)
	p.l.count(kind, r.Outcome())
	if r.Outcome() == Unknown {
		time.Sleep(unknownTakes)
	}
	return r.Status == http.StatusOK && (to == nil || json.Unmarshal([]byte(r.Body), to) == nil)
}

// grant gives the stranger's role its rights, and the stranger a token unless it has one.
func (p *permits) grant() {
	if p.l == nil {
		return
	}
	p.mu.Lock()
	p.denied = time.Time{}
	p.mu.Unlock()
	if p.file != nil {
		p.rewrite(wideRules)
		return
	}
	p.change("grant", "PUT", "/v1/rollcall/auth/roles/stranger", bodyOf(wideRules), nil)
	p.replace()
}

// bodyOf returns the body of the call that gives a role its rules.
func bodyOf(rules string) string { return `{"rules":` + rules + `}` }

// replace gives the stranger a token unless it has one.
func (p *permits) replace() {
	p.mu.Lock()
	has := p.secret != ""
	p.mu.Unlock()
	var made api.NewToken
	if !has && p.change("token", "POST", "/v1/rollcall/auth/tokens", newStranger, &made) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.accessor, p.secret = made.Accessor, made.Secret
	}
}

// narrow takes the right to write away.
func (p *permits) narrow() {
	switch {
	case p.l == nil:
		return
	case p.file != nil:
		p.rewrite(narrowRules)
	case !p.change("narrow", "PUT", "/v1/rollcall/auth/roles/stranger", bodyOf(narrowRules), nil):
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.denied = time.Now()
}

// revoke revokes the stranger's token, and gives it another one.
func (p *permits) revoke() {
	if p.l == nil || p.secret == "" {
		return
	}
	done := p.file != nil || p.change("revoke", "DELETE", "/v1/rollcall/auth/tokens/"+p.accessor, "", nil)
	p.mu.Lock()
	if done {
		p.revoked, p.at = p.secret, time.Now()
	}
	p.secret = ""
	p.mu.Unlock()
	if p.file != nil {
		p.rewrite(p.rules)
		return
	}
	p.replace()
}

// inForce is how long a change of permissions takes, at most, at every node that hears the leader
// (docs/run/permissions.md).
const inForce = time.Second

// isInForce reports whether a change at that time must be in force for a write that a node was asked for. A node that
// hears no leader goes on with the permissions that it knows, but from level 3 on the log decides.
func (p *permits) isInForce(node string, change, asked time.Time) bool {
	if p.byTheLog {
		return asked.After(change)
	}
	if p.file == nil {
		return p.l.d.hears(node, asked) && asked.Sub(change) > inForce
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// changed is the last change, so this also covers earlier ones.
	return p.l.d.expectedReady(node, asked) && asked.Sub(p.changed) > fileInForce
}

// trespass tries something that the stranger may not do, or no longer.
func (p *permits) trespass() {
	p.mu.Lock()
	secret, denied, revoked, at := p.secret, p.denied, p.revoked, p.at
	p.mu.Unlock()
	node, asked := p.l.anyNode(), time.Now()
	do := func(f forgery) Reply {
		headers := []string{"Content-Type: application/json"}
		if f.secret != "" {
			headers = append(headers, "Authorization: Bearer "+f.secret)
		}
		r := p.stranger.call(node, certainWithin, f.method, f.path, f.body, headers...)
		p.l.count("trespass", r.Outcome())
		return r
	}
	refuse := func(why string, r Reply, f forgery) {
		if r.Status/100 == 2 || r.Status == http.StatusNotFound || strings.Contains(r.Body, hidden) {
			p.l.w.Errorf("I13 allowed: %s answers %s %s of a caller without the right (%s) at %v: %.300q", node, f.method, f.path, why, asked.Sub(began), r)
		}
	}
	forbidden := append(p.forgeries(secret), []forgery{
		{secret, "GET", "/eureka/apps/SECRET", ""},
		{secret, "GET", "/eureka/apps", ""},
		{secret, "DELETE", "/eureka/apps/LIVE/i0", ""},
		{secret, "POST", "/eureka/apps/OTHER", p.l.w.newInstance("OTHER/o", longLease).document()},
		{secret, "GET", "/v1/rollcall/snapshot?stale", ""},
		{secret, "POST", "/v1/rollcall/transfer", ""},
	}...)
	may := forgery{secret, "PUT", "/v1/kv/mine/x", "granted"} // as long as it has the right
	if p.l.w.Mode() == config.AP {
		may = forgery{secret, "PUT", "/eureka/apps/MINE/m", ""}
	} else {
		forbidden = append(forbidden, forgery{secret, "GET", "/v1/kv/secret/x?raw&stale", ""},
			forgery{secret, "GET", "/v1/kv/secret/x?raw", ""}, forgery{secret, "PUT", "/v1/kv/secret/y", "written"})
	}
	switch turn := rand.IntN(len(forbidden) + 4); {
	case turn < len(forbidden):
		f := forbidden[turn]
		refuse("never granted", do(f), f)
	case turn == len(forbidden) && revoked != "":
		may.secret = revoked
		if r := do(may); p.isInForce(node, at, asked) {
			refuse("the token was revoked at "+at.Sub(began).String(), r, may)
		}
	default:
		r := do(may)
		p.mu.Lock()
		still := p.denied.Equal(denied) // false if it was given back meanwhile
		p.mu.Unlock()
		if secret == "" || still && !denied.IsZero() && p.isInForce(node, denied, asked) {
			refuse("the right was taken away at "+fmt.Sprint(denied.Sub(began)), r, may)
		}
	}
}

// judge checks that the stranger has left nothing behind.
func (p *permits) judge(lists map[string]map[string]bool) {
	if p.l == nil {
		return
	}
	for node, list := range lists {
		for name := range list {
			if strings.HasPrefix(name, "OTHER/") {
				p.l.w.Errorf("I13 allowed: %s lists %s, which only a caller without the right has registered", node, name)
			}
		}
	}
	node := p.l.w.nodes[0].Name
	if r := p.l.w.Call(node, "GET", "/v1/kv/secret/?keys", ""); strings.Contains(r.Body, "secret/y") {
		p.l.w.Errorf("I13 allowed: secret/y, which only a caller without the right has written: %v", r)
	}
}

// permitFile is the auth.file of all nodes. It has the roles and tokens if no consensus keeps them, or if datacenters
// recognize each other by tokens. Each node reads it for itself.
type permitFile struct {
	dir           string
	operator      string            // text of the operator's token
	peers         map[string]string // text of the token, by name of the sender
	roleOf        map[string]string // datacenter, by name of the sender
	roles, tokens string            // lines of the file that stay
	visits        map[string][]*pass
}

// fileInForce is how long a change of the file takes, at most, on every node (docs/run/permissions-file.md).
const fileInForce = 5 * time.Second

// newPermitFile makes the tokens of the operator and of the nodes, and writes the nodes' tokens to files.
func newPermitFile(t *testing.T, c Cluster) *permitFile {
	t.Helper()
	f := &permitFile{dir: t.TempDir(), peers: map[string]string{}, roleOf: map[string]string{}}
	var everything []string
	for _, rule := range access.Everything() {
		everything = append(everything, rule.String())
	}
	f.addRole(t, "operator", everything)
	f.operator, f.tokens = newFileToken(t, "operator", "operator", "")
	for dc := range max(c.Datacenters, 1) {
		role := fmt.Sprintf("dc%d", dc+1)
		f.addRole(t, role, []string{"peer " + role + " exchange"})
		names := []string{role} // the nodes of a datacenter with consensus send as one
		if c.Mode == config.AP {
			names = nil
			for place := range c.Nodes {
				names = append(names, nodeName(dc+1, place+1))
			}
		}
		for _, name := range names {
			text, lines := newFileToken(t, name, role, "")
			f.peers[name], f.roleOf[name], f.tokens = text, role, f.tokens+lines
			need.OK(t, os.WriteFile(f.tokenPath(name), []byte(text+"\n"), 0o600))
		}
	}
	return f
}

func (f *permitFile) path() string                 { return filepath.Join(f.dir, "auth") }
func (f *permitFile) tokenPath(name string) string { return filepath.Join(f.dir, name+".token") }

func (f *permitFile) addRole(t testing.TB, name string, rules []string) {
	t.Helper()
	f.roles += fmt.Sprintf("  %s: %s\n", name, need.Got(json.Marshal(rules))(t))
}

// newFileToken makes a token, and returns its text and its lines of the file.
func newFileToken(t testing.TB, name, role, app string) (text, lines string) {
	t.Helper()
	text = config.NewTokenText("")
	k := need.Got(config.TokenOf(text))(t)
	k.Name, k.Roles, k.App = name, []string{role}, app
	return text, string(need.Got(config.TokenItem(k))(t))
}

// write replaces the file in one step. stranger has the lines of the stranger's token.
func (f *permitFile) write(t testing.TB, rules, stranger string) {
	t.Helper()
	text := fmt.Sprintf("mode: on\nroles:\n%s  stranger: %s\ntokens:\n%s%s", f.roles, rules, f.tokens, stranger)
	need.OK(t, os.WriteFile(f.path()+".new", []byte(text), 0o600))
	need.OK(t, os.Rename(f.path()+".new", f.path()))
}

// configure makes a node use the file, and its own token for all replication.
func (f *permitFile) configure(c *config.Config) {
	c.Auth.File, c.Replication.TokenFiles = f.path(), map[string]string{}
	own := c.Datacenter
	if c.Mode == config.AP {
		own = c.NodeName
		c.Replication.TokenFiles[c.Datacenter] = f.tokenPath(own)
	}
	for to := range c.Replication.Datacenters {
		c.Replication.TokenFiles[to] = f.tokenPath(own)
	}
}

// rewrite sets the stranger's rights in the file, and gives it a token unless it has one.
func (p *permits) rewrite(rules string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.secret == "" {
		p.secret, p.lines = newFileToken(p.l.w.TB, "stranger", "stranger", "MINE")
	}
	p.file.write(p.l.w.TB, rules, p.lines)
	p.rules, p.changed = rules, time.Now()
	p.l.count("auth.file", Done)
}

// forgery is a call that its caller may not make.
type forgery struct{ secret, method, path, body string }

// forgeries returns calls of a stranger in the name of a peer, and of a peer in the name of another datacenter or of
// clients.
func (p *permits) forgeries(stranger string) []forgery {
	datacenters := max(p.l.w.cluster.Datacenters, 1)
	as := fmt.Sprintf("dc%d", rand.IntN(datacenters)+1)
	message := string(rollcallpeer.Encode(codec.Oldest, &rollcallpeer.Message{Head: rollcallpeer.Head{
		Datacenter: as, Node: "forger", Sender: "forger", Incarnation: 1, Clock: 1, Sequence: 1,
	}}))
	batch := `{"replicationList":[{"appName":"OTHER","id":"b","action":"Heartbeat"}]}`
	all := []forgery{
		{stranger, "POST", "/v1/rollcall/replication", message},
		{stranger, "GET", "/v1/rollcall/replication/state?datacenter=" + as, ""},
		{stranger, "POST", "/eureka/peerreplication/batch/", batch},
	}
	if p.file == nil {
		return all
	}
	name := slices.Sorted(maps.Keys(p.file.peers))[rand.IntN(len(p.file.peers))]
	peer := p.file.peers[name]
	all = append(all,
		forgery{peer, "GET", "/eureka/apps/SECRET", ""},
		forgery{peer, "POST", "/eureka/apps/OTHER", p.l.w.newInstance("OTHER/p", longLease).document()},
		forgery{peer, "POST", "/v1/rollcall/transfer", ""})
	if p.file.roleOf[name] != as {
		all = append(all, forgery{peer, "POST", "/v1/rollcall/replication", message})
	}
	return all
}
