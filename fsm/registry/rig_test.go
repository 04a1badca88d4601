package registry

import (
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// rig is a registry and its time.
type rig struct {
	*Registry
	t   testing.TB
	now Stamp
}

const startOfWall = 1_700_000_000_000

var (
	orders1  = Key{App: "ORDERS", ID: "orders-1"}
	orders2  = Key{App: "ORDERS", ID: "orders-2"}
	billing1 = Key{App: "BILLING", ID: "billing-1"}
)

func newRig(t testing.TB) *rig {
	g := &rig{Registry: New(), t: t, now: Stamp{Lease: 1000, Wall: startOfWall}}
	g.SetLevel(codec.Newest)
	return g
}

// pass moves both clocks on.
func (g *rig) pass(ms int64) {
	g.now.Lease += ms
	g.now.Wall += ms
}

// apply performs an operation now, in the present term.
func (g *rig) apply(origin Origin, op Op) Result {
	return g.Apply(g.now, g.Epoch().Term, origin, op)
}

// client performs an operation as if a client had sent it.
func (g *rig) client(op Op) Result { return g.apply(FromClient, op) }

// peer performs an operation as if a Eureka server had sent it.
func (g *rig) peer(op Op) Result { return g.apply(FromEureka, op) }

// register registers a client's instance and fails the test unless it is accepted.
func (g *rig) register(i *Instance) Result {
	g.t.Helper()
	res := g.client(Register{i})
	if res.Outcome != Done || res.Index == 0 {
		g.t.Fatalf("register %s: %+v, want it done with an index", i.Key(), res)
	}
	return res
}

// withOrders returns a rig where orders-1 and then others are UP, registered at 100 by their clients.
func withOrders(t testing.TB, others ...Key) *rig {
	g := newRig(t)
	for _, key := range append([]Key{orders1}, others...) {
		g.register(instance(key, Up, 100))
	}
	return g
}

// withWeb returns a rig where web-1 is registered on the logical node, with these checks.
func withWeb(t testing.TB, checks ...*catalog.Check) *rig {
	g := newRig(t)
	g.registerInCatalog(service("web", "web-1", checks...))
	return g
}

func (g *rig) lease(key Key) *Lease {
	g.t.Helper()
	l, ok := g.View().Lease(key)
	if !ok {
		g.t.Fatalf("%s has no lease", key)
	}
	return l
}

func (g *rig) status(key Key) Status {
	g.t.Helper()
	return g.lease(key).Instance.Status
}

// inDelta returns the actions of the delta by key.
func (g *rig) inDelta() map[Key]Action {
	actions := make(map[Key]Action)
	for _, l := range g.View().Delta().Leases {
		actions[l.Key()] = l.Action
	}
	return actions
}

func instance(key Key, status Status, dirty int64) *Instance {
	return &Instance{
		InstanceID: key.ID, HostName: "host-" + key.ID, App: key.App, IPAddr: "10.0.0.1",
		Status: status, LastDirty: dirty, VIP: key.App, DataCenter: DataCenter{Name: MyOwn},
	}
}

func keysOf(leases func(yield func(*Lease) bool)) []Key {
	var keys []Key
	for l := range leases {
		keys = append(keys, l.Key())
	}
	return keys
}

func wantKeys(t testing.TB, what string, got []Key, want ...Key) {
	t.Helper()
	expect.Slice(t, got, want, "%s: got", what)
}
