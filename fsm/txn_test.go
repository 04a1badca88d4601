package fsm

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/order"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// keyTxn returns a transaction of operations on keys.
func keyTxn(ops []kv.KeyOp) kv.Txn {
	txn := kv.Txn{Ops: make([]kv.TxnOp, len(ops))}
	for i := range ops {
		txn.Ops[i].Key = &ops[i]
	}
	return txn
}

// txn draws a transaction on the twins' few keys, sessions, nodes, services and checks.
func (tw *twins) txn(t *rapid.T) kv.Txn {
	return kv.Txn{Ops: rapid.SliceOfN(rapid.Custom(tw.txnOp), 0, 5).Draw(t, "ops")}
}

func (tw *twins) txnOp(t *rapid.T) kv.TxnOp {
	switch rapid.IntRange(0, 9).Draw(t, "of") {
	case 0, 1, 2:
		op := tw.keyOp(t)
		return kv.TxnOp{Key: &op}
	case 3:
		return kv.TxnOp{Session: rapid.SampledFrom(twinSessions).Draw(t, "session")}
	}
	op := tw.catalogTxnOp(t)
	return kv.TxnOp{Catalog: &op}
}

func (tw *twins) catalogTxnOp(t *rapid.T) registry.CatalogOp {
	op := registry.CatalogOp{Verb: gen[registry.CatalogVerb]().Draw(t, "verb"), Node: rapid.SampledFrom(twinNodes).Draw(t, "node")}
	set := registry.RegisterCatalog{KeepNode: true}
	if op.Node != "" {
		set.Node = &catalog.Node{Name: op.Node}
	}
	switch rapid.IntRange(0, 2).Draw(t, "of") {
	case 0:
		if set.KeepNode = false; set.Node != nil {
			set.Node.Address = rapid.SampledFrom([]string{"192.0.2.1", "192.0.2.2"}).Draw(t, "address")
		}
	case 1:
		set.Service, set.Instance = twinService(op.Node, rapid.SampledFrom(twinServices).Draw(t, "service"))
		op.Service = set.Service.ID
	case 2:
		op.Check = rapid.SampledFrom(twinChecks).Draw(t, "check")
		set.Checks = []*catalog.Check{{Node: op.Node, ID: op.Check, Status: catalog.CheckStatus(rapid.ByteMax(byte(catalog.Critical)).Draw(t, "status")),
			Service: rapid.SampledFrom(append(twinServices, "", "1")).Draw(t, "ofService"), TTL: rapid.SampledFrom([]int64{0, 5000}).Draw(t, "ttl")}}
		aliased(t, set.Checks[0])
	}
	if rapid.Bool().Draw(t, "right index") {
		op.Index = tw.modified(op)
	}
	if op.Verb == registry.CatalogSet || op.Verb == registry.CatalogCAS {
		op.Register = &set
	}
	return op
}

// modified returns the ModifyIndex of what an operation is about, or 0 if it does not exist.
func (tw *twins) modified(op registry.CatalogOp) registry.Index {
	op.Verb = registry.CatalogGet
	f := tw.straight.View().ReadInTxn(op).Found
	switch {
	case f == nil:
		return 0
	case f.Node != nil:
		return f.Node.ModifyIndex
	case f.Check != nil:
		return f.Check.ModifyIndex
	case f.Service.Service != nil:
		return f.Service.Service.ModifyIndex
	}
	return f.Service.Defined
}

// state returns everything a machine has except what it remembers of batches.
func state(t *rapid.T, m *Machine) []byte {
	s := m.Snapshot().whole()
	s.index, s.nodes = 0, nil
	return encoded(t, s)
}

