package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// atLevel returns a machine of a cluster that was founded at a level.
func atLevel(t testing.TB, level byte) *node {
	n := newNode(t)
	n.index++
	need.Got(n.m.Apply(n.index, term, AppendEstablish(nil, 1, Establish{Node: n.id.Node, Cluster: "c1", Level: level})))(t)
	return n
}

func (n *node) raise(to byte) {
	n.index++
	need.Got(n.m.Apply(n.index, term, AppendRaise(nil, to-1, to)))(n.t)
}

// Raising the level to 3 gives the peers' roles what they could do before, and says so; a cluster founded at level 3
// has no such roles.
func TestRiseGrantsThePeersTakeover(t *testing.T) {
	n := atLevel(t, 2)
	rule := need.Got(access.ParseRule("peer dc2 exchange"))(t)
	n.perform(Item{KV: kv.Access{Change: access.Change{PutRoles: []*access.Role{{Name: "peer", Rules: []access.Rule{rule}}}}}})
	before := n.m.KV().Access().Revision
	n.index++
	done := need.Got(n.m.Apply(n.index, term, AppendRaise(nil, 2, 3)))(t)
	after := n.m.KV().Access()
	expect.Slice(t, done.Granted, []string{"peer"}, "granted")
	expect.That(t, after.Role("peer").String() == "peer dc2 exchange,takeover" && after.Revision > before, "after the rise: %s, revision %d after %d", after.Role("peer"), after.Revision, before)
	restored := restoredFrom(t, snapshotOf(t, n.m))
	expect.Equal(t, restored.KV().Access().Role("peer").String(), "peer dc2 exchange,takeover", "after a restore")
	expect.Equal(t, Need(Item{KV: kv.Access{Change: access.Change{PutRoles: after.Roles}}}), byte(3), "a role with it needs level")
}

// follower returns a service with some alias checks on another one.
func follower(id, followed string, checks int) registry.RegisterCatalog {
	op := placed(id)
	for i := range checks {
		c := alias(id, followed)
		c.ID = fmt.Sprintf("%s-%d", c.ID, i)
		op.Checks = append(op.Checks, c)
	}
	return op
}

// filled returns a machine with a service that has as many followers as allowed.
func filled(t testing.TB, level byte) *node {
	n := atLevel(t, level)
	n.perform(op(placed("target", check("target", 0))))
	for i := range 20 {
		r := n.perform(op(follower(serviceID(i), "target", 50)))
		need.That(t, r.Registry[0].Outcome == registry.Done, "%d followers: %+v", 50*(i+1), r.Registry)
	}
	return n
}

func content(t testing.TB, n *node) []byte {
	m := snapshotOf(t, n.m)
	return m[len(snapshotMagic):]
}

