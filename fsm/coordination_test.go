package fsm

import (
	"reflect"
	"slices"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// writeKV applies operations of coordination as the next batch.
func (n *node) writeKV(ops ...kv.Op) []kv.Result {
	n.t.Helper()
	n.id.Seq++
	r := n.apply(n.batchKV(ops...)).Batches[0]
	if r.Refused || len(r.KV) != len(ops) || len(r.Registry) != len(ops) {
		n.t.Fatalf("batch %+v: got %+v, want %d results", n.id, r, len(ops))
	}
	return r.KV
}

func (n *node) batchKV(ops ...kv.Op) []byte {
	items := make([]Item, len(ops))
	for i, op := range ops {
		items[i] = Item{KV: op}
	}
	return AppendBatch(nil, codec.Newest, n.id, items)
}

// checkedService registers a service with one check that expects heartbeats.
func checkedService(status catalog.CheckStatus) registry.Op {
	s := &catalog.Service{Name: "shop", ID: "web", Node: "db-1"}
	return registry.RegisterCatalog{Node: &catalog.Node{Name: "db-1", Address: "192.0.2.7"}, Service: s, Instance: instance("SHOP", "db-1:web"),
		Checks: []*catalog.Check{{Node: "db-1", ID: "alive", Service: "web", Type: "ttl", TTL: 10_000, Status: status}}}
}

var (
	linkedSession = kv.CreateSession{ID: "s1", Node: "db-1", ServiceChecks: []string{"alive"}}
	heldKey       = kv.KeyOp{Verb: kv.Acquire, Key: "k", Session: "s1"}
)

func TestMachineNumbersChangesOfRegistryAndKeysByOneCounter(t *testing.T) {
	n := newNode(t)
	n.id.Seq = 1
	items := []Item{
		{Op: registry.Register{Instance: instance("ORDERS", "1")}},
		{KV: kv.KeyOp{Key: "a", Value: []byte("1")}},
		{KV: kv.KeyOp{Verb: kv.CAS, Key: "a", Index: 77}}, // refused
		{KV: kv.KeyOp{Key: "b"}},
		{Op: registry.Register{Instance: instance("ORDERS", "2")}},
		{KV: kv.KeyOp{Key: "c"}},
	}
	r := n.apply(AppendBatch(nil, codec.Newest, n.id, items)).Batches[0]
	var got []uint64
	for i := range items {
		got = append(got, uint64(r.Registry[i].Index)+uint64(r.KV[i].Index))
	}
	expect.Slice(t, got, []uint64{2, 3, 0, 4, 5, 6}, "indexes")
	if v, k := n.m.View(), n.m.KV(); v.Index() != 5 || k.Index() != 6 {
		t.Errorf("the registry's view is at %d, that of coordination at %d, want 5 and 6: documents cached by the former are not to be lost by a write to a key", v.Index(), k.Index())
	}
}

func TestMachineHasNoResultsOfCoordinationForABatchWithoutIt(t *testing.T) {
	n := newNode(t)
	n.id.Seq = 1
	r := n.apply(n.batch(registry.Cancel{Key: goldenKey})).Batches[0]
	expect.That(t, r.KV == nil, "got %+v, want none of coordination", r)
}

func TestMachineRepeatsResultsOfCoordinationWithoutEffect(t *testing.T) {
	n := newNode(t)
	n.id.Seq = 1
	set := n.batchKV(kv.KeyOp{Verb: kv.CAS, Key: "a", Value: []byte("1")}, keyTxn([]kv.KeyOp{{Verb: kv.Get, Key: "a"}}))
	first := n.apply(set).Batches[0]
	need.That(t, first.KV[0].OK && len(first.KV[1].Pairs) == 1, "got %+v, want the key set and read", first)
	restored := restoredFrom(t, snapshotOf(t, n.m))
	for name, m := range map[string]*Machine{"the same node": n.m, "one that was restored": restored} {
		other := &node{t: t, m: m, id: n.id, index: n.index, stamp: n.stamp}
		if again := other.apply(set).Batches[0]; !reflect.DeepEqual(again, first) || m.KV().Index() != first.KV[0].Index {
			t.Errorf("%s: got %+v at index %d, want %+v", name, again, m.KV().Index(), first)
		}
	}
}

func TestMachineEndsSessionsOfALostCheckUnderTheSameIndex(t *testing.T) {
	for name, op := range map[string]registry.Op{
		"turned critical":          registry.SetCheck{Node: "db-1", Check: "alive", Status: catalog.Critical},
		"deregistered":             registry.DeregisterCatalog{Node: "db-1", Check: "alive"},
		"gone with its service":    registry.DeregisterCatalog{Node: "db-1", Service: "web"},
		"gone with its node":       registry.DeregisterCatalog{Node: "db-1"},
		"gone with its instance":   registry.Cancel{Key: registry.Key{App: "SHOP", ID: "db-1:web"}},
		"registered as critical":   checkedService(catalog.Critical),
		"replaced by a Eureka one": registry.Register{Instance: instance("SHOP", "db-1:web")},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.write(checkedService(catalog.Passing))
			n.writeKV(linkedSession, heldKey)
			n.id.Seq++
			done := n.apply(n.batch(op))
			index := done.Batches[0].Registry[0].Index
			e, _ := n.m.KV().Get("k")
			s, at := n.m.KV().Session("s1")
			expect.That(t, index != 0 && s == nil && at == index && e.Session == "" && e.ModifyIndex == index,
				"session %+v, changed at %d, key %+v, want neither session nor holder since %d", s, at, e, index)
			for _, topic := range []kv.Topic{{Kind: kv.SessionsTopic}, {Kind: kv.KeyTopic, Name: "k"}} {
				expect.That(t, slices.Contains(done.Touched, topic), "touched %+v, want %+v among them", done.Touched, topic)
			}
			got := n.m.registry.Next()
			expect.That(t, got > index, "the next index is %d, want one above %d", got, index)
		})
	}
}