// transact applies a transaction and compares its effect with that of its operations one by one: with all of it if
// all succeed, else with nothing.
func (tw *twins) transact(t *rapid.T) {
	txn := tw.txn(t)
	tw.apply(t, nil) // the effects of time come first
	before := state(t, tw.straight)
	singly := tw.singly(t, txn)
	done := tw.both(t, AppendWrite(nil, codec.Newest, tw.stamp, 0, tw.batch(t, []Item{{KV: txn}})))
	got := done.Batches[0].KV[0]
	after := state(t, tw.straight)
	if !got.OK {
		need.That(t, bytes.Equal(before, after), "%+v failed with %+v, and changed the state:\n%x\n%x", txn, got.Errors, before, after)
		need.That(t, len(done.Touched) == 0, "%+v failed, and woke %+v", txn, done.Touched)
	}
	if delayed := slices.ContainsFunc(got.Errors, func(e kv.TxnError) bool { return strings.HasSuffix(e.What, "due to lock delay") }); !delayed {
		need.Slice(t, withoutIndex(got.Errors), singly.errs, "errors of %+v, beside those of its operations one by one:", txn)
	}
	if got.OK {
		need.That(t, got.Index == 0 || bytes.Equal(after, before) == false, "%+v took index %d, and changed nothing", txn, got.Index)
		need.Deep(t, withoutIndexes(t, after), withoutIndexes(t, singly.state), "after %+v the state is not that after its operations one by one", txn)
		need.Deep(t, zeroIndexes(got.Found), zeroIndexes(singly.found), "found by %+v, beside what its operations find one by one:", txn)
	}
}

// performed is the result of the operations of a transaction, performed one by one.
type performed struct {
	state []byte
	errs  []kv.TxnError
	found []kv.Found
}

// singly performs the operations of a transaction one by one, on a copy.
func (tw *twins) singly(t *rapid.T, txn kv.Txn) (p performed) {
	m, pairs := restoredFrom(t, snapshotOf(t, tw.straight)), 0
	for i, op := range txn.Ops {
		r := m.perform1(tw.term, tw.stamp, kv.Txn{Ops: []kv.TxnOp{op}})
		for _, e := range r.Errors {
			p.errs = append(p.errs, kv.TxnError{OpIndex: i, What: withoutIndex([]kv.TxnError{e})[0].What})
		}
		for _, f := range r.Found {
			f.Pairs = pairs
			p.found = append(p.found, f)
		}
		pairs += len(r.Pairs)
	}
	p.state = state(t, m)
	return p
}

// withoutIndex returns errors without the index that some of them name.
func withoutIndex(errs []kv.TxnError) (all []kv.TxnError) {
	for _, e := range errs {
		e.What, _, _ = strings.Cut(e.What, "current modify index")
		all = append(all, e)
	}
	return all
}

// perform1 performs one operation of coordination as an entry would.
func (m *Machine) perform1(term uint64, stamp registry.Stamp, op kv.Op) kv.Result {
	m.registry.Advance(stamp)
	m.kv.Advance(stamp.Lease)
	results := m.perform(term, stamp, []Item{{KV: op}})
	m.publish(m.Index())
	return results.KV[0]
}

// withoutIndexes returns a state with every index set to 0: operations one by one take more of them.
func withoutIndexes(t *rapid.T, state []byte) Snapshot {
	return zeroIndexes(need.Got(readSnapshot(bytes.NewReader(state)))(t))
}

// zeroIndexes sets every index to 0 in a value that was just read, or is copied here.
func zeroIndexes[T any](value T) T {
	v := reflect.New(reflect.TypeOf(value)).Elem()
	v.Set(reflect.ValueOf(value))
	zero(v)
	return v.Interface().(T)
}

func zero(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return
		}
		if v.CanSet() { // what a state holds is immutable
			c := reflect.New(v.Type().Elem())
			c.Elem().Set(v.Elem())
			v.Set(c)
		}
		zero(v.Elem())
	case reflect.Struct:
		for _, at := range v.Fields() {
			zero(exposed(at))
		}
	case reflect.Slice:
		if v.CanSet() && !v.IsNil() {
			v.Set(reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, v.Len()), v))
		}
		for i := range v.Len() {
			zero(v.Index(i))
		}
	case reflect.Uint64:
		if v.CanSet() && v.Type() == reflect.TypeFor[kv.Index]() {
			v.SetUint(0)
		}
	}
}

// exposed returns a field that can be set, exported or not.
func exposed(v reflect.Value) reflect.Value {
	if v.CanSet() || !v.CanAddr() {
		return v
	}
	return reflect.NewAt(v.Type(), v.Addr().UnsafePointer()).Elem()
}

