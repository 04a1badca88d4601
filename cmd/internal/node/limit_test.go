package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestFullDiskRefusesAdditionsByTheirKind(t *testing.T) {
	write, remove := kv.KeyOp{Verb: kv.Set}, kv.KeyOp{Verb: kv.DeleteTree}
	both, alone := kv.Txn{Ops: []kv.TxnOp{{Key: &remove}, {Key: &write}}}, kv.Txn{Ops: []kv.TxnOp{{Key: &remove}, {Session: "s"}}}
	for _, tt := range []struct {
		op   kv.Op
		want bool
	}{
		{write, true}, {kv.KeyOp{Verb: kv.CAS}, true}, {kv.KeyOp{Verb: kv.Acquire}, true}, {kv.CreateSession{}, true},
		{both, true}, {kv.Once{Op: write}, true},
		{remove, false}, {kv.KeyOp{Verb: kv.Release}, false}, {alone, false},
		{kv.RenewSession{}, false}, {kv.DestroySession{}, false}, {kv.ReleasePermit{}, false}, {kv.Once{Op: remove}, false},
	} {
		expect.Equal(t, addsKeys(tt.op), tt.want, "%+v adds:", tt.op)
	}
	adds := func(op registry.Op) bool { return addsToRegistry(registry.FromClient, op) }
	expect.That(t, !adds(registry.Renew{}) && !adds(registry.Cancel{}) && adds(registry.Register{}), "registrations add, renewals and cancels do not")
	for _, low := range []func(*diskMeter) *atomic.Bool{
		func(d *diskMeter) *atomic.Bool { return &d.low }, func(d *diskMeter) *atomic.Bool { return &d.leaderLow },
	} {
		d := &diskMeter{Least: 1}
		low(d).Store(true)
		expect.ErrorIs(t, d.check(true), registry.ErrFull, "got")
	}
}

func TestFullDiskAcceptsWhatOtherServersSend(t *testing.T) {
	d := &diskMeter{Least: 1}
	d.low.Store(true)
	expect.OKf(t, d.check(addsToRegistry(registry.FromEureka, registry.Register{})),
		"a Eureka server's batch with renewals and one registration is refused")
}

// fixed is a service with one state.
type fixed struct {
	registry.Service
	view *registry.View
}

func (f fixed) View(context.Context, registry.Consistency) (*registry.View, error) {
	return f.view, nil
}

func (f fixed) Apply(_ context.Context, _ registry.Origin, ops ...registry.Op) ([]registry.Result, error) {
	return make([]registry.Result, len(ops)), nil
}

// fixedKV is coordination with one state.
type fixedKV struct {
	consul.Coordination
	view *kv.View
}

func (f fixedKV) View(context.Context, registry.Consistency) (*kv.View, error) { return f.view, nil }
func (f fixedKV) Apply(_ context.Context, ops ...kv.Op) ([]kv.Result, error) {
	return make([]kv.Result, len(ops)), nil
}

// everyNode is a catalog that has every node.
type everyNode struct{ kv.Catalog }

func (everyNode) HasNode(string) bool { return true }

// limitedServices returns the services over a state, made by operations at a level, with a counter of their own.
func limitedServices(t *testing.T, level byte, q config.Quota, of []registry.Op, ofKeys map[string][]kv.Op) (registry.Service, consul.Coordination, func(metric, reason string) float64) {
	t.Helper()
	r, s := registry.NewAt(1), kv.New(everyNode{})
	r.SetLevel(level)
	s.SetLevel(level)
	for _, op := range of {
		r.Apply(registry.Stamp{Lease: 1}, 1, registry.FromClient, op)
	}
	index := kv.Index(100)
	for by, ops := range ofKeys {
		for _, op := range ops {
			index++
			result := s.Apply(kv.At{Index: index, By: by}, op)
			need.That(t, result.OK, "%+v: %+v", op, result)
		}
	}
	limits := new(atomic.Pointer[config.Quota])
	limits.Store(&q)
	view := s.View()
	view.Registry = r.View()
	metrics := prometheus.NewRegistry()
	service, coordination := limitAdditions(&diskMeter{}, limits, fixed{view: r.View()}, fixedKV{view: view}, metrics)
	return service, coordination, func(metric, reason string) float64 {
		for _, f := range need.Got(metrics.Gather())(t) {
			for _, m := range f.GetMetric() {
				if f.GetName() == metric && m.GetLabel()[0].GetValue() == reason {
					return m.GetCounter().GetValue()
				}
			}
		}
		t.Fatalf("no %s of %s", metric, reason)
		return 0
	}
}

