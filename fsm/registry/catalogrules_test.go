package registry

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

var web1 = Key{App: "WEB", ID: "web-1"}

// service returns a service as the agent's API registers it: on the logical node, with these checks.
func service(name, id string, checks ...*catalog.Check) RegisterCatalog {
	return serviceOn("", name, id, checks...)
}

// serviceOn returns a service as the catalog's API registers it, with its node.
func serviceOn(node, name, id string, checks ...*catalog.Check) RegisterCatalog {
	s := &catalog.Service{Name: name, ID: id, Port: 80}
	op := RegisterCatalog{Service: s, Instance: serviceInstance(node, s), Checks: checks}
	if node != "" {
		op.Node = &catalog.Node{Name: node, Address: "10.0.0.1"}
	}
	return op
}

// checkOf returns a check of a service, or of a node if service is "".
func checkOf(service, id string, status catalog.CheckStatus) *catalog.Check {
	return &catalog.Check{ID: id, Service: service, Name: id, Status: status}
}

// registerInCatalog makes a client register in the catalog, and fails the test unless that succeeds.
func (g *rig) registerInCatalog(op RegisterCatalog) Result {
	g.t.Helper()
	res := g.client(op)
	if res.Outcome != Done {
		g.t.Fatalf("register %+v: %+v, want it done", op, res)
	}
	return res
}

// report makes a client set a check of the logical node, and fails the test unless that succeeds.
func (g *rig) report(check string, status catalog.CheckStatus, output string) Result {
	g.t.Helper()
	res := g.client(SetCheck{Check: check, Status: status, Output: output})
	if res.Outcome != Done {
		g.t.Fatalf("check %s to %d: %+v, want it done", check, status, res)
	}
	return res
}

func (g *rig) check(node, id string) *catalog.Check {
	g.t.Helper()
	c, ok := g.View().CheckOn(node, id)
	if !ok {
		g.t.Fatalf("node %q has no check %s", node, id)
	}
	return c
}

func TestStatusOfAServiceFollowsFromChecksOfItAndItsNode(t *testing.T) {
	for _, tt := range []struct {
		name   string
		checks []*catalog.Check
		want   Status
	}{
		{"no checks", nil, Up},
		{"passing", []*catalog.Check{checkOf("web-1", "a", catalog.Passing)}, Up},
		{"warning", []*catalog.Check{checkOf("web-1", "a", catalog.Passing), checkOf("web-1", "b", catalog.Warning)}, Up},
		{"one critical", []*catalog.Check{checkOf("web-1", "a", catalog.Passing), checkOf("web-1", "b", catalog.Critical)}, Down},
		{"its node is critical", []*catalog.Check{checkOf("web-1", "a", catalog.Passing), checkOf("", "n", catalog.Critical)}, Down},
		{"in maintenance", []*catalog.Check{checkOf("web-1", catalog.ServiceMaintenance+"web-1", catalog.Critical)}, OutOfService},
		{"maintenance is worse than critical", []*catalog.Check{checkOf("web-1", "z", catalog.Critical), checkOf("web-1", catalog.ServiceMaintenance+"web-1", catalog.Critical)}, OutOfService},
		{"its node is in maintenance", []*catalog.Check{checkOf("web-1", "a", catalog.Critical), checkOf("", catalog.NodeMaintenance, catalog.Critical)}, OutOfService},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := withWeb(t, tt.checks...)
			expect.Equal(t, g.status(web1), tt.want, "registered at once:")
			g = newRig(t)
			g.registerInCatalog(service("web", "web-1"))
			for _, c := range tt.checks {
				g.registerInCatalog(RegisterCatalog{Checks: []*catalog.Check{c}})
			}
			expect.Equal(t, g.status(web1), tt.want, "one check after another:")
			for _, c := range tt.checks {
				g.client(DeregisterCatalog{Check: c.ID})
			}
			expect.Equal(t, g.status(web1), Up, "all checks deregistered:")
			n, ok := g.View().Node("")
			expect.That(t, !ok || len(n.Checks) == 0 && n.ChecksChanged == g.View().CatalogIndex(),
				"the logical node is %+v, want it without checks, and knowing when the last one went", n)
		})
	}
}

func TestCatalogRegistrationOfWhatIsThereTakesNoIndex(t *testing.T) {
	check := checkOf("web-1", "a", catalog.Critical)
	check.Output, check.Probe = "refused", &catalog.Probe{HTTP: "http://10.0.0.1/", Header: []Pair{{Key: "a", Value: "b"}}, Interval: 1000}
	op := serviceOn("n1", "web", "web-1", check, checkOf("", "n", catalog.Passing))
	op.Node.Meta, op.Service.Tags, op.Service.Locality = []Pair{{Key: "k", Value: "v"}}, []string{"blue"}, []byte(`{}`)
	for _, tt := range []struct {
		name   string
		change func(op *RegisterCatalog)
		moves  []string // whose ModifyIndex
	}{
		{"the same", func(*RegisterCatalog) {}, nil},
		{"the node's address", func(op *RegisterCatalog) { op.Node.Address = "10.0.0.2" }, []string{"node"}},
		{"the node's metadata", func(op *RegisterCatalog) { op.Node.Meta = nil }, []string{"node"}},
		{"a node that is to stay as it is", func(op *RegisterCatalog) { op.Node.Address, op.KeepNode = "10.0.0.2", true }, nil},
		{"tags", func(op *RegisterCatalog) { op.Service.Tags = []string{"green"} }, []string{"service"}},
		{"metadata", func(op *RegisterCatalog) { op.Instance.Metadata = []Pair{{Key: "k", Value: "v"}} }, []string{"service"}},
		{"port", func(op *RegisterCatalog) { op.Service.Port = 81 }, []string{"service"}},
		{"a proxy's settings", func(op *RegisterCatalog) { op.Service.Proxy = []byte(`{}`) }, []string{"service"}},
		{"its part in a mesh", func(op *RegisterCatalog) { op.Service.Native = true }, []string{"service"}},
		{"a check's output", func(op *RegisterCatalog) { op.Checks[0].Output = "timeout" }, []string{"check"}},
		{"a check's probe", func(op *RegisterCatalog) { op.Checks[0].Probe = &catalog.Probe{TCP: "10.0.0.1:1"} }, []string{"check"}},
		{"a state that is to stay", func(op *RegisterCatalog) { op.Checks[0].Status, op.KeepStatus = catalog.Passing, true }, nil},
		{"the node's check", func(op *RegisterCatalog) { op.Checks[1].Notes = "x" }, []string{"node's check"}},
		{"fewer checks", func(op *RegisterCatalog) { op.Checks = nil }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			first := g.registerInCatalog(deepCopy(op))
			index := g.View().Index()
			again := deepCopy(op)
			tt.change(&again)
			res := g.registerInCatalog(again)
			if moved := g.View().Index() > index; moved != (tt.moves != nil) || (res.Index > 0) != moved {
				t.Errorf("index %d after %d, result %+v; want a change: %t", g.View().Index(), index, res, tt.moves != nil)
			}
			expect.That(t, res.Handle == first.Handle, "handle %+v, want that of before, %+v", res.Handle, first.Handle)
			l := g.lease(Key{App: "WEB", ID: "n1:web-1"})
			n, _ := g.View().Node("n1")
			for what, at := range map[string][2]Index{
				"node": {n.CreateIndex, n.ModifyIndex}, "service": {l.Service.CreateIndex, l.Service.ModifyIndex},
				"check":        {g.check("n1", "a").CreateIndex, g.check("n1", "a").ModifyIndex},
				"node's check": {g.check("n1", "n").CreateIndex, g.check("n1", "n").ModifyIndex},
			} {
				moved := at[1] > index
				expect.That(t, at[0] <= index && moved == slices.Contains(tt.moves, what),
					"%s: created at %d, modified at %d; before it was %d, want it modified: %t", what, at[0], at[1], index, !moved)
			}
		})
	}
}