// The twins also stay equal, whichever goes through snapshots.
func TestTransactionDoesAllThatItsOperationsDoOrNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tw := newTwins()
		tw.establish(t)
		actions := tw.actions()
		actions["transact 2"], actions["transact 3"] = tw.transact, tw.transact
		t.Repeat(actions)
		tw.compare(t)
	})
}

// setTxnCheck returns the operation of a transaction that sets a check of node db-1.
func setTxnCheck(id, service string, status catalog.CheckStatus) kv.TxnOp {
	return kv.TxnOp{Catalog: &registry.CatalogOp{Verb: registry.CatalogSet, Node: "db-1", Check: id, Register: &registry.RegisterCatalog{
		Node: &catalog.Node{Name: "db-1"}, KeepNode: true, Checks: []*catalog.Check{{Node: "db-1", ID: id, Service: service, Status: status}}}}}
}

func getTxn(node, service, check string) kv.TxnOp {
	return kv.TxnOp{Catalog: &registry.CatalogOp{Node: node, Service: service, Check: check}}
}

// Each refusal, at each place among operations that would succeed.
func TestTransactionOfWhichOneOperationIsRefusedChangesNothing(t *testing.T) {
	key := func(op kv.KeyOp) kv.TxnOp { return kv.TxnOp{Key: &op} }
	at := func(op registry.CatalogOp) kv.TxnOp { return kv.TxnOp{Catalog: &op} }
	node := &catalog.Node{Name: "db-1", Address: "192.0.2.8"}
	good := []kv.TxnOp{
		key(kv.KeyOp{Verb: kv.Set, Key: "new", Value: []byte("1")}),
		at(registry.CatalogOp{Verb: registry.CatalogSet, Node: "db-1", Register: &registry.RegisterCatalog{Node: node}}),
		setTxnCheck("alive", "web", catalog.Critical), // which ends the session, and takes its key
		at(registry.CatalogOp{Verb: registry.CatalogDelete, Node: "db-1", Service: "none"}),
	}
	for what, bad := range map[string]kv.TxnOp{
		`key "none" doesn't exist`:                                       key(kv.KeyOp{Verb: kv.Get, Key: "none"}),
		`node "db-9" doesn't exist`:                                      getTxn("db-9", "", ""),
		`service "none" on node "db-1" doesn't exist`:                    getTxn("db-1", "none", ""),
		`check "none" on node "rollcall" doesn't exist`:                  getTxn("", "", "none"),
		`failed to set node "db-1", index is stale`:                      at(registry.CatalogOp{Verb: registry.CatalogCAS, Node: "db-1", Register: &registry.RegisterCatalog{Node: node}}),
		`failed to delete node "db-1", index is stale`:                   at(registry.CatalogOp{Verb: registry.CatalogDeleteCAS, Node: "db-1", Index: 99}),
		`failed to delete service "none" on node "db-1", index is stale`: at(registry.CatalogOp{Verb: registry.CatalogDeleteCAS, Node: "db-1", Service: "none"}),
		`failed to delete check "none" on node "db-1", index is stale`:   at(registry.CatalogOp{Verb: registry.CatalogDeleteCAS, Node: "db-1", Check: "none"}),
		`Missing service registration`:                                   setTxnCheck("other", "none", catalog.Passing),
		`Missing node registration`: at(registry.CatalogOp{Verb: registry.CatalogSet, Node: "db-9", Check: "c", Register: &registry.RegisterCatalog{
			Node: &catalog.Node{Name: "db-9"}, KeepNode: true, Checks: []*catalog.Check{{ID: "c"}}}}),
		`node "rollcall" stands for the cluster itself and is not deleted`: at(registry.CatalogOp{Verb: registry.CatalogDelete}),
		`unknown operation type`: {},
	} {
		for place := range len(good) + 1 {
			t.Run(fmt.Sprintf("%s at %d", strings.ReplaceAll(what, "/", " "), place), func(t *testing.T) {
				n := newNode(t)
				n.write(checkedService(catalog.Passing))
				n.writeKV(linkedSession, heldKey)
				before := n.whole()
				r := n.writeKV(kv.Txn{Ops: slices.Insert(slices.Clone(good), place, bad)})[0]
				want := []kv.TxnError{{OpIndex: place, What: what}}
				expect.That(t, !r.OK && slices.Equal(r.Errors, want), "got %+v, want the errors %+v", r, want)
				expect.Slice(t, n.whole(), before, "the state, beside that before:")
				r = n.writeKV(kv.Txn{Ops: good})[0]
				expect.That(t, r.OK && r.Errors == nil, "without it: %+v, want it done", r)
			})
		}
	}
}

