package registry

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// aliasOf is a check of a service ("": of the node) that follows another service of its node.
func aliasOf(service, id, followed string) *catalog.Check {
	c := checkOf(service, id, catalog.Critical)
	c.Type, c.Alias = "alias", &catalog.Alias{Service: followed}
	return c
}

var proxy = Key{App: "PROXY", ID: "proxy"}

// withProxy registers web-1 with check a, and service proxy, whose check p follows it.
func withProxy(t *testing.T, checks ...*catalog.Check) *rig {
	g := newRig(t)
	g.registerInCatalog(service("web", "web-1", checks...))
	g.registerInCatalog(service("proxy", "proxy", aliasOf("proxy", "p", "web-1")))
	g.Establish(Epoch{Term: 1, Index: 1}, "c")
	return g
}

func (g *rig) expectAlias(node, id string, status catalog.CheckStatus, output, when string) {
	g.t.Helper()
	c := g.check(node, id)
	expect.That(g.t, c.Status == status && c.Output == output, "%s: the alias is %d, %q; want %d, %q", when, c.Status, c.Output, status, output)
}

func TestAliasFollowsTheServiceAndItsNodeInTheSameOperation(t *testing.T) {
	passing := checkOf("web-1", "a", catalog.Passing)
	const all = "All checks passing."
	critical := SetCheck{Check: "a", Status: catalog.Critical, Output: "refused"}
	for _, tt := range []struct {
		name   string
		ops    []Op
		status catalog.CheckStatus
		output string
	}{
		{"nothing", nil, catalog.Passing, all},
		{"critical", []Op{critical}, catalog.Critical, `Aliased check "a" failing: refused`},
		{"warning", []Op{SetCheck{Check: "a", Status: catalog.Warning, Output: "slow"}}, catalog.Warning, `Aliased check "a" failing: slow`},
		{"passing again", []Op{critical, SetCheck{Check: "a", Status: catalog.Passing}}, catalog.Passing, all},
		{"another output", []Op{critical, SetCheck{Check: "a", Status: catalog.Critical, Output: "reset"}}, catalog.Critical, `Aliased check "a" failing: refused`},
		{"a warning that turns critical", []Op{SetCheck{Check: "a", Status: catalog.Warning, Output: "slow"}, critical}, catalog.Critical, `Aliased check "a" failing: refused`},
		{"two fail, and the first recovers", []Op{
			RegisterCatalog{Checks: []*catalog.Check{checkOf("web-1", "b", catalog.Critical)}}, critical, SetCheck{Check: "b", Status: catalog.Passing},
		}, catalog.Critical, `Aliased check "a" failing: refused`},
		{"its node's check", []Op{RegisterCatalog{Checks: []*catalog.Check{checkOf("", "disk", catalog.Critical)}}}, catalog.Critical, `Aliased check "disk" failing: `},
		{"a check of another service", []Op{service("db", "db", checkOf("db", "d", catalog.Critical))}, catalog.Passing, all},
		{"maintenance", []Op{RegisterCatalog{Checks: []*catalog.Check{checkOf("web-1", catalog.ServiceMaintenance+"web-1", catalog.Critical)}}},
			catalog.Critical, `Aliased check "_service_maintenance:web-1" failing: `},
		{"no check is left", []Op{critical, DeregisterCatalog{Check: "a"}}, catalog.Passing, "No checks found."},
		{"an override", []Op{SetOverride{Key: web1, Status: OutOfService}}, catalog.Critical, "Aliased service failing: The status is OUT_OF_SERVICE"},
		{"the override's end", []Op{SetOverride{Key: web1, Status: OutOfService}, DeleteOverride{Key: web1}}, catalog.Passing, all},
		{"an override does not hide a check", []Op{critical, SetOverride{Key: web1, Status: Up}}, catalog.Critical, `Aliased check "a" failing: refused`},
		{"deregistered", []Op{DeregisterCatalog{Service: "web-1"}}, catalog.Critical, "Service web-1 could not be found on node rollcall"},
		{"registered again", []Op{DeregisterCatalog{Service: "web-1"}, service("web", "web-1", passing)}, catalog.Passing, all},
		{"an instance of Eureka in its place", []Op{DeregisterCatalog{Service: "web-1"}, Register{instance(web1, Up, 1)}}, catalog.Passing, "No checks found."},
		{"an instance of Eureka that is down", []Op{DeregisterCatalog{Service: "web-1"}, Register{instance(web1, Down, 1)}}, catalog.Critical, "Aliased service failing: The status is DOWN"},
		{"set by a client", []Op{SetCheck{Check: "p", Status: catalog.Critical, Output: "no"}}, catalog.Passing, all},
		{"registered again with a status", []Op{service("proxy", "proxy", aliasOf("proxy", "p", "web-1"))}, catalog.Passing, all},
		{"no alias any more", []Op{RegisterCatalog{Checks: []*catalog.Check{checkOf("proxy", "p", catalog.Warning)}}, critical}, catalog.Warning, ""},
		{"of another service", []Op{service("db", "db", checkOf("db", "d", catalog.Warning)), RegisterCatalog{Checks: []*catalog.Check{aliasOf("proxy", "p", "db")}}, critical},
			catalog.Warning, `Aliased check "d" failing: `},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := withProxy(t, passing)
			for _, op := range tt.ops {
				need.That(t, g.client(op).Outcome == Done, "%+v is not done", op)
			}
			g.expectAlias("", "p", tt.status, tt.output, "afterwards")
			want := statusOf(tt.status, false)
			expect.That(t, g.status(proxy) == want, "its service is %s, want %s", g.status(proxy), want)
			frozen, err := Thaw(g.Freeze())
			need.OK(t, err)
			before := frozen.View().Index()
			frozen.Apply(g.now, 1, FromClient, Renew{Key: Key{App: "NONE", ID: "none"}})
			expect.Equal(t, frozen.View().Index(), before, "index of what was restored, after an operation that changes nothing:")
		})
	}
}