// What already has a name with invisible characters goes on; from level 3 on, new things may not have one.
func TestNewNamesHideNothing(t *testing.T) {
	const old, fresh = "old\u202egnp", "new\u200b"
	const session = "11111111-1111-1111-1111-111111111111"
	instance := func(app, id, vip string) registry.Op {
		return registry.Register{Instance: &registry.Instance{App: app, InstanceID: id, HostName: "h", VIP: vip}}
	}
	onNode := func(node, service, check string) registry.Op {
		op := registry.RegisterCatalog{Node: &catalog.Node{Name: node, Address: "10.1.1.1"}}
		if service != "" {
			op.Service = &catalog.Service{Name: service, ID: service, Node: node}
			op.Instance = &registry.Instance{App: strings.ToUpper(service), InstanceID: service}
		}
		if check != "" {
			op.Checks = []*catalog.Check{{ID: check, Name: check, Node: node}}
		}
		return op
	}
	lock := func(name string) kv.Op {
		return kv.AcquirePermit{Kind: kv.Lock, Name: name, Session: session, Limit: 1}
	}
	role := func(name string) kv.Op {
		return kv.Access{Change: access.Change{PutRoles: []*access.Role{{Name: name}}}}
	}
	of := []registry.Op{instance(strings.ToUpper(old), old, old), onNode(old, "", old)}
	ofKeys := map[string][]kv.Op{"": {kv.CreateSession{ID: session, Name: old}, lock(old), role(old)}}
	register := registry.RegisterCatalog(onNode("n", fresh, "").(registry.RegisterCatalog))
	for _, c := range []struct {
		what    string
		op      any
		refused bool
	}{
		{"an instance that is there", instance(strings.ToUpper(old), old, old), false},
		{"another one of an application that is there", instance(strings.ToUpper(old), "a", old), false},
		{"an application", instance("A\u202e", "a", ""), true},
		{"an instance", instance("A", fresh, ""), true},
		{"a VIP address of an instance that is there", instance(strings.ToUpper(old), old, "v,"+fresh), true},
		{"a node that is there, and its check", onNode(old, "", old), false},
		{"a node", onNode(fresh, "", ""), true},
		{"a service", onNode("n", fresh, ""), true},
		{"a check", onNode("n", "s", fresh), true},
		{"a service in a transaction", kv.Txn{Ops: []kv.TxnOp{{Catalog: &registry.CatalogOp{Register: &register}}}}, true},
		{"a session", kv.CreateSession{Name: fresh}, true},
		{"a session that is made once", kv.Once{Op: kv.CreateSession{Name: fresh}}, true},
		{"a lock that is held", lock(old), false},
		{"a lock", lock(fresh), true},
		{"a role that is there", role(old), false},
		{"a role", role(fresh), true},
		{"a token", kv.Access{Change: access.Change{Create: []*access.Token{{Name: fresh}}}}, true},
		{"a key", kv.KeyOp{Verb: kv.Set, Key: fresh}, false},
		{"a name in other letters", instance("ГРУЗ", "東京-1", "é"), false},
		{"a heartbeat", registry.Renew{Key: registry.NewKey(old, old)}, false},
		{"a removal", registry.Cancel{Key: registry.NewKey(old, old)}, false},
		{"a renewal of a session", kv.RenewSession{ID: session}, false},
		{"a release", kv.ReleasePermit{Kind: kv.Lock, Name: old, Session: session}, false},
	} {
		for level := byte(2); level <= 3; level++ {
			service, coordination, counted := limitedServices(t, level, config.Quota{StateBytes: 1 << 30, Sessions: 10, Nodes: 10}, of, ofKeys)
			var err error
			if op, is := c.op.(registry.Op); is {
				_, err = service.Apply(t.Context(), registry.FromClient, op)
				_, byPeer := service.Apply(t.Context(), registry.FromEureka, op)
				expect.OKf(t, byPeer, "%s, of a peer, at level %d", c.what, level)
			} else {
				_, err = coordination.Apply(t.Context(), c.op.(kv.Op))
			}
			expect.Equal(t, errors.Is(err, registry.ErrName), c.refused && level == 3, "%s at level %d, %v: it is refused:", c.what, level, err)
			expect.Equal(t, counted("rollcall_additions_would_refuse_total", byName) == 1, c.refused && level == 2, "%s at level %d is counted:", c.what, level)
			expect.Equal(t, counted("rollcall_additions_refused_total", byName) == 1, c.refused && level == 3, "%s at level %d is counted as refused:", c.what, level)
		}
	}
}