// whole returns the state without the memory of batches.
func (n *node) whole() []byte {
	s := n.m.Snapshot().whole()
	s.index, s.nodes = 0, nil
	s.registry.Clock, s.kv.Lease = registry.Stamp{}, 0
	return encoded(n.t, s)
}

func TestTransactionSeesWhatItsOperationsBeforeHaveDone(t *testing.T) {
	n := newNode(t)
	n.write(checkedService(catalog.Passing))
	n.writeKV(linkedSession, heldKey)
	r := n.writeKV(kv.Txn{Ops: []kv.TxnOp{
		{Key: &kv.KeyOp{Verb: kv.CheckSession, Key: "k", Session: "s1"}},
		setTxnCheck("alive", "web", catalog.Critical),
		getTxn("db-1", "", "alive"),
		{Key: &kv.KeyOp{Verb: kv.Get, Key: "k"}}, // whose session ended with the check
		{Catalog: &registry.CatalogOp{Verb: registry.CatalogDelete, Node: "db-1", Service: "web"}},
		{Key: &kv.KeyOp{Verb: kv.CheckNotExists, Key: "none"}},
		getTxn("db-1", "", ""),
	}})[0]
	need.That(t, r.OK && len(r.Pairs) == 2 && len(r.Found) == 3, "got %+v, want two pairs, two checks and a node", r)
	expect.That(t, r.Pairs[0].Session == "s1" && r.Pairs[1].Session == "", "the key before and after is %+v, %+v; want it held, and then free", r.Pairs[0], r.Pairs[1])
	for i, want := range []int{1, 1, 2} {
		expect.Equal(t, r.Found[i].Pairs, want, "pairs before what was found %d:", i)
	}
	check := r.Found[1]
	expect.That(t, check.Check.Status == catalog.Critical && check.Name == "shop" && check.Check.ModifyIndex == r.Found[0].Check.ModifyIndex,
		"the check after it was set is %+v of %q", check.Check, check.Name)
	expect.That(t, r.Index >= r.Pairs[1].ModifyIndex, "index %d, and the key was changed at %d", r.Index, r.Pairs[1].ModifyIndex)
	_, known := n.m.View().CheckOn("db-1", "alive")
	expect.That(t, !known, "the check is there after its service was deleted")
}

// Reads of both halves of the state see the same moment.
func TestViewReadsTransactionsOverKeysAndTheRegistry(t *testing.T) {
	n := newNode(t)
	n.write(checkedService(catalog.Warning))
	n.writeKV(kv.KeyOp{Verb: kv.Set, Key: "k", Value: []byte("1")})
	v := n.m.KV()
	n.write(registry.DeregisterCatalog{Node: "db-1"})
	ops := []kv.TxnOp{getTxn("db-1", "web", ""), {Key: &kv.KeyOp{Verb: kv.Get, Key: "k"}}, getTxn("", "", ""), getTxn("", "", catalog.SerfHealth)}
	r := v.Read(ops)
	need.That(t, r.OK && len(r.Pairs) == 1 && len(r.Found) == 3, "got %+v", r)
	expect.That(t, r.Found[0].Service.Service.ID == "web" && r.Found[0].Name == "shop" && r.Found[1].Node.Name == "" && r.Found[2].Check.ID == catalog.SerfHealth,
		"found %+v", r.Found)
	r = n.m.KV().Read(ops)
	want := []kv.TxnError{{OpIndex: 0, What: `service "web" on node "db-1" doesn't exist`}}
	expect.That(t, slices.Equal(r.Errors, want), "after the node went: %+v, want %+v", r, want)
}

