package registry

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// aliasOf returns a check of a service ("": of the node) that follows another service of its node.
func aliasOf(service, id, followed string) *catalog.Check {
	c := checkOf(service, id, catalog.Critical)
	c.Type, c.Alias = "alias", &catalog.Alias{Service: followed}
	return c
}

var proxy = Key{App: "PROXY", ID: "proxy"}

// withProxy registers web-1 with check a, and service proxy, whose check p follows it.
func withProxy(t *testing.T, checks ...*catalog.Check) *rig {
	g := withWeb(t, checks...)
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
	g := withWeb(t, named("node", "far", ""), named("service", "far", "db"), named("nowhere", "near", ""), named("logical", "", ""))
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

// Aliases that follow each other take their status from the real checks behind them, and never hold each other
// critical for good, as Consul's would.
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

// An alias check follows only what its token may read, as the leader has judged, and services of its own application.
// About anything else it reveals nothing, not even whether it exists.
func TestAliasFollowsOnlyWhatItsTokenMayRead(t *testing.T) {
	const hidden = " could not be found on node rollcall, or the token that registered this check may not read it"
	judged := func(id, reads string) SetCheck {
		return SetCheck{Check: id, Reads: reads, Epoch: Epoch{Term: 1, Index: 1}}
	}
	following := func(by, reads, followed string) Op {
		c := aliasOf("proxy", "p", followed)
		c.Alias.By, c.Alias.Reads = by, reads
		return service("proxy", "proxy", c)
	}
	node := func(of, reads string) Op {
		op := following("t", reads, "").(RegisterCatalog)
		op.Checks[0].Alias.Named, op.Checks[0].Alias.Node = of != "", of
		return op
	}
	const follows, unread = `Aliased check "a" failing: secret`, "Service web-1" + hidden
	for _, tt := range []struct {
		name   string
		ops    []Op
		status catalog.CheckStatus
		output string
	}{
		{"nobody was asked for a token", []Op{following("", "", "web-1")}, catalog.Warning, follows},
		{"it may not be read", []Op{following("t", "", "web-1")}, catalog.Critical, unread},
		{"it may be read", []Op{following("t", "WEB", "web-1")}, catalog.Warning, follows},
		{"another may be read", []Op{following("t", "DB", "web-1")}, catalog.Critical, unread},
		{"its own application", []Op{following("t", "", "proxy-2")}, catalog.Passing, "No checks found."},
		{"it is not there", []Op{following("t", "", "none")}, catalog.Critical, "Service none" + hidden},
		{"it was there", []Op{following("t", "WEB", "web-1"), DeregisterCatalog{Service: "web-1"}}, catalog.Critical, unread},
		{"another application took its place", []Op{following("t", "WEB", "web-1"), service("db", "web-1", checkOf("web-1", "a", catalog.Passing))}, catalog.Critical, unread},
		{"its own service was given another name", []Op{following("t", "", "proxy-2"), service("proxy-b", "proxy")}, catalog.Critical, "Service proxy-2" + hidden},
		{"the right was taken away", []Op{following("t", "WEB", "web-1"), judged("p", "")}, catalog.Critical, unread},
		{"and given back", []Op{following("t", "WEB", "web-1"), judged("p", ""), judged("p", "WEB")}, catalog.Warning, follows},
		{"registered again where the service is not known yet", []Op{following("t", "WEB", "web-1"), following("t", "", "web-1")}, catalog.Warning, follows},
		{"registered again by another token", []Op{following("t", "WEB", "web-1"), following("u", "", "web-1")}, catalog.Critical, unread},
		{"registered again for another service", []Op{following("t", "DB", "db"), following("t", "", "web-1")}, catalog.Critical, unread},
		{"its node", []Op{node("", "")}, catalog.Passing, "No checks found."},
		{"another node", []Op{node("far", "")}, catalog.Critical, "Node far could not be found, or the token that registered this check may not read it"},
		{"another node that may be read", []Op{node("far", "far")}, catalog.Warning, `Aliased check "disk" failing: `},
		{"a node as an application is named", []Op{following("t", "far", "web-1")}, catalog.Critical, unread},
		{"a service of Eureka", []Op{DeregisterCatalog{Service: "web-1"}, Register{instance(web1, Down, 1)}, following("t", "", "web-1")}, catalog.Critical, unread},
		{"a service of Eureka that may be read", []Op{DeregisterCatalog{Service: "web-1"}, Register{instance(web1, Down, 1)}, following("t", "WEB", "web-1")},
			catalog.Critical, "Aliased service failing: The status is DOWN"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			secret := checkOf("web-1", "a", catalog.Warning)
			secret.Output = "secret"
			g := withProxy(t, secret)
			g.client(service("proxy", "proxy-2"))
			g.client(serviceOn("far", "db", "db", checkOf("", "disk", catalog.Warning)))
			for _, op := range tt.ops {
				need.That(t, g.client(op).Outcome == Done, "%+v is not done", op)
			}
			g.expectAlias("", "p", tt.status, tt.output, "afterwards")
			need.OK(t, check(g.Registry))
			before := g.View().Index()
			g.client(judged("p", g.check("", "p").Alias.Reads))
			expect.Equal(t, g.View().Index(), before, "index after it was judged as before:")
		})
	}
}