// One principal leaves room for the others, from level 3 on and with access control on.
func TestAPrincipalHasAShare(t *testing.T) {
	created := func(id string) kv.Op { return kv.CreateSession{ID: id, Name: strings.Repeat("n", 200)} }
	set := func(key string, bytes int) kv.Op { return kv.KeyOp{Verb: kv.Set, Key: key, Value: make([]byte, bytes)} }
	ofKeys := map[string][]kv.Op{
		"anna": {created("1"), created("2"), created("3"), created("4")},
		"bob":  {set("k", 40_000), set("k", 60_000)},
		"carl": {created("5"), set("j", 10_000)},
		"":     {created("6")},
	}
	q := config.Quota{StateBytes: 100_000, Sessions: 8, Nodes: 10, Share: 50}
	_, coordination, _ := limitedServices(t, 3, q, nil, ofKeys)
	v := need.Got(coordination.View(t.Context(), registry.Stale))(t)
	largest := largestUses(&q, v, 10)
	slices.SortFunc(largest, func(a, b principalUse) int { return strings.Compare(a.Limit+a.Principal, b.Limit+b.Principal) })
	expect.Equal(t, fmt.Sprint(largest), "[{limits.sessions anna 4} {limits.state-bytes bob 60132}]", "who has most")
	expect.Equal(t, len(largestUses(&q, v, 0)), 0, "of none at most:")
	for _, c := range []struct {
		by      string
		op      kv.Op
		share   int
		refused bool
	}{
		{"anna", created("9"), 50, true}, {"anna", kv.Once{Op: created("9")}, 50, true}, {"anna", created("9"), 51, true}, {"anna", created("9"), 63, false},
		{"anna", created("9"), 0, false}, {"anna", set("x", 1), 50, false}, {"anna", kv.RenewSession{ID: "1"}, 50, false}, {"anna", kv.DestroySession{ID: "1"}, 50, false},
		{"bob", set("k", 1), 50, true}, {"bob", created("9"), 50, true}, {"bob", kv.KeyOp{Verb: kv.Delete, Key: "k"}, 50, false}, {"bob", set("k", 1), 70, false},
		{"carl", created("9"), 50, false}, {"carl", set("k", 1), 50, false}, {"", created("9"), 50, false},
	} {
		for _, mode := range []access.Mode{access.Off, access.LogOnly, access.On} {
			for level := byte(2); level <= 3; level++ {
				q.Share = c.share
				_, coordination, counted := limitedServices(t, level, q, nil, ofKeys)
				ctx := access.Judged(access.As(t.Context(), access.Sender{Name: c.by}), access.Judge{Mode: mode, Refuses: func(access.Need) error { return nil }})
				_, err := coordination.Apply(ctx, c.op)
				knows := c.refused && (level == 3 || c.by == "anna") // below level 3 keys are nobody's
				refused := knows && level == 3 && mode == access.On
				expect.That(t, errors.Is(err, registry.ErrFull) == refused && (!refused || strings.Contains(err.Error(), "limits.principal-share")),
					"%s, %+v at %d %%, level %d and mode %s: %v, refused: %v", c.by, c.op, c.share, level, mode, err, refused)
				expect.Equal(t, counted("rollcall_additions_would_refuse_total", byShare) == 1, knows && !refused && mode != access.Off, "%s at %d %%, level %d and mode %s is counted:", c.by, c.share, level, mode)
				expect.Equal(t, counted("rollcall_additions_refused_total", byShare) == 1, refused, "%s at level %d and mode %s is counted as refused:", c.by, level, mode)
			}
		}
	}
}