// As outside transactions, what Eureka's clients registered is found on the logical node, and replaced by what has
// its key.
func TestTransactionMeetsInstancesOfEureka(t *testing.T) {
	n := newNode(t)
	n.write(registry.Register{Instance: instance("ORDERS", "orders-1")}, registry.Register{Instance: instance("A", "same")}, registry.Register{Instance: instance("B", "same")})
	errorsOf := func(op registry.CatalogOp) string {
		r := n.writeKV(kv.Txn{Ops: []kv.TxnOp{{Catalog: &op}}})[0]
		if r.OK {
			return ""
		}
		return r.Errors[0].What
	}
	orders := &registry.RegisterCatalog{Service: &catalog.Service{Name: "orders", ID: "orders-1", WeightPassing: 1, WeightWarning: 1}, Instance: instance("ORDERS", "orders-1")}
	check := &registry.RegisterCatalog{Checks: []*catalog.Check{{ID: "c", Service: "orders-1"}}}
	same := &registry.RegisterCatalog{Service: &catalog.Service{Name: "other", ID: "same", WeightPassing: 1, WeightWarning: 1}, Instance: instance("OTHER", "same")}
	for _, tt := range []struct {
		op   registry.CatalogOp
		want string
	}{
		{registry.CatalogOp{Service: "same"}, `service ID "same" is that of instances of several applications, which clients of Eureka registered`},
		{registry.CatalogOp{Verb: registry.CatalogDelete, Service: "same"}, `service ID "same" is that of instances of several applications, which clients of Eureka registered`},
		// As by a registration outside transactions.
		{registry.CatalogOp{Verb: registry.CatalogSet, Service: "same", Register: same}, ""},
		{registry.CatalogOp{Service: "same"}, ""},
		{registry.CatalogOp{Verb: registry.CatalogSet, Check: "c", Register: check}, `service "orders-1" was registered by a client of Eureka, which reports its status itself: it takes no checks`},
		{registry.CatalogOp{Verb: registry.CatalogCAS, Service: "orders-1", Register: orders}, `failed to set service "orders-1" on node "rollcall", index is stale`},
		{registry.CatalogOp{Verb: registry.CatalogSet, Service: "orders-1", Register: orders}, ""},
	} {
		expect.Equal(t, errorsOf(tt.op), tt.want, "%+v:", tt.op)
	}
	l, _ := n.m.View().ServiceOn("", "orders-1")
	expect.That(t, l != nil && l.Permanent && l.Service != nil, "the instance is %+v, want it to be the service", l)
}

// Each time a node's check turns, all its services change.
func TestTransactionMakesABoundedNumberOfChanges(t *testing.T) {
	n := newNode(t)
	const services = 2000
	n.performMany(services, func(i int) Item { return op(onNode("db-1", i)) })
	before := n.whole()
	turns := func(count int) (all []kv.TxnOp) {
		for i := range count {
			all = append(all, setTxnCheck("disk", "", []catalog.CheckStatus{catalog.Critical, catalog.Passing}[i%2]))
		}
		return all
	}
	r := n.writeKV(kv.Txn{Ops: turns(kv.MaxTxnChanges/services + 3)})[0]
	need.That(t, !r.OK && len(r.Errors) == 1, "got %+v, want it refused, and what is behind not performed", r)
	last := r.Errors[0]
	expect.That(t, last.OpIndex == kv.MaxTxnChanges/(services+1) && strings.HasPrefix(last.What, "a transaction may make 50000 changes"), "refused: %+v", last)
	expect.That(t, slices.Equal(n.whole(), before), "it was refused, and changed the state")
	r = n.writeKV(kv.Txn{Ops: turns(4)})[0]
	expect.That(t, r.OK, "four turns: %+v", r.Errors)
}