// deepCopy copies everything that a test may change.
func deepCopy(op RegisterCatalog) RegisterCatalog {
	if op.Node != nil {
		n := *op.Node
		op.Node = &n
	}
	s, i := *op.Service, *op.Instance
	op.Service, op.Instance, op.Checks = &s, &i, slices.Clone(op.Checks)
	for at, c := range op.Checks {
		d := *c
		op.Checks[at] = &d
	}
	return op
}

func TestCatalogRegistrationIsRefusedAsAWhole(t *testing.T) {
	tests := []struct {
		name   string
		before []Op
		op     RegisterCatalog
		want   Outcome
	}{
		{"a check of no service", nil, RegisterCatalog{Checks: []*catalog.Check{checkOf("web-1", "a", catalog.Passing)}}, UnknownService},
		{"with a service, a check of another one", nil, service("web", "web-1", checkOf("web-2", "a", catalog.Passing)), UnknownService},
		{"a check of a service on another node", []Op{serviceOn("n1", "web", "web-1")},
			RegisterCatalog{Node: &catalog.Node{Name: "n2"}, Checks: []*catalog.Check{checkOf("web-1", "a", catalog.Passing)}}, UnknownService},
		{"a check of an instance that has a lease", []Op{Register{instance(web1, Up, 100)}},
			RegisterCatalog{Checks: []*catalog.Check{checkOf("web-1", "a", catalog.Passing)}}, UnknownService},
		{"another spelling", []Op{service("web", "web-1")}, service("Web", "web-2"), NameTaken},
		{"another spelling of one in quarantine", []Op{service("web", "web-1"), Quarantine{Key: web1, For: 1000}}, service("Web", "web-2"), NameTaken},
		{"not lower case, beside an instance that has a lease", []Op{Register{instance(web1, Up, 100)}}, service("Web", "web-2"), NameTaken},
		{"not lower case, as the first", nil, service("Web", "web-1"), Done},
		{"the spelling of the other ones", []Op{service("Web", "web-1")}, service("Web", "web-2"), Done},
		{"the spelling of the other ones, beside one that has a lease", []Op{service("Web", "web-1"), Register{instance(Key{App: "WEB", ID: "3"}, Up, 100)}},
			service("Web", "web-2"), Done},
		{"another spelling, in the place of the only one", []Op{service("web", "web-1")}, service("Web", "web-1"), Done},
		{"not lower case, in the place of the only instance with a lease", []Op{Register{instance(web1, Up, 100)}}, service("Web", "web-1"), Done},
		{"another spelling after all have gone", []Op{service("web", "web-1"), Cancel{web1}}, service("Web", "web-2"), Done},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			for _, op := range tt.before {
				g.client(op)
			}
			g.Advance(g.now)
			before := g.Freeze()
			res := g.client(tt.op)
			need.That(t, res.Outcome == tt.want, "got %+v, want outcome %d", res, tt.want)
			after := g.Freeze()
			expect.That(t, tt.want == Done || reflect.DeepEqual(after, before), "refused, and something is left of it:\n%+v\nwas\n%+v", after, before)
		})
	}
}

func TestCatalogServiceOfTheSameIDUnderAnotherNameKeepsTheChecks(t *testing.T) {
	g := newRig(t)
	ttl := checkOf("s1", "ttl", catalog.Critical)
	ttl.TTL = 10_000
	g.registerInCatalog(service("web", "s1", ttl))
	g.report("ttl", catalog.Passing, "fine")
	heard := g.View().LastHeartbeat(g.check("", "ttl"))
	created := g.lease(Key{App: "WEB", ID: "s1"}).Service.CreateIndex
	g.Lost()
	g.pass(3000)

	index := g.View().Index()
	g.registerInCatalog(service("shop", "s1"))
	wantKeys(t, "leases", keysOf(g.View().Leases()), Key{App: "SHOP", ID: "s1"})
	rec, ok := g.View().Removal(Key{App: "WEB", ID: "s1"})
	expect.That(t, ok && rec.Kind == Canceled && rec.Lease.Changed > index, "record of the old name: %+v %t, want it canceled", rec, ok)
	l := g.lease(Key{App: "SHOP", ID: "s1"})
	expect.That(t, l.Service.CreateIndex == created && len(l.Service.Checks) == 1 && g.check("", "ttl").Status == catalog.Passing,
		"service %+v with check %+v, want it created at %d with the check that it had", l.Service, g.check("", "ttl"), created)
	expect.Equal(t, g.View().LastHeartbeat(g.check("", "ttl")), heard, "last heartbeat at")
	lost := g.Lost()
	expect.That(t, len(lost) == 0, "lost %+v, want nothing", lost)
}

