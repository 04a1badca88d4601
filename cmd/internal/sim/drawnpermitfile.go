package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/authfile"
	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/wire"
)

// permitFile is the auth.file of all nodes, where no consensus keeps roles and tokens or where datacenters know each other by
// tokens. Each node reads it for itself.
type permitFile struct {
	dir           string
	operator      string            // text of the operator's token
	peers         map[string]string // texts of the tokens by which nodes replicate, by their names
	roleOf        map[string]string // the datacenters of these, by their names
	roles, tokens string            // lines of the file that stay
}

// fileInForce is when a change of the file is in force on every node (docs/run/permissions-file.md).
const fileInForce = 5 * time.Second

// newPermitFile makes the tokens of the operator and of the nodes, and writes the nodes' into files.
func newPermitFile(t *testing.T, s Schedule) *permitFile {
	t.Helper()
	f := &permitFile{dir: t.TempDir(), peers: map[string]string{}, roleOf: map[string]string{}}
	var everything []string
	for _, rule := range access.Everything() {
		everything = append(everything, rule.String())
	}
	f.addRole(t, "operator", everything)
	f.operator, f.tokens = newFileToken(t, "operator", "operator", "")
	for dc := range max(s.Datacenters, 1) {
		role := fmt.Sprintf("dc%d", dc+1)
		f.addRole(t, role, []string{"peer " + role + " exchange"})
		names := []string{role} // the nodes of a datacenter with consensus send as one
		if s.Mode == config.AP {
			names = nil
			for place := range s.Nodes {
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
	text = authfile.NewText("")
	k := need.Got(authfile.TokenOf(text))(t)
	k.Name, k.Roles, k.App = name, []string{role}, app
	return text, string(need.Got(authfile.Item(k))(t))
}

// write replaces the file at once. stranger has the lines of the stranger's token.
func (f *permitFile) write(t testing.TB, rules, stranger string) {
	t.Helper()
	text := fmt.Sprintf("mode: on\nroles:\n%s  stranger: %s\ntokens:\n%s%s", f.roles, rules, f.tokens, stranger)
	need.OK(t, os.WriteFile(f.path()+".new", []byte(text), 0o600))
	need.OK(t, os.Rename(f.path()+".new", f.path()))
}

// configure has a node use the file, and its token wherever it replicates to.
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

// rewrite gives the stranger rights by the file, and a token if it has none.
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

// forgeries are calls of a stranger in the name of a peer, and of a peer in the name of another datacenter, or of clients.
func (p *permits) forgeries(stranger string) []forgery {
	datacenters := max(p.l.w.cluster.Datacenters, 1)
	as := fmt.Sprintf("dc%d", rand.IntN(datacenters)+1)
	message := string(wire.Encode(codec.Oldest, &wire.Message{Head: wire.Head{
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