// Whoever registers an alias check must be allowed to read what it follows, unless its readers see that anyway. Below
// level 3 this is only counted.
func TestAliasNeedsToReadWhatItFollows(t *testing.T) {
	g := withProxy(t)
	g.client(service("proxy", "proxy-2"))
	g.client(serviceOn("far", "db", "db"))
	g.client(Register{instance(Key{App: "EUREKA", ID: "e"}, Up, 1)})
	for _, tt := range []struct {
		name, owner string // the service of the check; "": the node's
		alias       catalog.Alias
		want        string // besides what every registration needs
	}{
		{"another application", "proxy", catalog.Alias{Service: "web-1"}, "app WEB read"},
		{"its own", "proxy", catalog.Alias{Service: "proxy-2"}, ""},
		{"another that was judged, too", "proxy", catalog.Alias{Service: "web-1", Reads: "DB"}, "app WEB read, app DB read"},
		{"the same that was judged", "proxy", catalog.Alias{Service: "web-1", Reads: "WEB"}, "app WEB read"},
		{"a service of Eureka", "proxy", catalog.Alias{Service: "e"}, "app EUREKA read"},
		{"what is not there", "proxy", catalog.Alias{Service: "none"}, ""},
		{"of another node", "proxy", catalog.Alias{Service: "db", Named: true, Node: "far"}, "app DB read"},
		{"another node", "proxy", catalog.Alias{Named: true, Node: "far"}, "node read"},
		{"its node", "proxy", catalog.Alias{Named: true}, ""},
		{"a check of the node", "", catalog.Alias{Service: "proxy"}, "app PROXY read"},
	} {
		for _, level := range []byte{2, 3} {
			g.SetLevel(level)
			g.client(Cancel{Key{App: "NONE", ID: "none"}})
			plain, alias := RegisterCatalog{Checks: []*catalog.Check{checkOf(tt.owner, "x", catalog.Passing)}}, aliasOf(tt.owner, "x", "")
			alias.Alias = &tt.alias
			v := g.Registry.View()
			var got []string
			for _, n := range Needs(RegisterCatalog{Checks: []*catalog.Check{alias}}, v)[len(Needs(plain, v)):] {
				got = append(got, n.String())
				expect.Equal(t, n.Counted, level < 3, "%s, level %d: it is counted alone:", tt.name, level)
			}
			expect.Equal(t, strings.Join(got, ", "), tt.want, "%s, level %d: it needs", tt.name, level)
		}
	}
}

// TestProbeKeepsWhereItWasRegisteredFrom: below level 3 no address is kept, and the agent's stands in for it.
func TestProbeKeepsWhereItWasRegisteredFrom(t *testing.T) {
	g := newRig(t)
	register := func(from string) *catalog.Check {
		c := checkOf("", "p", catalog.Critical)
		c.Probe = &catalog.Probe{TCP: "10.0.0.5:80", By: "c1a7", From: from}
		g.client(RegisterCatalog{Node: &catalog.Node{Name: "web-7", Address: "10.0.0.7"}, Checks: []*catalog.Check{c}})
		return g.check("web-7", "p")
	}
	for _, tt := range []struct {
		level              byte
		from, kept, source string
	}{
		{2, "10.0.0.66", "", "10.0.0.7"}, {3, "", "", "10.0.0.7"}, {3, "10.0.0.66", "10.0.0.66", "10.0.0.66"}, {3, "10.0.0.67", "10.0.0.67", "10.0.0.67"},
	} {
		g.SetLevel(tt.level)
		c := register(tt.from)
		expect.That(t, c.Probe.From == tt.kept, "level %d: from %q, want %q", tt.level, c.Probe.From, tt.kept)
		expect.Equal(t, g.Registry.View().ProbeSource("web-7", c.Probe), tt.source, "level %d: its source", tt.level)
		again := g.Registry.View().Index()
		register(tt.from)
		expect.Equal(t, g.Registry.View().Index(), again, "level %d: the same again changes something: index", tt.level)
	}
}

func TestOtherVIPsNeedTheRightToRegisterThem(t *testing.T) {
	g := newRig(t)
	g.client(Register{instance(Key{App: "PAY", ID: "p"}, Up, 1)})
	for _, tt := range []struct{ vip, secure, want string }{
		{"orders", "Orders", ""},
		{"", " , ,", ""},
		{"orders.net,pay", "ORDERS.net, b.net", "app ORDERS.NET register counted, app PAY register, app B.NET register counted"},
		{strings.Repeat("x,", MaxVIPs) + "beyond", "", "app X register counted"},
	} {
		i := instance(Key{App: "ORDERS", ID: "o"}, Up, 1)
		i.VIP, i.SecureVIP = tt.vip, tt.secure
		var got []string
		for _, n := range Needs(Register{i}, g.Registry.View())[1:] {
			if text := n.String(); n.Counted {
				got = append(got, text+" counted")
			} else {
				got = append(got, text)
			}
		}
		expect.Equal(t, strings.Join(got, ", "), tt.want, "%q and %q need", tt.vip, tt.secure)
	}
}