func TestCatalogRegistrationKeepsChecksUnlessItReplacesThem(t *testing.T) {
	for _, replace := range []bool{false, true} {
		g := withWeb(t, checkOf("web-1", "a", catalog.Passing), checkOf("web-1", "b", catalog.Critical), checkOf("", "n", catalog.Passing))
		op := service("web", "web-1", checkOf("web-1", "a", catalog.Passing))
		op.ReplaceChecks = replace
		g.Lost()
		g.registerInCatalog(op)
		want, lost := []string{"a", "b"}, []catalog.CheckRef(nil)
		if replace {
			want, lost = []string{"a"}, []catalog.CheckRef{{Node: "", ID: "b"}}
		}
		var got []string
		for _, c := range g.lease(web1).Service.Checks {
			got = append(got, c.ID)
		}
		expect.That(t, slices.Equal(got, want) && slices.Equal(g.Lost(), lost), "replacing %t: checks %v, want %v, and %v lost", replace, got, want, lost)
		_, ok := g.View().CheckOn("", "n")
		expect.That(t, ok, "replacing %t: the node's check went", replace)
	}
}

// serviceAt returns a service of the logical node at an address.
func serviceAt(address, name, id string, checks ...*catalog.Check) RegisterCatalog {
	op := service(name, id, checks...)
	op.Service.Address, op.Instance.HostName, op.Instance.IPAddr = address, address, address
	return op
}

// TestCatalogRegistrationIsRefusedAnIDOfAnotherHost: hosts that register on the logical node share no agent, so an
// equal id belongs to another host.
func TestCatalogRegistrationIsRefusedAnIDOfAnotherHost(t *testing.T) {
	here, there := serviceAt("10.0.0.2", "web", "web-80", checkOf("web-80", "alive", catalog.Passing)), serviceAt("10.0.0.3", "web", "web-80")
	otherPort := serviceAt("10.0.0.2", "web", "web-80")
	otherPort.Service.Port, otherPort.Service.Tags = 81, []string{"v2"}
	onNode := func(op RegisterCatalog, node string) RegisterCatalog {
		op.Node, op.Service.Node = &catalog.Node{Name: node, Address: "10.0.0.9"}, node
		op.Instance.InstanceID = node + ":" + op.Service.ID
		return op
	}
	for _, tt := range []struct {
		name   string
		before func(g *rig)
		op     RegisterCatalog
		want   Outcome
	}{
		{name: "another address", op: there, want: AddressTaken},
		{name: "no address, where there is one", op: service("web", "web-80"), want: AddressTaken},
		{name: "another address and another name", op: serviceAt("10.0.0.3", "shop", "web-80"), want: AddressTaken},
		{name: "another address, quarantined", before: func(g *rig) { g.client(Quarantine{Key: Key{App: "WEB", ID: "web-80"}}) }, op: there, want: AddressTaken},
		{name: "the same again", op: here},
		{name: "the same address with another port and other tags", op: otherPort},
		{name: "the same address and another name", op: serviceAt("10.0.0.2", "shop", "web-80")},
		{name: "another address, once the first is deregistered", before: func(g *rig) { g.client(DeregisterCatalog{Service: "web-80"}) }, op: there},
		{name: "another address on another node", op: onNode(there, "far")},
		{name: "another address on another node, where it is", before: func(g *rig) { g.client(onNode(serviceAt("10.0.0.4", "web", "web-80"), "far")) }, op: onNode(there, "far")},
		{name: "another address on an agent, where it is", before: func(g *rig) { g.client(agents(onNode(serviceAt("10.0.0.4", "web", "web-80"), "far"))) }, op: agents(onNode(there, "far")), want: AddressTaken},
		{name: "another address on an agent that was named", before: func(g *rig) { g.client(agents(onNode(serviceAt("10.0.0.4", "web", "web-80"), "far"))) }, op: readdressed(agents(onNode(there, "far")))},
		{name: "another address on an agent", op: agents(onNode(there, "far"))},
		{name: "the instance of another node's service", before: func(g *rig) { g.client(agents(onNode(service("web", "b:web-80"), "far"))) }, op: readdressed(agents(onNode(service("web", "web-80"), "far:b"))), want: AddressTaken},
		{name: "the instance of an agent's service, on the logical node", before: func(g *rig) { g.client(agents(onNode(service("web", "web-80"), "far"))) }, op: service("web", "far:web-80"), want: AddressTaken},
		{name: "the same id in another application", before: func(g *rig) { g.client(agents(onNode(service("web", "b:web-80"), "far"))) }, op: agents(onNode(service("shop", "web-80"), "far:b"))},
		{name: "the check for another service", op: RegisterCatalog{Checks: []*catalog.Check{checkOf("web-81", "alive", catalog.Passing)}}, want: CheckTaken},
		{name: "the check with another service", op: serviceAt("10.0.0.3", "web", "web-82", checkOf("web-82", "alive", catalog.Passing)), want: CheckTaken},
		{name: "the check for the node", op: RegisterCatalog{Checks: []*catalog.Check{checkOf("", "alive", catalog.Passing)}}, want: CheckTaken},
		{name: "the node's check for a service", op: RegisterCatalog{Checks: []*catalog.Check{checkOf("web-81", "disk", catalog.Passing)}}, want: CheckTaken},
		{name: "the check, once it is deregistered", before: func(g *rig) { g.client(DeregisterCatalog{Check: "alive"}) }, op: RegisterCatalog{Checks: []*catalog.Check{checkOf("web-81", "alive", catalog.Passing)}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.registerInCatalog(here)
			g.registerInCatalog(serviceAt("10.0.0.3", "web", "web-81"))
			g.registerInCatalog(RegisterCatalog{Checks: []*catalog.Check{checkOf("", "disk", catalog.Passing)}})
			if tt.before != nil {
				tt.before(g)
			}
			before := g.Freeze()
			got := g.client(tt.op)
			expect.That(t, got.Outcome == tt.want, "got %+v, want outcome %d", got, tt.want)
			if after := g.Freeze(); tt.want != Done && (got.Index != 0 || !reflect.DeepEqual(after, before)) {
				t.Errorf("refused, and something is left of it:\n%+v\nwas\n%+v", after, before)
			}
			expect.OK(t, check(g.Registry))
		})
	}
}

