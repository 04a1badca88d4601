package fsm

import (
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
	"github.com/seed-20419f34/rollcall/internal/need"
)

// inside is all that a machine has in its memory, a line for each value: also what is derived from the state and stands in no
// snapshot. A table that a transaction forgets to put back is found here whatever its rows are used for.
func inside(m *Machine) []string {
	var w walk
	w.value("registry", reflect.ValueOf(m.registry))
	w.value("kv", reflect.ValueOf(m.kv))
	return w.lines
}

type walk struct{ lines []string }

// unlike are fields that may differ although nothing has changed: copies for views, memory that is used again, and how sessions
// are numbered, which decides nothing; of the steps only differences within an operation say something.
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
	case of.Name() == "renewal" && exposed(v.FieldByName("generation")).Addr().Interface().(interface{ Load() uint64 }).Load() == 0: // of no lease
	default:
		for field, at := range v.Fields() {
			if !slices.Contains(unlike, field.Name) && !slices.Contains(unlike, of.Name()+"."+field.Name) {
				w.value(path+"."+field.Name, exposed(at))
			}
		}
	}
}

// elements walks what scan calls its function with.
func (w *walk) elements(path string, scan reflect.Value) {
	n := 0
	scan.Call([]reflect.Value{reflect.MakeFunc(scan.Type().In(0), func(one []reflect.Value) []reflect.Value {
		w.value(fmt.Sprintf("%s[%d]", path, n), addressable(one[0]))
		n++
		return []reflect.Value{reflect.ValueOf(true)}
	})})
}

// ends walks what is known of ends by slot: their order in the heap is not that in which they were entered.
func (w *walk) ends(path string, e *order.Ends) {
	for slot := range uint32(1000) {
		if e.Has(slot) {
			w.lines = append(w.lines, fmt.Sprintf("%s of slot %d = %d", path, slot, e.Known(slot)))
		}
	}
}

// addressable is a value whose fields can be read, whoever exports them.
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
	tw.apply(t, [][]byte{tw.batch(t, []Item{{Op: registry.Renew{Key: key("1")}}, {Op: registry.Renew{Key: key("2")}}, // and beats, later than all that
		{Op: registry.SetCheck{Node: "n1", Check: "c1"}}})})
}

// attempt applies a transaction of which the last operation is refused, and looks that nothing is another than before.
func (tw *twins) attempt(t *rapid.T, ops []kv.TxnOp) {
	txn := kv.Txn{Ops: append(ops, getTxn("none", "", ""))}
	tw.apply(t, nil)
	before := inside(tw.straight)
	done := tw.both(t, AppendWrite(nil, codec.Newest, tw.stamp, 0, tw.batch(t, []Item{{KV: txn}})))
	need.That(t, !done.Batches[0].KV[0].OK && len(done.Touched) == 0, "got %+v, want it refused, and none woken", done)
	after := inside(tw.straight)
	if !slices.Equal(after, before) {
		t.Fatalf("%+v was refused, and left behind %q, before %q", txn, without(after, before), without(before, after))
	}
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

// without are the lines that are not among others.
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

// A node of an agent goes when nothing is left on it. One that is registered in its place is another one, on a server that
// saw the first go as on one that started since.
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