func TestAliasFollowsAnotherNode(t *testing.T) {
	named := func(id, node, followed string) *catalog.Check {
		c := aliasOf("web-1", id, followed)
		c.Alias.Named, c.Alias.Node = true, node
		return c
	}
	g := newRig(t)
	g.registerInCatalog(service("web", "web-1", named("node", "far", ""), named("service", "far", "db"), named("nowhere", "near", ""), named("logical", "", "")))
	g.expectAlias("", "node", catalog.Critical, "Node far could not be found", "of a node that is not there")
	g.expectAlias("", "service", catalog.Critical, "Service db could not be found on node far", "of a service that is not there")
	g.expectAlias("", "logical", catalog.Passing, "No checks found.", "of the logical node")
	g.registerInCatalog(serviceOn("far", "db", "db", checkOf("db", "d", catalog.Warning), checkOf("", "disk", catalog.Passing)))
	g.expectAlias("", "node", catalog.Passing, "All checks passing.", "of the node")
	g.expectAlias("", "service", catalog.Warning, `Aliased check "d" failing: `, "of the service")
	g.client(SetCheck{Node: "far", Check: "disk", Status: catalog.Critical, Output: "full"})
	g.expectAlias("", "node", catalog.Critical, `Aliased check "disk" failing: full`, "when the node's check is critical")
	g.expectAlias("", "service", catalog.Critical, `Aliased check "disk" failing: full`, "when the node's check is critical")
	g.client(DeregisterCatalog{Node: "far"})
	g.expectAlias("", "node", catalog.Critical, "Node far could not be found", "when the node is gone")
	g.expectAlias("", "nowhere", catalog.Critical, "Node near could not be found", "of a node that never was")
}

// Aliases of each other follow what is no alias, and never each other for good: Consul's would stay critical.
func TestAliasesOfEachOtherRecover(t *testing.T) {
	g := newRig(t)
	const many = 20
	name := func(i int) string { return fmt.Sprintf("s%02d", i%many) }
	for i := range many { // each follows the next, and the last the first
		g.registerInCatalog(service(name(i), name(i), aliasOf(name(i), "alias-"+name(i), name(i+1))))
	}
	g.registerInCatalog(service("self", "self", aliasOf("self", "self", "self"), aliasOf("", "of-node", "self")))
	g.expectAlias("", "self", catalog.Passing, "All checks passing.", "an alias of its own service")
	g.expectAlias("", "of-node", catalog.Passing, "All checks passing.", "an alias of the node, which counts for what it follows")
	g.registerInCatalog(RegisterCatalog{Checks: []*catalog.Check{checkOf(name(7), "real", catalog.Passing)}})
	for _, round := range []struct{ status, want catalog.CheckStatus }{{catalog.Critical, catalog.Critical}, {catalog.Warning, catalog.Warning}, {catalog.Passing, catalog.Passing}} {
		g.report("real", round.status, "boom")
		for i := range many {
			c := g.check("", "alias-"+name(i))
			expect.That(t, c.Status == round.want && (c.Status == catalog.Passing) == (c.Output == "All checks passing.") && len(c.Output) < 1000,
				"real check %d: alias %d is %d with %q", round.status, i, c.Status, c.Output)
		}
	}
	g.report("real", catalog.Critical, strings.Repeat("x", 5000))
	c := g.check("", "alias-"+name(8))
	expect.That(t, c.Status == catalog.Critical && len(c.Output) <= 4096 && strings.HasPrefix(c.Output, `Aliased check "real" failing: xxx`),
		"the alias furthest from the real check has %d bytes: %.100s", len(c.Output), c.Output)
}

func TestLostHasTheAliasesOfACheckThatTurnsCritical(t *testing.T) {
	g := withProxy(t, checkOf("web-1", "a", catalog.Passing))
	g.Lost()
	g.report("a", catalog.Critical, "refused")
	expect.Slice(t, g.Lost(), []catalog.CheckRef{{ID: "a"}, {ID: "p"}}, "lost")
}

func TestAliasesChangeNothingWhereTheirTargetsStayAsTheyAre(t *testing.T) {
	g := withProxy(t, checkOf("web-1", "a", catalog.Passing))
	index := g.View().Index()
	for _, op := range []Op{SetCheck{Check: "a", Status: catalog.Passing, Output: "still"}, service("web", "web-1", checkOf("web-1", "a", catalog.Passing)),
		service("proxy", "proxy", aliasOf("proxy", "p", "web-1"))} {
		g.client(op)
		expect.Equal(t, g.View().Index(), index, "%+v: index", op)
	}
	g.registerInCatalog(service("db", "db"))
	app, _ := g.View().App("PROXY")
	expect.That(t, app.Changed <= index, "another service changed the alias")
}