// agents turns a registration into an agent's.
func agents(op RegisterCatalog) RegisterCatalog {
	op.Agent = true
	return op
}

func readdressed(op RegisterCatalog) RegisterCatalog {
	op.Readdress = true
	return op
}

// TestAgentsNodeGoesWithTheLastThatIsOnIt, however that goes, unless a registrar registered anything about the node;
// a registrar's node stays.
func TestAgentsNodeGoesWithTheLastThatIsOnIt(t *testing.T) {
	place := func(agent, service string, node catalog.Node) RegisterCatalog {
		op := serviceAt("", "web", service)
		node.Name = "far"
		op.Node, op.Service.Node, op.Instance.InstanceID = &node, "far", "far:"+service
		op.Agent = agent == "agent"
		return op
	}
	maintained := RegisterCatalog{Node: &catalog.Node{Name: "far"}, KeepNode: true, Checks: []*catalog.Check{checkOf("", catalog.NodeMaintenance, catalog.Critical)}}
	for _, tt := range []struct {
		name  string
		steps []Op
		stays bool
	}{
		{"deregistered", []Op{DeregisterCatalog{Node: "far", Service: "a"}}, false},
		{"one of two deregistered", []Op{place("agent", "b", catalog.Node{}), DeregisterCatalog{Node: "far", Service: "a"}}, true},
		{"two deregistered", []Op{place("agent", "b", catalog.Node{}), DeregisterCatalog{Node: "far", Service: "a"}, DeregisterCatalog{Node: "far", Service: "b"}}, false},
		{"canceled", []Op{Cancel{Key: Key{App: "WEB", ID: "far:a"}}}, false},
		{"registered again by a client of Eureka", []Op{Register{Instance: instance(Key{App: "WEB", ID: "far:a"}, Up, 1)}}, false},
		{"with a check of its own", []Op{maintained, DeregisterCatalog{Node: "far", Service: "a"}}, true},
		{"with a check of its own that ends", []Op{maintained, DeregisterCatalog{Node: "far", Service: "a"}, DeregisterCatalog{Node: "far", Check: catalog.NodeMaintenance}}, false},
		{"given an id", []Op{RegisterCatalog{Node: &catalog.Node{Name: "far", ID: "7"}}, DeregisterCatalog{Node: "far", Service: "a"}}, true},
		{"given an address of a kind", []Op{RegisterCatalog{Node: &catalog.Node{Name: "far", Tagged: []Pair{{Key: "wan", Value: "192.0.2.1"}}}}, DeregisterCatalog{Node: "far", Service: "a"}}, true},
		{"described", []Op{RegisterCatalog{Node: &catalog.Node{Name: "far", Meta: []Pair{{Key: "rack", Value: "7"}}}}, DeregisterCatalog{Node: "far", Service: "a"}}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.client(place("agent", "a", catalog.Node{Address: "10.0.0.9"}))
			for _, op := range tt.steps {
				got := g.client(op)
				need.That(t, got.Outcome == Done, "%+v: %+v", op, got)
				expect.OK(t, check(g.Registry))
			}
			_, there := g.View().Node("far")
			expect.Equal(t, there, tt.stays, "the node is there:")
		})
	}
	g := newRig(t)
	g.client(place("registrar", "a", catalog.Node{}))
	g.client(DeregisterCatalog{Node: "far", Service: "a"})
	expect.That(t, g.Registry.HasNode("far"), "a registrar's node is gone")
}

// TestAgentIsAliveWhateverIsRegisteredByThatID: a node with two checks of one id could not be restored.
func TestAgentIsAliveWhateverIsRegisteredByThatID(t *testing.T) {
	for _, service := range []string{"", "web-1"} {
		g := newRig(t)
		g.registerInCatalog(agents(serviceOn("far", "web", "web-1", checkOf(service, catalog.SerfHealth, catalog.Critical))))
		expect.OK(t, check(g.Registry))
		n, _ := g.View().Node("far")
		expect.That(t, n.Alive() && len(n.Checks) == 1, "with a check of service %q the node has %+v", service, n.Checks)
		g.client(DeregisterCatalog{Node: "far", Service: "web-1"})
		expect.That(t, !g.HasNode("far"), "the node stays")
	}
}