// Today, no operation loses something without a change of its own.
func TestMachineTakesAnIndexForALossWithoutOne(t *testing.T) {
	for _, linked := range []bool{true, false} {
		n := newNode(t)
		n.write(checkedService(catalog.Passing))
		if linked {
			n.writeKV(linkedSession)
		}
		n.m.registry.Apply(n.stamp, term, registry.FromClient, registry.SetCheck{Node: "db-1", Check: "alive", Status: catalog.Critical})
		next := n.m.registry.Next()
		n.m.lose(term, 0)
		want := next
		if linked {
			want++
		}
		expect.Equal(t, n.m.registry.Next(), want, "with a session that ends: %t: the next index is", linked)
	}
}

func TestMachineGivesCoordinationTheTimeOfTheRegistry(t *testing.T) {
	n := newNode(t)
	n.write(registry.Register{Instance: instance("ORDERS", "1")})
	clock := n.stamp
	for name, stamp := range map[string]registry.Stamp{
		"back":                  {Lease: clock.Lease - 500, Wall: clock.Wall - 500},
		"ahead by hours":        {Lease: clock.Lease + 5*3_600_000, Wall: clock.Wall},
		"ahead by hours, alone": {Lease: clock.Lease + 5*3_600_000},
	} {
		n.stamp = stamp
		s := n.writeKV(kv.CreateSession{ID: name})[0].Session
		expect.That(t, s.CreatedAt == clock.Lease && s.CreatedWall == n.m.registry.Clock().Wall && n.m.KV().Lease() == clock.Lease,
			"%s: created at %d and %d, at a lease clock of %d, want %+v", name, s.CreatedAt, s.CreatedWall, n.m.KV().Lease(), clock)
	}
	n.stamp = clock
	n.stamp.Lease += 1500
	n.apply()
	expect.That(t, n.m.KV().Lease() == n.stamp.Lease, "the lease clock is at %d after a tick, want %d", n.m.KV().Lease(), n.stamp.Lease)
}

func TestMachineNeedsTheClockWhileSomethingWaitsForIt(t *testing.T) {
	for _, c := range []struct {
		name string
		item Item
		want bool
	}{
		{"lease", Item{Op: registry.Register{Instance: instance("ORDERS", "1")}}, true},
		{"session with a TTL", Item{KV: kv.CreateSession{ID: "s1", TTL: 5000}}, true},
		{"session without", Item{KV: kv.CreateSession{ID: "s1"}}, false},
		{"key", Item{KV: kv.KeyOp{Key: "k"}}, false},
		{"service whose check expects heartbeats", Item{Op: checkedService(catalog.Passing)}, true},
		{"service without checks", Item{Op: registry.RegisterCatalog{Service: &catalog.Service{Name: "orders", ID: "1"}, Instance: instance("ORDERS", "1")}}, false},
	} {
		n := newNode(t)
		expect.That(t, !n.m.NeedsClock(), "%s: needed before", c.name)
		n.id.Seq = 1
		n.apply(AppendBatch(nil, codec.Newest, n.id, []Item{c.item}))
		expect.Equal(t, n.m.NeedsClock(), c.want, "%s: got", c.name)
	}
}

func TestRestoreLetsCoordinationAskTheRestoredRegistry(t *testing.T) {
	n := newNode(t)
	n.write(checkedService(catalog.Passing))
	n.writeKV(kv.KeyOp{Key: "a"})
	n.m = restoredFrom(t, snapshotOf(t, n.m))
	r := n.writeKV(linkedSession)[0]
	expect.That(t, r.OK, "got %+v, want a session of the node and check that the snapshot has", r)
}

// writeItems applies items as the next batch.
func (n *node) writeItems(items ...Item) BatchResult {
	n.t.Helper()
	n.id.Seq++
	return n.apply(AppendBatch(nil, codec.Newest, n.id, items)).Batches[0]
}