func TestAliasBeyondTheBoundIsRefusedAndChangesNothing(t *testing.T) {
	for _, c := range []struct {
		name string
		ops  []registry.Op // the last one is refused
	}{
		{"one more", []registry.Op{follower("more", "target", 1)}},
		{"several of one registration, of which none is entered", []registry.Op{
			registry.DeregisterCatalog{Check: "alias-" + serviceID(0) + "-0"}, follower("more", "target", 2)}},
		{"below a follower", []registry.Op{follower("more", serviceID(3), 1)}},
		{"a chain, whose end comes last", []registry.Op{follower("b", "a", 1), follower("c", "b", 1), follower("a", "target", 1)}},
		{"above the target", []registry.Op{placed("top"), registry.RegisterCatalog{Checks: []*catalog.Check{{
			ID: "up", Service: "target", Type: "alias", Alias: &catalog.Alias{Service: "top"}}}}}},
		{"of the node, which all services follow", []registry.Op{registry.RegisterCatalog{Checks: []*catalog.Check{{
			ID: "of-node", Type: "alias", Alias: &catalog.Alias{Service: "target"}}}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := filled(t, codec.Newest)
			last := len(c.ops) - 1
			for _, o := range c.ops[:last] {
				r := n.perform(op(o))
				need.That(t, r.Registry[0].Outcome == registry.Done, "%+v: %+v", o, r.Registry)
			}
			index, figures := n.m.View().Index(), n.m.View().AliasFigures()
			expect.Equal(t, n.perform(op(c.ops[last])).Registry[0], registry.Result{Outcome: registry.TooMany}, "got")
			expect.That(t, n.m.View().Index() == index && figures.Refused.Load() == 1, "index %d, before %d; counted %d", n.m.View().Index(), index, figures.Refused.Load())
		})
	}
}

func TestAliasesThatStayWithinTheBoundAreAccepted(t *testing.T) {
	n := filled(t, codec.Newest)
	replaced := follower(serviceID(1), "target", 50)
	replaced.ReplaceChecks = true
	replaced.Checks[7].ID = "another-id"
	for _, o := range []registry.Op{
		follower(serviceID(1), "target", 50), // again, as at every start of its program
		replaced,
		follower("other", serviceID(1)+"-not-there", 50),
		registry.RegisterCatalog{Checks: []*catalog.Check{{ID: "aside", Service: "target", Type: "alias", Alias: &catalog.Alias{Service: "target"}}, {ID: "aside", Service: "target"}}},
	} {
		got := n.perform(op(o)).Registry[0]
		expect.That(t, got.Outcome == registry.Done, "%+v: %+v", o, got)
	}
}

// Each service has a sidecar on its node that follows it, which is what alias checks are for.
func TestAClusterOfSidecarsIsNoMatterOfTheBound(t *testing.T) {
	for _, name := range []string{"", "agent"} {
		n := atLevel(t, codec.Newest)
		onIt := func(o registry.RegisterCatalog) registry.RegisterCatalog {
			if name != "" {
				o.Node, o.KeepNode = &catalog.Node{Name: name, Address: "10.0.0.1"}, true
			}
			return o
		}
		for i := range 2 {
			n.performMany(1000, func(j int) Item { return op(onIt(placed(serviceID(1000*i+j), check(serviceID(1000*i+j), 0)))) })
			n.performMany(1000, func(j int) Item {
				return op(onIt(follower("sidecar-"+serviceID(1000*i+j), serviceID(1000*i+j), 1)))
			})
		}
		got := n.perform(op(onIt(follower("one-more", serviceID(0), 1)))).Registry[0]
		expect.That(t, got.Outcome == registry.Done && n.m.View().AliasFigures().Refused.Load() == 0 && n.m.View().Len() == 4001,
			"node %q: %+v, %d refused of %d", name, got, n.m.View().AliasFigures().Refused.Load(), n.m.View().Len())
	}
}

// Whoever may write nodes can do this: removing a node with its services makes alias checks on other nodes follow.
func TestAliasesOfOtherNodesOnANodeAreBounded(t *testing.T) {
	n := atLevel(t, codec.Newest)
	far := func(i, count int) registry.RegisterCatalog {
		o := follower(serviceID(i), "any", count)
		for j, c := range o.Checks {
			c.Alias = &catalog.Alias{Named: true, Node: "agent", Service: []string{"", "web"}[j%2]}
		}
		return o
	}
	for i := range 20 {
		r := n.perform(op(far(i, 50)))
		need.That(t, r.Registry[0].Outcome == registry.Done, "%+v", r.Registry)
	}
	got := n.perform(op(far(20, 1))).Registry[0]
	expect.That(t, got.Outcome == registry.TooMany, "one more: %+v", got)
}

func TestAliasBeyondTheBoundFailsATransaction(t *testing.T) {
	n := filled(t, codec.Newest)
	before := content(t, n)
	more := follower("more", "target", 1)
	r := n.perform(coordinates(kv.Txn{Ops: []kv.TxnOp{
		{Key: &kv.KeyOp{Verb: kv.Set, Key: "a"}},
		{Catalog: &registry.CatalogOp{Verb: registry.CatalogSet, Service: "more", Register: &more}},
	}})).KV[0]
	expect.That(t, len(r.Errors) == 1 && r.Errors[0].OpIndex == 1 && strings.Contains(r.Errors[0].What, "at most 1000 alias checks may follow"), "got %+v", r)
	expect.That(t, n.m.View().Len() == 21 && len(content(t, n)) < len(before)+1000, "the transaction left something: %d instances", n.m.View().Len())
}

// While a node of version 0.1.0 may apply the same entries, anything beyond the bounds is accepted and counted. It
// stays when the level rises, even through a snapshot, and new excess is then refused.
func TestBoundsHoldFromLevelTwoOn(t *testing.T) {
	n := filled(t, 1)
	withSessions(n, 1)
	n.performMany(kv.MaxEnding+1, func(i int) Item {
		return coordinates(kv.KeyOp{Verb: kv.Acquire, Key: keyName(i), Session: sessionID(0)})
	})
	n.performMany(kv.MaxDeleted+1, func(i int) Item { return coordinates(kv.KeyOp{Verb: kv.Set, Key: fmt.Sprintf("many/%06d", i)}) })
	r := n.perform(op(follower("more", "target", 1)))
	expect.That(t, r.Registry[0].Outcome == registry.Done, "at level 1: %+v", r.Registry)
	expect.Equal(t, n.m.View().AliasFigures().WouldRefuse.Load(), int64(1), "would be refused of alias checks:")
	expect.Equal(t, n.m.KV().Figures().WouldRefuse.Load(), int64(1), "would be refused of acquisitions:")
	n.raise(2)
	n.m = restoredFrom(t, snapshotOf(t, n.m))
	for _, c := range []struct {
		name    string
		item    Item
		refused bool
	}{
		{"an alias check that is new", op(follower("yet-more", "target", 1)), true},
		{"one that is there", op(follower("more", "target", 1)), false},
		{"an acquisition that is new", coordinates(kv.KeyOp{Verb: kv.Acquire, Key: "new", Session: sessionID(0)}), true},
		{"one that lasts, with another value", coordinates(kv.KeyOp{Verb: kv.Acquire, Key: keyName(7), Value: []byte("v"), Session: sessionID(0)}), false},
		{"a lock", coordinates(kv.AcquirePermit{Kind: kv.Lock, Name: "l", Session: sessionID(0)}), true},
		{"the deletion of a tree that is too large", coordinates(kv.KeyOp{Verb: kv.DeleteTree, Key: "many/"}), true},
		{"of a smaller one", coordinates(kv.KeyOp{Verb: kv.DeleteTree, Key: "many/00"}), false},
		{"the flip of what too many follow", op(registry.SetCheck{Check: check("target", 0).ID, Status: catalog.Critical}), false},
		{"the end of the session", coordinates(kv.DestroySession{ID: sessionID(0)}), false},
	} {
		r := n.perform(c.item)
		refused := r.Registry[0].Outcome == registry.TooMany || r.KV != nil && (r.KV[0].Refusal != "" || r.KV[0].Excess == kv.Crowded)
		expect.That(t, refused == c.refused && !(refused && (r.KV != nil && r.KV[0].Index != 0)), "%s: got %+v %+v, want refused: %v", c.name, r.Registry, r.KV, c.refused)
	}
	expect.Equal(t, n.m.View().AliasFigures().Largest.Load(), int64(1001), "set in motion:")
}

func TestWhatEndsWithACheckIsBounded(t *testing.T) {
	n := atLevel(t, codec.Newest)
	n.perform(op(placed("one", check("one", 0))))
	create := func(i int) Item {
		return coordinates(kv.CreateSession{ID: sessionID(i), ServiceChecks: []string{check("one", 0).ID}})
	}
	n.performMany(100, create)
	permit := func(i int) Item {
		return coordinates(kv.AcquirePermit{Kind: kv.Semaphore, Name: fmt.Sprint("s", i/100), Session: sessionID(i % 100), Limit: 50, Wait: 60_000})
	}
	n.performMany(kv.MaxEnding-100, permit)
	refused := func(item Item) bool {
		r := n.perform(item).KV[0]
		return r.Refusal != "" && r.Excess == kv.Crowded && r.Index == 0
	}
	expect.That(t, refused(create(100)), "one session more was not refused")
	expect.That(t, refused(permit(kv.MaxEnding)), "one permit more was not refused")
	expect.That(t, !refused(permit(0)), "a permit that is held was refused")
	n.perform(coordinates(kv.ReleasePermit{Kind: kv.Semaphore, Name: "s0", Session: sessionID(0)}))
	expect.That(t, !refused(permit(kv.MaxEnding)), "a permit was refused after another was released")
	expect.That(t, refused(create(100)), "the place that was free is there twice")
	n.perform(op(registry.SetCheck{Check: check("one", 0).ID, Status: catalog.Critical}))
	expect.Equal(t, n.m.KV().SessionCount(), 0, "sessions after their check turned critical:")
	n.perform(op(registry.SetCheck{Check: check("one", 0).ID, Status: catalog.Passing}))
	expect.That(t, !refused(create(100)), "a session was refused although all ended")
}

func TestAQueueIsBounded(t *testing.T) {
	n := atLevel(t, codec.Newest)
	withSessions(n, kv.MaxQueue+2)
	wait := func(i int) Item {
		return coordinates(kv.AcquirePermit{Kind: kv.Lock, Name: "queue", Session: sessionID(i), Wait: 600_000})
	}
	n.performMany(kv.MaxQueue+1, wait)
	r := n.perform(wait(kv.MaxQueue + 1)).KV[0]
	expect.That(t, strings.Contains(r.Refusal, "5000 sessions wait") && r.Index == 0, "one more waits: %+v", r)
	r = n.perform(wait(kv.MaxQueue)).KV[0]
	expect.That(t, r.Refusal == "" && r.Place == kv.MaxQueue, "the last one asks again: %+v", r)
}

func TestTransactionsAreBoundedTogether(t *testing.T) {
	n := atLevel(t, codec.Newest)
	n.performMany(kv.MaxDeleted+1, func(i int) Item { return coordinates(kv.KeyOp{Verb: kv.Set, Key: keyName(i)}) })
	n.performMany(registry.MaxRemoved+1, func(i int) Item { return op(onNode("far", i)) })
	tree := func(prefix string) kv.TxnOp { return kv.TxnOp{Key: &kv.KeyOp{Verb: kv.DeleteTree, Key: prefix}} }
	for _, c := range []struct {
		name string
		ops  []kv.TxnOp
		want string // "": it succeeds
	}{
		{"two prefixes that are too much together", []kv.TxnOp{tree("tree/0000"), tree("tree/0001"), tree("tree/000"), tree("tree/00")}, "may delete 10000 keys"},
		{"a node that has too much", []kv.TxnOp{{Catalog: &registry.CatalogOp{Verb: registry.CatalogDelete, Node: "far"}}}, "more than 2500 services"},
		{"a node that changes too much", []kv.TxnOp{{Catalog: &registry.CatalogOp{Verb: registry.CatalogSet, Node: "far",
			Register: &registry.RegisterCatalog{Node: &catalog.Node{Name: "far", Address: "10.0.0.9"}}}}}, "may make 2500 changes"},
		{"one prefix within the bound", []kv.TxnOp{tree("tree/0000")}, ""},
	} {
		keys := n.m.KV().Bytes()
		r := n.perform(coordinates(kv.Txn{Ops: c.ops})).KV[0]
		if c.want == "" {
			expect.That(t, r.OK, "%s: %+v", c.name, r)
			continue
		}
		expect.That(t, len(r.Errors) > 0 && strings.Contains(r.Errors[len(r.Errors)-1].What, c.want) && n.m.KV().Bytes() == keys && n.m.View().Len() == registry.MaxRemoved+1, "%s: %+v", c.name, r)
	}
}

// flips returns a transaction that changes the status of a check of the service "target" some times.
func flips(times int) Item {
	var ops []kv.TxnOp
	for i := range times {
		c := *check("target", 0)
		c.Status = []catalog.CheckStatus{catalog.Critical, catalog.Passing}[i%2]
		ops = append(ops, kv.TxnOp{Catalog: &registry.CatalogOp{Verb: registry.CatalogSet, Check: c.ID, Register: &registry.RegisterCatalog{Checks: []*catalog.Check{&c}}}})
	}
	return coordinates(kv.Txn{Ops: ops})
}

// Alias checks of few services make few changes: following has its own bound, and so has the counting of new ones.
func TestAliasChecksThatFollowATransactionAreBounded(t *testing.T) {
	n := filled(t, 1)
	lower := n.perform(flips(8)).KV[0]
	expect.That(t, lower.OK, "at level 1: %+v", lower)
	n.raise(2)
	for times, ok := range map[int]bool{2: true, 3: false, 128: false} {
		before := n.m.View().Index()
		r := n.perform(flips(times)).KV[0]
		expect.That(t, r.OK == ok && (ok || len(r.Errors) == 1 && strings.Contains(r.Errors[0].What, "alias checks follow") && n.m.View().Index() == before), "%d changes of what 1,000 follow: %+v", times, r)
	}
	n = atLevel(t, 2)
	n.perform(op(placed("target")), op(placed("x")))
	n.performMany(18, func(i int) Item { return op(follower(serviceID(i), "target", 50)) })
	for fresh, ok := range map[int]bool{10: true, 50: false} {
		var ops []kv.TxnOp
		for i := range fresh {
			c := alias("x", "target")
			c.ID = fmt.Sprint("x-", i)
			ops = append(ops, kv.TxnOp{Catalog: &registry.CatalogOp{Verb: registry.CatalogSet, Check: c.ID, Register: &registry.RegisterCatalog{Checks: []*catalog.Check{c}}}})
		}
		r := n.perform(coordinates(kv.Txn{Ops: ops})).KV[0]
		expect.That(t, r.OK == ok && (ok || strings.Contains(r.Errors[0].What, "steps to count")), "%d alias checks on what 900 follow: %+v", fresh, r)
	}
}