// TestCheckMovesToTheServiceForWhichItIsRegistered on a registrar's node; on the logical one it is refused.
func TestCheckMovesToTheServiceForWhichItIsRegistered(t *testing.T) {
	two := func(g *rig) {
		g.registerInCatalog(serviceOn("far", "web", "web-1", checkOf("web-1", "a", catalog.Critical)))
		g.registerInCatalog(serviceOn("far", "web", "web-2"))
	}
	far := func(op RegisterCatalog) RegisterCatalog {
		op.Node, op.KeepNode = &catalog.Node{Name: "far"}, true
		return op
	}
	web1, web2, web3 := Key{App: "WEB", ID: "far:web-1"}, Key{App: "WEB", ID: "far:web-2"}, Key{App: "WEB", ID: "far:web-3"}
	for _, tt := range []struct {
		name string
		op   RegisterCatalog
		want map[Key]Status
	}{
		{"to another service", far(RegisterCatalog{Checks: []*catalog.Check{checkOf("web-2", "a", catalog.Critical)}}), map[Key]Status{web1: Up, web2: Down}},
		{"to its node", far(RegisterCatalog{Checks: []*catalog.Check{checkOf("", "a", catalog.Critical)}}), map[Key]Status{web1: Down, web2: Down}},
		{"to its node, when its service registers again", serviceOn("far", "web", "web-1", checkOf("", "a", catalog.Critical)), map[Key]Status{web1: Down, web2: Down}},
		{"to a service that is registered with it", serviceOn("far", "web", "web-3", checkOf("web-3", "a", catalog.Critical)), map[Key]Status{web1: Up, web2: Up, web3: Down}},
		{"given twice: the last counts", far(RegisterCatalog{Checks: []*catalog.Check{checkOf("", "a", catalog.Critical), checkOf("web-2", "a", catalog.Critical)}}), map[Key]Status{web1: Up, web2: Down}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			two(g)
			created := g.check("far", "a").CreateIndex
			g.Lost()
			g.registerInCatalog(tt.op)
			for key, want := range tt.want {
				expect.Equal(t, g.status(key), want, "%s is", key)
			}
			c := g.check("far", "a")
			expect.That(t, c.CreateIndex == created && c.Service == tt.op.Checks[len(tt.op.Checks)-1].Service,
				"check %+v, want it of the same CreateIndex, %d, of what it was registered for", c, created)
			lost := g.Lost()
			expect.That(t, len(lost) == 0, "lost %+v, want nothing: the check is there", lost)
			expect.OK(t, check(g.Registry))
		})
	}
}

func TestCatalogServicesHaveTheirNodesAddressUnlessTheyGiveOne(t *testing.T) {
	g := newRig(t)
	g.registerInCatalog(serviceOn("n1", "web", "web-1"))
	own := serviceOn("n1", "web", "web-2")
	own.Service.Address, own.Instance.IPAddr, own.Instance.HostName = "10.9.9.9", "10.9.9.9", "10.9.9.9"
	g.registerInCatalog(own)
	dirty := g.lease(Key{App: "WEB", ID: "n1:web-1"}).Instance.LastDirty
	g.registerInCatalog(RegisterCatalog{Node: &catalog.Node{Name: "n1", Address: "10.0.0.7"}})
	moved, stays := g.lease(Key{App: "WEB", ID: "n1:web-1"}).Instance, g.lease(Key{App: "WEB", ID: "n1:web-2"}).Instance
	expect.That(t, moved.IPAddr == "10.0.0.7" && moved.HostName == "10.0.0.7" && moved.LastDirty > dirty,
		"instance %+v, want the node's new address, and newer for other servers", moved)
	expect.That(t, stays.IPAddr == "10.9.9.9", "instance with an address of its own: %+v", stays)
	g.registerInCatalog(RegisterCatalog{Node: &catalog.Node{Name: "n1"}})
	expect.Equal(t, g.lease(Key{App: "WEB", ID: "n1:web-1"}).Instance.IPAddr, "n1", "address")
}

func TestCatalogDeregistrationRemovesWhatItNames(t *testing.T) {
	prepare := func(t *testing.T) *rig {
		g := withWeb(t, checkOf("web-1", "a", catalog.Critical), checkOf("", "n", catalog.Passing))
		g.registerInCatalog(serviceOn("n1", "web", "web-1", checkOf("web-1", "a", catalog.Critical), checkOf("", "n", catalog.Passing)))
		g.register(instance(orders1, Up, 100))
		g.register(instance(Key{App: "ORDERS", ID: "twice"}, Up, 100))
		g.register(instance(Key{App: "BILLING", ID: "twice"}, Up, 100))
		g.register(instance(Key{App: "BILLING", ID: "web-1"}, Up, 100))
		g.Lost()
		return g
	}
	onN1 := Key{App: "WEB", ID: "n1:web-1"}
	for _, tt := range []struct {
		name string
		op   DeregisterCatalog
		want Outcome
		gone []Key
		lost []catalog.CheckRef
	}{
		{"a service", DeregisterCatalog{Service: "web-1"}, Done, []Key{web1}, []catalog.CheckRef{{Node: "", ID: "a"}}},
		{"a service of another node", DeregisterCatalog{Node: "n1", Service: "web-1"}, Done, []Key{onN1}, []catalog.CheckRef{{Node: "n1", ID: "a"}}},
		{"a service wins over a check", DeregisterCatalog{Service: "web-1", Check: "n"}, Done, []Key{web1}, []catalog.CheckRef{{Node: "", ID: "a"}}},
		{"an instance that has a lease", DeregisterCatalog{Service: "orders-1"}, Done, []Key{orders1}, nil},
		{"an instance that has a lease, of a node", DeregisterCatalog{Node: "n1", Service: "orders-1"}, NotFound, nil, nil},
		{"one of two instances of an id", DeregisterCatalog{Service: "twice"}, NotFound, nil, nil},
		{"by an instance's id where the service has another", DeregisterCatalog{Service: "n1:web-1"}, NotFound, nil, nil},
		{"no service", DeregisterCatalog{Service: "x"}, NotFound, nil, nil},
		{"a check", DeregisterCatalog{Check: "a"}, Done, nil, []catalog.CheckRef{{Node: "", ID: "a"}}},
		{"a node's check", DeregisterCatalog{Node: "n1", Check: "n"}, Done, nil, []catalog.CheckRef{{Node: "n1", ID: "n"}}},
		{"no check", DeregisterCatalog{Check: "x"}, NotFound, nil, nil},
		{"a node", DeregisterCatalog{Node: "n1"}, Done, []Key{onN1}, []catalog.CheckRef{{Node: "n1", ID: "a"}, {Node: "n1", ID: "n"}, {Node: "n1", ID: ""}}},
		{"no node", DeregisterCatalog{Node: "n2"}, NotFound, nil, nil},
		{"nothing", DeregisterCatalog{}, NotFound, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := prepare(t)
			before := keysOf(g.View().Leases())
			index := g.View().Index()
			res := g.client(tt.op)
			expect.That(t, res.Outcome == tt.want && (res.Index > index) == (tt.want == Done), "got %+v, want outcome %d", res, tt.want)
			wantKeys(t, "left", keysOf(g.View().Leases()), slices.DeleteFunc(before, func(k Key) bool { return slices.Contains(tt.gone, k) })...)
			expect.Slice(t, g.Lost(), tt.lost, "lost")
			for _, key := range tt.gone {
				rec, ok := g.View().Removal(key)
				expect.That(t, ok && rec.Kind == Canceled, "%s left the record %+v (%t), want it canceled", key, rec, ok)
			}
			expect.OK(t, check(g.Registry))
		})
	}
}