// The record of a removal is found by its key, in a table of its own.
func TestTransactionThatFailsForgetsNoRemoval(t *testing.T) {
	n := newNode(t)
	n.write(checkedService(catalog.Passing), registry.DeregisterCatalog{Node: "db-1", Service: "web"})
	s := &catalog.Service{Name: "shop", ID: "web", Node: "db-1", WeightPassing: 1, WeightWarning: 1}
	set := kv.TxnOp{Catalog: &registry.CatalogOp{Verb: registry.CatalogSet, Node: "db-1", Service: "web",
		Register: &registry.RegisterCatalog{Node: &catalog.Node{Name: "db-1"}, KeepNode: true, Service: s, Instance: instance("SHOP", "db-1:web")}}}
	for range 2 {
		r := n.writeKV(kv.Txn{Ops: []kv.TxnOp{set, getTxn("none", "", "")}})[0]
		expect.That(t, !r.OK, "got %+v, want it refused", r)
	}
	r := n.writeKV(kv.Txn{Ops: []kv.TxnOp{set}})[0]
	need.That(t, r.OK, "registering it again: %+v", r)
	l, _ := n.m.View().ServiceOn("db-1", "web")
	expect.That(t, l != nil && l.Life == 2, "registered again it is %+v, want it in its second life", l)
	expect.Equal(t, len(slices.Collect(n.m.View().Removals())), 0, "records of removals:")
	expect.Equal(t, len(n.m.View().History(l.Key())), 3, "events that are remembered:")
}

// inside returns everything in a machine's memory, a line for each value, including derived data that snapshots leave
// out. So a table that a transaction forgets to restore is found whatever its rows are used for.
func inside(m *Machine) []string {
	var w walk
	w.value("registry", reflect.ValueOf(m.registry))
	w.value("kv", reflect.ValueOf(m.kv))
	return w.lines
}

type walk struct{ lines []string }

// unlike are fields that may differ although nothing has changed: copies for views, reused memory, and the numbers of
// sessions, which decide nothing; of steps, only differences within an operation count.
var unlike = []string{"shared", "undo", "found", "figures", "aliases.steps", "State.catalog", "App.on", "renewals.edition", "renewalPlace.edition", "sessionEnds.slots", "sessionEnds.ends", "living.slot"}

func (w *walk) value(path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			w.value(path, v.Elem())
		}
	case reflect.Struct:
		w.structure(path, addressable(v))
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			w.value(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
		}
	case reflect.Map:
		w.table(path, v)
	case reflect.Func:
	default:
		w.lines = append(w.lines, fmt.Sprintf("%s = %v", path, v))
	}
}

// table walks a map in the order of its keys' texts.
func (w *walk) table(path string, v reflect.Value) {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	for _, key := range keys {
		w.value(fmt.Sprintf("%s[%v]", path, key), v.MapIndex(key))
	}
}

func (w *walk) structure(path string, v reflect.Value) {
	switch of := v.Type(); {
	case of == reflect.TypeFor[order.Ends]():
		w.ends(path, v.Addr().Interface().(*order.Ends))
	case strings.HasPrefix(of.Name(), "treeMap["), strings.HasPrefix(of.Name(), "boxedMap["):
		w.value(path+".keys", v.Addr().MethodByName("Keys").Call(nil)[0])
		w.value(path+".values", v.Addr().MethodByName("Values").Call(nil)[0])
	case strings.HasPrefix(of.Name(), "tree["), strings.HasPrefix(of.Name(), "boxedTree["):
		w.elements(path, v.Addr().MethodByName("Scan"))
	case strings.HasSuffix(of.PkgPath(), "btree"): // of a schedule
		w.value(path, v.Addr().MethodByName("Items").Call(nil)[0])
	case of.PkgPath() == "sync/atomic":
		w.value(path, v.Addr().MethodByName("Load").Call(nil)[0])
	// The slot is free.
	case of.Name() == "renewal" && exposed(v.FieldByName("generation")).Addr().Interface().(interface{ Load() uint64 }).Load() == 0:
	default:
		for field, at := range v.Fields() {
			if !slices.Contains(unlike, field.Name) && !slices.Contains(unlike, of.Name()+"."+field.Name) {
				w.value(path+"."+field.Name, exposed(at))
			}
		}
	}
}

// elements walks what scan passes to its function.
func (w *walk) elements(path string, scan reflect.Value) {
	n := 0
	scan.Call([]reflect.Value{reflect.MakeFunc(scan.Type().In(0), func(one []reflect.Value) []reflect.Value {
		w.value(fmt.Sprintf("%s[%d]", path, n), addressable(one[0]))
		n++
		return []reflect.Value{reflect.ValueOf(true)}
	})})
}

