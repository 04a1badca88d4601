package httpd_test

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/kv/kvtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// placeRow is a row of the table of places that read what a node has, in docs/reference/reads.md.
var placeRow = regexp.MustCompile("(?m)^\\| `([a-z/]+\\.go)` `(\\w+)` \\|")

// TestEveryPlaceThatReadsWhatANodeHasIsInTheTable finds new ones: each must say what becomes of what the state lacks.
func TestEveryPlaceThatReadsWhatANodeHasIsInTheTable(t *testing.T) {
	listed := map[string]bool{}
	for _, m := range placeRow.FindAllStringSubmatch(string(need.Got(os.ReadFile("../docs/reference/reads.md"))(t)), -1) {
		listed[m[1]+" "+m[2]] = true
	}
	found := map[string]bool{}
	for _, root := range []string{".", "../cmd/internal/capacity"} {
		need.OK(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				readersIn(t, path, found)
			}
			return err
		}))
	}
	for place := range found {
		expect.That(t, listed[place], "docs/reference/reads.md lacks the place %s", place)
	}
	for place := range listed {
		expect.That(t, found[place], "docs/reference/reads.md has the place %s, which reads no stale view", place)
	}
}

// readersIn adds the functions of a file that read a stale view.
func readersIn(t *testing.T, path string, found map[string]bool) {
	t.Helper()
	file := need.Got(parser.ParseFile(token.NewFileSet(), path, nil, 0))(t)
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name == "StaleView" {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if readsStale(n) {
				found[filepath.Join("httpd", path)+" "+f.Name.Name] = true
			}
			return true
		})
	}
}

// readsStale reports whether a node of a function is the word Stale of another package, or a call of StaleView.
func readsStale(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.SelectorExpr:
		return n.Sel.Name == "Stale" || n.Sel.Name == "StaleView"
	case *ast.CallExpr:
		f, ok := n.Fun.(*ast.Ident)
		return ok && f.Name == "StaleView"
	}
	return false
}

// absent is a question for something that a lagging node does not have.
type absent struct {
	name, method, target string
	status               int // of the response when the newest state has it
}

var absents = []absent{
	{"role", "GET", "/v1/rollcall/auth/roles/late", 200},
	{"role that goes", "DELETE", "/v1/rollcall/auth/roles/late", 200},
	{"lock of a session", "PUT", "/v1/rollcall/locks/l?session={session}&wait=10ms", 200},
	{"lock of a session, at once", "PUT", "/v1/rollcall/locks/l?session={session}", 200},
	{"semaphore of a session", "PUT", "/v1/rollcall/semaphores/s?limit=1&session={session}&wait=10ms", 200},
}

// TestWhatALaggingNodeLacksIsNotDenied asks a node whose own state is older than what it is asked for, with a leader and
// without.
func TestWhatALaggingNodeLacksIsNotDenied(t *testing.T) {
	for _, row := range absents {
		for _, leader := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, leader %t", row.name, leader), func(t *testing.T) {
				bubble(t, func(t *testing.T) { row.ask(t, leader) })
			})
		}
	}
}

func (row absent) ask(t *testing.T, leader bool) {
	t.Helper()
	m := registrytest.New()
	c := &coordinated{Memory: m, kv: kvtest.New(m)}
	tables := []*access.Table{c.kv.AccessTable()}
	c.handler = need.Got(httpd.New(httpd.Config{Service: catchingUp{m, func() {
		m.Set(func(*registrytest.Memory) { c.kv.Behind = nil })
		tables[0] = c.kv.AccessTable()
	}}, Coordination: c.kv, Agents: httpd.OneAgent,
		Access: httpd.AccessConfig{Table: func() *access.Table { return tables[0] }}}))(t)
	old := need.Got(c.kv.View(t.Context(), registry.Stale))(t)
	holder, waiter := c.ownSession(t, ""), c.ownSession(t, "")
	for _, held := range []string{"/v1/rollcall/locks/l?session=", "/v1/rollcall/semaphores/s?limit=1&session="} {
		need.Equal(t, c.send("PUT", held+holder, "").status, 200, "the holder")
	}
	role := &access.Role{Name: "late", Rules: access.Everything()}
	need.Equal(t, c.kv.Perform(kv.Access{Change: access.Change{PutRoles: []*access.Role{role}}}).Refusal, "", "the role")
	m.Set(func(m *registrytest.Memory) { c.kv.Behind = old })
	if !leader {
		m.Set(func(m *registrytest.Memory) { m.ViewErr, c.kv.ViewErr = registry.ErrNoLeader, registry.ErrNoLeader })
	}
	r := c.sendUntil(web.AsAdministrator(context.Background()), row.method, strings.ReplaceAll(row.target, "{session}", waiter), "")
	expect.That(t, r.status != http.StatusNotFound, "it is denied: %d %s", r.status, r.body)
	expect.That(t, !leader || r.status == row.status, "got %d %s, want %d", r.status, r.body, row.status)
}

// catchingUp is the registry of a node that catches up when a linearizable view is asked for.
type catchingUp struct {
	*registrytest.Memory
	catchUp func()
}

// View implements registry.Service.
func (l catchingUp) View(ctx context.Context, read registry.Consistency) (*registry.View, error) {
	v, err := l.Memory.View(ctx, read)
	if err == nil && read == registry.Linearizable {
		l.catchUp()
	}
	return v, err
}

// TestQuotaIsNoRefusalOfWhatIsThere registers an instance again at a node that does not know it yet, and is full.
func TestQuotaIsNoRefusalOfWhatIsThere(t *testing.T) {
	m := registrytest.New()
	behind := &behindService{Memory: m}
	h := need.Got(httpd.New(httpd.Config{Service: behind, Limits: web.Limits{InstancesTotal: 1}}))(t)
	m.Perform(t, registry.Register{Instance: newInstance("OTHER", "i0")})
	behind.old = m.Newest()
	m.Perform(t, registry.Register{Instance: newInstance("ORDERS", "i1")})
	c := &coordinated{Memory: m, handler: h}
	register := func() reply {
		return c.send("POST", "/eureka/apps/ORDERS", `{"instance":{"instanceId":"i1","app":"ORDERS","hostName":"h","ipAddr":"10.0.0.1","status":"UP","dataCenterInfo":{"@class":"x","name":"MyOwn"}}}`,
			"Content-Type: application/json")
	}
	expect.Equal(t, register().status, http.StatusNoContent, "again, behind: %s", register().body)
	m.Set(func(m *registrytest.Memory) { m.ViewErr = registry.ErrNoLeader })
	expect.Equal(t, register().status, http.StatusServiceUnavailable, "again, behind and without a leader")
	m.Set(func(m *registrytest.Memory) { m.ViewErr = nil })
	m.Perform(t, registry.Cancel{Key: registry.NewKey("ORDERS", "i1")})
	expect.Equal(t, register().status, http.StatusInsufficientStorage, "one that is new")
}

// behindService has an old state in stale views.
type behindService struct {
	*registrytest.Memory
	old *registry.View
}

// View implements registry.Service.
func (b *behindService) View(ctx context.Context, read registry.Consistency) (*registry.View, error) {
	if read == registry.Stale && b.old != nil {
		return b.old, nil
	}
	return b.Memory.View(ctx, read)
}