// If instances registered through both APIs share an id, the one from Consul's API comes first.
func TestCatalogServiceIsFoundByIDHoweverItWasRegistered(t *testing.T) {
	g := withOrders(t)
	g.register(instance(Key{App: "A", ID: "x"}, Up, 100))
	g.register(instance(Key{App: "B", ID: "x"}, Up, 100))
	g.registerInCatalog(serviceOn("n1", "web", "x"))
	want := func(node, id string, key Key, ambiguous bool) {
		t.Helper()
		l, twice := g.View().ServiceOn(node, id)
		expect.That(t, twice == ambiguous && (l == nil) == (key == Key{}) && (l == nil || l.Key() == key),
			"service %q of node %q is %v, ambiguous: %t; want %s, %t", id, node, l, twice, key, ambiguous)
	}
	want("", "orders-1", orders1, false)
	want("", "x", Key{}, true)
	want("n1", "x", Key{App: "WEB", ID: "n1:x"}, false)
	want("", "n1:x", Key{}, false)
	want("n1", "orders-1", Key{}, false)
	g.registerInCatalog(service("web", "x"))
	want("", "x", Key{App: "WEB", ID: "x"}, false)
	g.client(Quarantine{Key: orders1, For: 1000})
	want("", "orders-1", orders1, false)
	wantKeys(t, "services of the logical node", keysOf(g.View().ServicesOn("")), Key{App: "A", ID: "x"}, Key{App: "B", ID: "x"}, Key{App: "WEB", ID: "x"})
	wantKeys(t, "services of n1", keysOf(g.View().ServicesOn("n1")), Key{App: "WEB", ID: "n1:x"})
}

func TestEachChangeOfTheCatalogHasItsIndex(t *testing.T) {
	g := withWeb(t)
	g.registerInCatalog(service("web", "web-2"))
	g.registerInCatalog(service("shop", "shop-1"))
	g.register(instance(orders1, Up, 100))
	index, nodes := g.View().Index(), g.View().CatalogIndex()
	expect.Equal(t, nodes, 0, "nodes changed at")
	g.registerInCatalog(RegisterCatalog{Checks: []*catalog.Check{checkOf("", "n", catalog.Critical)}})
	v := g.View()
	changes, err := v.Changes(index, 0)
	need.That(t, err == nil && len(changes) == 3, "changes %v, %v; want one for each service that the node's check concerns", changes, err)
	for i, c := range changes {
		expect.That(t, c.Index == index+2+Index(i) && c.Lease.Instance.Status == Down && c.Lease.Action == ActionModified,
			"change %d: %+v of %+v, want it DOWN, by an index of its own", i, c, c.Lease)
	}
	expect.Equal(t, v.CatalogIndex(), index+1, "nodes changed at")
	app, _ := v.App("WEB")
	before := app.Changed
	g.client(SetCheck{Check: "n", Status: catalog.Critical, Output: "still"})
	v = g.View()
	expect.That(t, v.CatalogIndex() == v.Index(), "nodes changed at %d, want at %d", v.CatalogIndex(), v.Index())
	app, _ = g.View().App("WEB")
	expect.That(t, app.Changed == before, "WEB changed at %d by the output of its node's check, want %d", app.Changed, before)
}

func TestRegistryIndexesComeFromOneCounter(t *testing.T) {
	g := newRig(t)
	first := g.register(instance(orders1, Up, 100)).Index
	next := g.Next()
	expect.That(t, next == first+1 && g.ReserveIndex() == next, "took %d after %d", next, first)
	expect.Equal(t, g.View().Index(), first, "the registry's index, which is that of its own last change, is")
	expect.Equal(t, g.register(instance(orders2, Up, 100)).Index, first+2, "a change, after what was taken, at")
	g.ReserveIndex()
	r, err := Thaw(g.Freeze())
	expect.That(t, err == nil && r.Next() == first+4 && r.View().Index() == first+2,
		"thawed: %v; next is %d, index %d; want %d and %d", err, r.Next(), r.View().Index(), first+4, first+2)
}