var (
	anna = access.Sender{Accessor: "aaaaaaaaaaaaaaaa", Name: "anna"}
	bob  = access.Sender{Accessor: "bbbbbbbbbbbbbbbb", Name: "bob"}
)

func newGovernedNode(t *testing.T) *node {
	t.Helper()
	n := newNode(t)
	n.establish()
	made := n.writeItems(Item{KV: kv.Access{Change: access.Change{
		PutRoles: []*access.Role{{Name: "all", Rules: access.Everything()}},
		Create: []*access.Token{
			{Accessor: anna.Accessor, Name: anna.Name, Roles: []string{"all"}, Secrets: []access.Secret{{}}},
			{Accessor: bob.Accessor, Name: bob.Name, Roles: []string{"all"}, Secrets: []access.Secret{{}}},
		},
	}}})
	if made.KV[0].Refusal != "" {
		t.Fatal(made.KV[0].Refusal)
	}
	return n
}

func TestOperationOfARevokedTokenIsRefusedWhenItIsApplied(t *testing.T) {
	n := newGovernedNode(t)
	register := registry.Register{Instance: instance("A", "i1")}
	put := kv.KeyOp{Verb: kv.Set, Key: "k", Value: []byte("v")}
	n.writeItems(Item{KV: kv.Access{Change: access.Change{Revoke: []string{anna.Accessor}}}})
	narrowed := bob
	narrowed.Judged = n.m.KV().Access().Revision
	const ofAll, ofBob = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"
	n.writeItems(Item{KV: kv.CreateSession{ID: ofAll}, By: access.Sender{Name: "carl"}}, Item{KV: kv.CreateSession{ID: ofBob}, By: bob},
		Item{KV: kv.Access{Change: access.Change{Sure: true, PutRoles: []*access.Role{{Name: "all", Rules: []access.Rule{need.Got(access.ParseRule("session write"))(t)}}}}}})
	before := n.m.View().Index()
	of := registry.FromClient
	got := n.writeItems(Item{Op: register, Origin: of, By: anna}, Item{Op: register, Origin: of, By: narrowed}, Item{KV: put, By: anna}, Item{KV: put, By: narrowed},
		Item{KV: kv.DestroySession{ID: ofAll}, By: narrowed})
	for i := range got.Registry {
		expect.That(t, got.Registry[i].Outcome == registry.Revoked || got.KV[i].Revoked && !got.KV[i].OK, "operation %d, of a token that was revoked or narrowed: %+v", i, got)
	}
	expect.That(t, n.m.View().Index() == before && n.m.View().Len() == 0, "it changed the state")
	done := n.writeItems(Item{KV: kv.DestroySession{ID: ofBob}, By: narrowed}, Item{KV: put, By: bob})
	expect.That(t, done.KV[0].OK && done.KV[1].OK, "what the role allows still, and what no node has judged: %+v", done)
	got = n.writeItems(Item{Op: register, Origin: registry.FromClient, By: bob}, Item{KV: put, By: bob})
	expect.That(t, got.Registry[0].Outcome == registry.Done && got.KV[1].OK, "of the other token: %+v", got)
}

func TestIdempotencyKeyIsThatOfOnePrincipal(t *testing.T) {
	n := newGovernedNode(t)
	add := func(by access.Sender, value string) kv.Result {
		return n.writeItems(Item{KV: kv.Once{Key: "key", Op: kv.KeyOp{Verb: kv.Set, Key: by.Name, Value: []byte(value)}}, By: by}).KV[0]
	}
	expect.That(t, add(anna, "1").OK, "the first is not done")
	expect.That(t, add(anna, "2").Refusal != "", "another operation under the same key is done")
	expect.That(t, add(bob, "3").OK, "the same key of another principal is refused")
}

func TestSessionBelongsToThePrincipalThatMadeIt(t *testing.T) {
	n := newGovernedNode(t)
	const ofAnna, ofEveryone = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"
	n.writeItems(Item{KV: kv.CreateSession{ID: ofAnna}, By: anna}, Item{KV: kv.CreateSession{ID: ofEveryone}})
	v := n.m.KV()
	expect.That(t, v.Owner(ofAnna) == "anna" && v.Owner(ofEveryone) == "" && v.Owner("x") == "", "owners are %q, %q and %q",
		v.Owner(ofAnna), v.Owner(ofEveryone), v.Owner("x"))
}

// What a principal adds to an operation is the token's accessor, its name, and from level 3 on the revision that
// judged it.
func TestPrincipalOfAnOperationTakesItsBytes(t *testing.T) {
	written := func(by access.Sender) int {
		cancel := registry.Cancel{Key: registry.NewKey("A", "i1")}
		return len(AppendBatch(nil, codec.Newest, BatchID{Node: "n1"}, []Item{{Op: cancel, Origin: registry.FromClient, By: by}}))
	}
	more := written(anna) - written(access.Sender{})
	expect.That(t, more > 0 && more <= len(anna.Accessor)+len(anna.Name)+3, "an operation has %d bytes more", more)
}