// ends walks the known ends by slot: the order in the heap depends on the order of entry.
func (w *walk) ends(path string, e *order.Ends) {
	for slot := range uint32(1000) {
		if e.Has(slot) {
			w.lines = append(w.lines, fmt.Sprintf("%s of slot %d = %d", path, slot, e.Known(slot)))
		}
	}
}

// addressable returns a value whose fields can be read, exported or not.
func addressable(v reflect.Value) reflect.Value {
	if v.CanAddr() {
		return v
	}
	c := reflect.New(v.Type()).Elem()
	c.Set(v)
	return c
}

// furnish begins with something of everything, so that transactions meet it.
func (tw *twins) furnish(t *rapid.T) {
	amy := registry.Act{Author: "amy"}
	key := func(id string) registry.Key { return registry.Key{App: "A", ID: id} }
	on := func(node, id string, checks ...*catalog.Check) registry.RegisterCatalog {
		op := registry.RegisterCatalog{Agent: node == "n2", Checks: checks}
		if node != "" {
			op.Node = &catalog.Node{Name: node, Address: "192.0.2.1"}
		}
		op.Service, op.Instance = twinService(node, id)
		return op
	}
	var items []Item
	for _, op := range []registry.Op{
		registry.Register{Instance: instance("A", "1")}, registry.Register{Instance: instance("A", "2")}, registry.Register{Instance: instance("B", "1")},
		registry.Register{Instance: instance("A", "3")}, registry.Cancel{Key: key("3")},
		registry.Contact{DC: "dc2", Sender: "s", Incarnation: 1, Cut: 15_000},
		registry.SetOverride{Key: key("1"), Status: registry.OutOfService, For: 100_000, By: amy},
		registry.Quarantine{Key: key("2"), For: 100_000, By: amy},
		on("n1", "db"), registry.DeregisterCatalog{Node: "n1", Service: "db"},
		on("n1", "web", &catalog.Check{Node: "n1", ID: "c1", Service: "web", TTL: 5000, ReapAfter: 60_000}, &catalog.Check{Node: "n1", ID: "c2", TTL: 5000}),
		on("n2", "db", &catalog.Check{Node: "n2", ID: "c1", Service: "db", Alias: &catalog.Alias{Named: true, Node: "n1", Service: "web"}}),
		on("", "web", &catalog.Check{ID: "c1", Service: "web", Status: catalog.Critical, ReapAfter: 60_000}, &catalog.Check{ID: "c2", Alias: &catalog.Alias{Service: "1"}}),
		registry.SetOverride{Key: key("n1:web"), Status: registry.Down, For: 100_000, By: amy},
		registry.Quarantine{Key: key("n2:db"), For: 100_000, By: amy},
	} {
		items = append(items, Item{Op: op})
	}
	const delay = 10_000_000_000 // ns
	acquire := func(key, session string) kv.Op { return kv.KeyOp{Verb: kv.Acquire, Key: key, Session: session} }
	permit := func(kind kv.Kind, name, session string) kv.Op {
		return kv.AcquirePermit{Kind: kind, Name: name, Session: session, Limit: 1, Wait: 500_000}
	}
	for _, op := range []kv.Op{
		kv.CreateSession{ID: "s0", LockDelay: delay}, acquire("b", "s0"), permit(kv.Lock, "q", "s0"), kv.DestroySession{ID: "s0"},
		kv.KeyOp{Verb: kv.Set, Key: "a/1"}, kv.KeyOp{Verb: kv.Delete, Key: "a/1"},
		kv.CreateSession{ID: "s1", Node: "n1", TTL: 400_000, LockDelay: delay, ServiceChecks: []string{"c1"}, NodeChecks: []string{"c2"}},
		kv.CreateSession{ID: "s2", TTL: 400_000, Behavior: kv.DeleteKeys}, kv.CreateSession{ID: "s3", Node: "n2", LockDelay: delay},
		acquire("a", "s1"), acquire("a/2", "s2"), permit(kv.Lock, "p", "s1"), permit(kv.Lock, "p", "s2"), permit(kv.Semaphore, "p", "s2"),
		permit(kv.Semaphore, "p", "s3"), permit(kv.Semaphore, "p", "s1"),
	} {
		items = append(items, Item{KV: op})
	}
	tw.apply(t, [][]byte{tw.batch(t, items)})
	// These beats come later than all of that.
	tw.apply(t, [][]byte{tw.batch(t, []Item{{Op: registry.Renew{Key: key("1")}}, {Op: registry.Renew{Key: key("2")}},
		{Op: registry.SetCheck{Node: "n1", Check: "c1"}}})})
}