func TestThawRefusesAnInconsistentCatalog(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(f *Frozen, web *catalog.Service, n *catalog.Node)
		want  string
	}{
		{"nodes' order", func(f *Frozen, _ *catalog.Service, _ *catalog.Node) { slices.Reverse(f.Nodes) }, "ascending order of their names"},
		{"a node's index", func(_ *Frozen, _ *catalog.Service, n *catalog.Node) { n.ModifyIndex = 0 }, "created at"},
		{"a node's checks changed in the future", func(_ *Frozen, _ *catalog.Service, n *catalog.Node) { n.ChecksChanged = 99 }, "changed at 99"},
		{"a service left in the future", func(_ *Frozen, _ *catalog.Service, n *catalog.Node) { n.ServiceLeft = 99 }, "changed at 99"},
		{"a part changed in the future", func(f *Frozen, _ *catalog.Service, _ *catalog.Node) { f.Parts.Logical = 99 }, "a change has index 99"},
		{"nodes changed in the future", func(f *Frozen, _ *catalog.Service, _ *catalog.Node) { f.CatalogIndex = 99 }, "a node changed at 99"},
		{"with a lease", func(f *Frozen, _ *catalog.Service, _ *catalog.Node) {
			l := *f.Leases[0].Lease
			l.Permanent = false
			f.Leases[0].Lease = &l
		}, "with a lease"},
		{"of another application", func(_ *Frozen, s *catalog.Service, _ *catalog.Node) { s.Name = "x" }, `service "x" is not of this application`},
		{"of no node", func(_ *Frozen, s *catalog.Service, _ *catalog.Node) { s.Node = "x" }, `node "x" is not there`},
		{"twice", func(f *Frozen, _ *catalog.Service, _ *catalog.Node) {
			s := *f.Leases[0].Lease.Service
			s.Checks = nil
			l := *f.Leases[1].Lease
			l.Service = &s
			f.Leases[1].Lease = &l
		}, `service "web-1" of node "n1" is there twice`},
		{"a service's index", func(_ *Frozen, s *catalog.Service, _ *catalog.Node) { s.ModifyIndex = 99 }, "modified at 99"},
		{"checks' order", func(_ *Frozen, s *catalog.Service, _ *catalog.Node) { slices.Reverse(s.Checks) }, "ascending order of their ids"},
		{"a check of another service", func(_ *Frozen, s *catalog.Service, _ *catalog.Node) { s.Checks[0].Service = "x" }, `it is of service "x"`},
		{"a check twice", func(_ *Frozen, _ *catalog.Service, n *catalog.Node) { n.Checks[0].ID = "a" }, "its node has it twice"},
		{"a check's TTL", func(_ *Frozen, s *catalog.Service, _ *catalog.Node) { s.Checks[0].TTL = -1 }, "a TTL of -1 ms"},
		{"critical in the future", func(_ *Frozen, s *catalog.Service, _ *catalog.Node) { s.Checks[0].CriticalSince = 1 << 40 }, "critical since"},
		{"a check's index", func(_ *Frozen, s *catalog.Service, _ *catalog.Node) { s.Checks[0].CreateIndex = 0 }, "created at 0"},
		{"no heartbeat", func(f *Frozen, _ *catalog.Service, _ *catalog.Node) { f.CheckHeartbeats = nil }, "0 heartbeats of checks, want those of 1"},
		{"a heartbeat of no check", func(f *Frozen, _ *catalog.Service, _ *catalog.Node) { f.CheckHeartbeats[0].Check = "x" }, "heartbeats of checks"},
		{"a heartbeat in the future", func(f *Frozen, _ *catalog.Service, _ *catalog.Node) { f.CheckHeartbeats[0].At = 1 << 40 }, "had a heartbeat at"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			ttl := checkOf("web-1", "b", catalog.Critical)
			ttl.TTL = 1000
			g.registerInCatalog(serviceOn("n1", "web", "web-1", checkOf("web-1", "a", catalog.Critical), ttl, checkOf("", "n", catalog.Passing)))
			g.registerInCatalog(serviceOn("n2", "web", "web-2"))
			g.registerInCatalog(RegisterCatalog{Checks: []*catalog.Check{checkOf("", "own", catalog.Passing)}})
			f := g.Freeze()
			// Immutable values are copied before a test spoils them.
			lease, s := *f.Leases[0].Lease, *f.Leases[0].Lease.Service
			s.Checks = copiesOf(s.Checks)
			lease.Service = &s
			f.Leases[0].Lease = &lease
			for i, n := range f.Nodes {
				c := *n
				c.Checks = copiesOf(n.Checks)
				f.Nodes[i] = &c
			}
			need.OKf(t, expect.Err(Thaw(f)), "the true state")
			tt.spoil(&f, &s, f.Nodes[1])
			expect.ErrorSays(t, expect.Err(Thaw(f)), tt.want, "got")
		})
	}
}

func copiesOf(checks []*catalog.Check) []*catalog.Check {
	var copies []*catalog.Check
	for _, c := range checks {
		d := *c
		copies = append(copies, &d)
	}
	return copies
}

func TestCatalogHasTheLogicalNodeAlways(t *testing.T) {
	g := newRig(t)
	status, known := g.CheckState("", catalog.SerfHealth)
	expect.That(t, known && status == catalog.Passing && g.HasNode(""), "serfHealth: %d, known %t; node: %t", status, known, g.HasNode(""))
	_, known = g.CheckState("n1", catalog.SerfHealth)
	expect.That(t, !known && !g.HasNode("n1"), "serfHealth of a node that is not registered: %t; node: %t", known, g.HasNode("n1"))
	g.registerInCatalog(RegisterCatalog{Node: &catalog.Node{Name: "n1"}, Checks: []*catalog.Check{checkOf("", "n", catalog.Warning)}})
	status, known = g.CheckState("n1", "n")
	expect.That(t, known && status == catalog.Warning && g.HasNode("n1"), "n: %d, known %t; node: %t", status, known, g.HasNode("n1"))
}

func TestCatalogRegistrationIsAHeartbeatOfItsChecks(t *testing.T) {
	g := newRig(t)
	op := service("web", "web-1", withTTL("a", 10_000))
	op.KeepStatus = true
	g.registerInCatalog(op)
	g.Establish(Epoch{Term: 1, Index: 1}, "c")
	g.pass(9000)
	index := g.View().Index()
	g.registerInCatalog(op)
	if got := g.View().LastHeartbeat(g.check("", "a")); got != g.now.Lease || g.View().Index() != index {
		t.Errorf("heard at %d, index %d; want %d and %d", got, g.View().Index(), g.now.Lease, index)
	}
	ops := g.Ending(g.now.Lease + 10_000)
	expect.That(t, len(ops) == 0, "due: %+v", ops)
}

// Every check of a service adds to the cost of each operation on any of them, on every node.
func TestCatalogRegistrationBoundsTheChecksOfAServiceAndANode(t *testing.T) {
	many := func(service string, from, to int) (checks []*catalog.Check) {
		for i := from; i < to; i++ {
			checks = append(checks, checkOf(service, fmt.Sprintf("%s-%05d", service, i), catalog.Passing))
		}
		return checks
	}
	for _, tt := range []struct {
		name string
		op   RegisterCatalog
		want Outcome
	}{
		{"as many as a service may have", service("web", "web-1", many("web-1", 0, catalog.MaxServiceChecks)...), Done},
		{"one more", service("web", "web-1", many("web-1", 0, catalog.MaxServiceChecks+1)...), TooManyChecks},
		{"17,000", service("web", "web-1", many("web-1", 0, 17_000)...), TooManyChecks},
		{"as many as a node may have", RegisterCatalog{Checks: many("", 0, catalog.MaxNodeChecks)}, Done},
		{"one more of the node", RegisterCatalog{Checks: many("", 0, catalog.MaxNodeChecks+1)}, TooManyChecks},
		{"one beside those that are there", RegisterCatalog{Checks: many("full", catalog.MaxServiceChecks, catalog.MaxServiceChecks+1)}, TooManyChecks},
		{"maintenance of a service that has all it may have", RegisterCatalog{Checks: []*catalog.Check{checkOf("full", catalog.ServiceMaintenance+"full", catalog.Critical)}}, Done},
		{"maintenance of another service's name", RegisterCatalog{Checks: []*catalog.Check{checkOf("full", catalog.ServiceMaintenance+"web", catalog.Critical)}}, TooManyChecks},
		{"those that are there", RegisterCatalog{Checks: many("full", 0, catalog.MaxServiceChecks)}, Done},
		{"a service's own again", service("full", "full", many("full", 0, 3)...), Done},
		{"others in the place of all", func() RegisterCatalog {
			op := service("full", "full", many("full", 100, 100+catalog.MaxServiceChecks)...)
			op.ReplaceChecks = true
			return op
		}(), Done},
		{"others beside all", service("full", "full", many("full", 100, 101)...), TooManyChecks},
		{"one that moves to the full service", RegisterCatalog{Node: &catalog.Node{Name: "far"}, Checks: []*catalog.Check{checkOf("full", "n", catalog.Passing)}}, TooManyChecks},
		{"one that moves away from it", RegisterCatalog{Node: &catalog.Node{Name: "far"}, Checks: []*catalog.Check{checkOf("", "full-00001", catalog.Passing)}}, Done},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t)
			g.registerInCatalog(service("full", "full", many("full", 0, catalog.MaxServiceChecks)...))
			g.registerInCatalog(serviceOn("far", "full", "full", many("full", 0, catalog.MaxServiceChecks)...))
			g.registerInCatalog(RegisterCatalog{Node: &catalog.Node{Name: "far"}, Checks: []*catalog.Check{checkOf("", "n", catalog.Passing)}})
			before := g.View().Index()
			need.Equal(t, g.client(tt.op).Outcome, tt.want, "outcome")
			after := g.View().Index()
			expect.That(t, tt.want == Done || after == before, "index %d after a refusal, want %d", after, before)
		})
	}
}

// One registration moves a check from a service to its node, and another check from the node to the service.
func TestCheckMovesBetweenServicesInOneRegistration(t *testing.T) {
	g := newRig(t)
	g.registerInCatalog(serviceOn("far", "web", "web-1", checkOf("web-1", "a", catalog.Passing), checkOf("", "b", catalog.Passing), checkOf("", "c", catalog.Passing)))
	g.registerInCatalog(RegisterCatalog{Node: &catalog.Node{Name: "far"}, Checks: []*catalog.Check{checkOf("", "a", catalog.Passing), checkOf("web-1", "b", catalog.Passing)}})
	for id, service := range map[string]string{"a": "", "b": "web-1", "c": ""} {
		expect.Equal(t, g.check("far", id).Service, service, "check %s is of service", id)
	}
	expect.Equal(t, len(g.lease(Key{App: "WEB", ID: "far:web-1"}).Service.Checks), 1, "the service has")
	n, _ := g.View().Node("far")
	expect.That(t, len(n.Checks) == 2, "the node has %d checks, want 2", len(n.Checks))
}

// A service that registers at an agent says only where its node is; through the catalog's API it may say anything.
func TestAgentsRegistrationNeedsItsApplicationAlone(t *testing.T) {
	v := newRig(t).View()
	op := serviceOn("far", "web", "web-1", checkOf("web-1", "a", catalog.Passing))
	expect.Slice(t, Needs(op, v), append([]access.Need{nodeNeed(access.Write)}, registering("web")...), "needs of a registrar:")
	op.Agent = true
	expect.Slice(t, Needs(op, v), registering("web"), "needs of an agent's service:")
	op.Checks = append(op.Checks, checkOf("", "b", catalog.Passing))
	expect.Slice(t, Needs(op, v), append(registering("web"), nodeNeed(access.Write)), "needs of one with a check of the node:")
}

// Two nodes that propose the first registrations of a node under different spellings do not know about each other.
func TestNodesOfOneNameAreOneNodeFromLevelThreeOn(t *testing.T) {
	for level, want := range map[byte]string{2: "[Win-Host win-HOST win-host]", 3: "[Win-Host]"} {
		g := newRig(t)
		g.SetLevel(level)
		g.registerInCatalog(serviceOn("Win-Host", "web", "w1", checkOf("w1", "up", catalog.Passing), checkOf("", "disk", catalog.Passing)))
		second := serviceOn("win-host", "web", "w1", checkOf("w1", "up", catalog.Critical), checkOf("", "disk", catalog.Warning))
		for _, c := range second.Checks {
			c.Node = "win-host"
		}
		g.registerInCatalog(second)
		res := g.PerformInTxn(CatalogOp{Verb: CatalogSet, Node: "win-HOST", Register: &RegisterCatalog{Node: &catalog.Node{Name: "win-HOST", Address: "10.0.0.3"}}})
		need.That(t, res.What == "" && res.Found != nil && res.Found.Node.Address == "10.0.0.3", "level %d: the transaction: %+v", level, res)
		var names []string
		for n := range g.View().Nodes() {
			names = append(names, n.Name)
		}
		expect.Equal(t, fmt.Sprint(names), want, "level %d: the nodes are", level)
		if level == 3 {
			expect.That(t, g.check("Win-Host", "up").Status == catalog.Critical && g.check("Win-Host", "disk").Status == catalog.Warning, "the checks are those of the first registration")
			wantKeys(t, "all services", keysOf(g.View().Leases()), Key{App: "WEB", ID: "Win-Host:w1"})
		}
		expect.OK(t, g.catalog.Verify(0))
		need.That(t, second.On() == "win-host" && second.Checks[0].Node == "win-host" && second.Instance.InstanceID == "win-host:w1", "the operation was changed: %+v", second)
	}
}