// attempt applies a transaction whose last operation is refused, and verifies that nothing has changed.
func (tw *twins) attempt(t *rapid.T, ops []kv.TxnOp) {
	txn := kv.Txn{Ops: append(ops, getTxn("none", "", ""))}
	tw.apply(t, nil)
	before := inside(tw.straight)
	done := tw.both(t, AppendWrite(nil, codec.Newest, tw.stamp, 0, tw.batch(t, []Item{{KV: txn}})))
	need.That(t, !done.Batches[0].KV[0].OK && len(done.Touched) == 0, "got %+v, want it refused, and none woken", done)
	after := inside(tw.straight)
	need.That(t, slices.Equal(after, before), "%+v was refused, and left behind %q, before %q", txn, without(after, before), without(before, after))
}

// inUsedPlaces registers a service in the slot of a lease that was renewed, and a check that had a heartbeat.
func inUsedPlaces() []kv.TxnOp {
	n1 := &catalog.Node{Name: "n1"}
	s, i := twinService("n1", "db")
	c := &catalog.Check{Node: "n1", ID: "c1", Service: "web", TTL: 5000, Status: catalog.Warning}
	return []kv.TxnOp{
		{Catalog: &registry.CatalogOp{Verb: registry.CatalogDelete, Service: "2"}},
		{Catalog: &registry.CatalogOp{Verb: registry.CatalogSet, Node: "n1", Service: "db", Register: &registry.RegisterCatalog{Node: n1, KeepNode: true, Service: s, Instance: i}}},
		{Catalog: &registry.CatalogOp{Verb: registry.CatalogSet, Node: "n1", Check: "c1", Register: &registry.RegisterCatalog{Node: n1, KeepNode: true, Checks: []*catalog.Check{c}}}},
	}
}

// without returns the lines that are not among others.
func without(lines, others []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return slices.Contains(others, line) })
}

func TestTransactionThatFailsLeavesNothingBehind(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tw := newTwins()
		tw.establish(t)
		tw.furnish(t)
		tw.attempt(t, inUsedPlaces())
		for range rapid.IntRange(1, 6).Draw(t, "attempts") {
			tw.attempt(t, rapid.SliceOfN(rapid.Custom(tw.txnOp), 1, 6).Draw(t, "ops"))
			if rapid.IntRange(0, 3).Draw(t, "restore") == 0 {
				tw.restore(t)
				tw.compare(t)
			}
			if rapid.IntRange(0, 3).Draw(t, "other") == 0 {
				tw.write(t)
			}
		}
		tw.compare(t)
	})
}

// An agent's node goes when nothing is left on it. A node that is registered in its place is a different one, on a
// server that saw the first go and on one that has started since.
func TestNodeThatIsRegisteredWhereAnAgentsWasStays(t *testing.T) {
	n := newNode(t)
	s, i := twinService("n2", "db")
	n.write(registry.RegisterCatalog{Agent: true, Node: &catalog.Node{Name: "n2", Address: "192.0.2.1"}, Service: s, Instance: i},
		registry.DeregisterCatalog{Node: "n2", Service: "db"})
	_, known := n.m.View().Node("n2")
	need.That(t, !known, "the agent's node is there still")
	alive := catalog.AgentAlive
	alive.Node = "n2"
	n.write(registry.RegisterCatalog{Node: &catalog.Node{Name: "n2", Address: "192.0.2.2"}, Checks: []*catalog.Check{&alive}})
	_, known = n.m.View().Node("n2")
	need.That(t, known, "the node that a registrar named is not there")
}
