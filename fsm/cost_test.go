package fsm

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// costly is an operation of the largest accepted size, or one that by its nature changes many objects.
type costly struct {
	name    string
	done    func(n *node, r BatchResult) bool // it did what it is here for
	single  bool                              // it changes one object, whatever it meets
	prepare func(n *node, objects int) Item   // fills a machine so that the operation meets some objects
}

// perform applies items as one batch.
func (n *node) perform(items ...Item) BatchResult {
	n.t.Helper()
	n.id.Finished, n.id.Seq = n.id.Seq, n.id.Seq+1
	return n.apply(AppendBatch(nil, codec.Newest, n.id, items)).Batches[0]
}

// performMany applies many operations in batches.
func (n *node) performMany(count int, item func(i int) Item) {
	n.t.Helper()
	const together = 500
	for first := 0; first < count; first += together {
		var items []Item
		for i := first; i < min(first+together, count); i++ {
			items = append(items, item(i))
		}
		n.perform(items...)
	}
}

func op(o registry.Op) Item { return Item{Op: o} }
func coordinates(o kv.Op) Item {
	return Item{KV: o}
}

// check returns a check of a service, or of the node if service is "".
func check(service string, i int) *catalog.Check {
	return &catalog.Check{ID: fmt.Sprintf("check-%s-%05d", service, i), Name: "c", Service: service, Status: catalog.Passing, Type: "ttl", TTL: 3_600_000}
}

// alias returns a check of a service that follows another one.
func alias(service, followed string) *catalog.Check {
	return &catalog.Check{ID: "alias-" + service, Name: "alias", Service: service, Type: "alias", Alias: &catalog.Alias{Service: followed}}
}

func manyChecks(service string, count int) []*catalog.Check {
	all := make([]*catalog.Check, count)
	for i := range all {
		all[i] = check(service, i)
	}
	return all
}

// placed returns the registration of a service of the logical node, with checks.
func placed(id string, of ...*catalog.Check) registry.RegisterCatalog {
	in := instance("PLACED", id)
	return registry.RegisterCatalog{
		Service:  &catalog.Service{ID: id, Name: "placed", WeightPassing: 1, WeightWarning: 1},
		Instance: in, Checks: of,
	}
}

func serviceID(i int) string { return fmt.Sprintf("placed-%06d", i) }

func sessionID(i int) string { return fmt.Sprintf("00000000-0000-0000-0000-%012d", i) }

func withServices(n *node, services int) {
	n.performMany(services, func(i int) Item { return op(placed(serviceID(i))) })
}

func onNode(name string, i int) registry.RegisterCatalog {
	reg := placed(serviceID(i))
	reg.Node, reg.KeepNode = &catalog.Node{Name: name, Address: "10.0.0.1"}, i > 0
	return reg
}

func withSessions(n *node, sessions int) {
	n.performMany(sessions, func(i int) Item {
		return coordinates(kv.CreateSession{ID: sessionID(i), LockDelay: 1_000_000_000, ServiceChecks: nil})
	})
}

func keyName(i int) string { return fmt.Sprintf("tree/%07d", i) }

func isDone(_ *node, r BatchResult) bool { return r.Registry[0].Outcome == registry.Done }
func isOK(_ *node, r BatchResult) bool   { return r.KV[0].OK }

func isRefused(_ *node, r BatchResult) bool { return !r.KV[0].OK && len(r.KV[0].Errors) == 1 }

func hasTooManyChecks(_ *node, r BatchResult) bool {
	return r.Registry[0].Outcome == registry.TooManyChecks
}

// costlies has operations that are large, or meet many objects in a different way than those of applyings.
var costlies = []costly{
	{"registration with the most checks", isDone, true, func(n *node, objects int) Item {
		withServices(n, objects)
		return op(registry.RegisterCatalog{Checks: manyChecks("", catalog.MaxNodeChecks)})
	}},
	{"registration with far too many checks", hasTooManyChecks, true, func(n *node, _ int) Item {
		return op(placed("one", manyChecks("one", 1000)...))
	}},
	{"check of the node turns to warning", isDone, true, func(n *node, objects int) Item {
		withServices(n, objects)
		n.perform(op(registry.RegisterCatalog{Checks: manyChecks("", catalog.MaxNodeChecks)}))
		return op(registry.SetCheck{Check: check("", 7).ID, Status: catalog.Warning})
	}},
	{"check turns critical at the end of a long chain of alias checks", isDone, false, func(n *node, objects int) Item {
		n.perform(op(placed(serviceID(0), check(serviceID(0), 0))))
		n.performMany(objects, func(i int) Item { return op(placed(serviceID(i+1), alias(serviceID(i+1), serviceID(i)))) })
		return op(registry.SetCheck{Check: check(serviceID(0), 0).ID, Status: catalog.Critical})
	}},
	{"check turns critical in a node of which everything is an alias of everything", isDone, false, func(n *node, objects int) Item {
		n.performMany(objects, func(i int) Item {
			return op(placed(serviceID(i), alias(serviceID(i), serviceID((i+objects-1)%objects))))
		})
		aliases := manyChecks("", catalog.MaxNodeChecks-1)
		for i, c := range aliases {
			c.TTL, c.Alias = 0, &catalog.Alias{Service: serviceID(i % objects)}
		}
		n.perform(op(registry.RegisterCatalog{Checks: aliases}))
		n.perform(op(registry.RegisterCatalog{Checks: []*catalog.Check{{ID: "real"}}}))
		return op(registry.SetCheck{Check: "real", Status: catalog.Critical})
	}},
	{"checks that move from the node to a service", isDone, false, func(n *node, objects int) Item {
		n.performMany(objects, func(i int) Item { return op(onNode("web", i)) })
		n.perform(op(registry.RegisterCatalog{Node: &catalog.Node{Name: "web"}, Checks: manyChecks("", catalog.MaxNodeChecks)}))
		n.perform(op(registry.SetCheck{Node: "web", Check: check("", 7).ID, Status: catalog.Critical}))
		moved := manyChecks("", catalog.MaxServiceChecks)
		for _, c := range moved {
			c.Service = serviceID(0)
		}
		return op(registry.RegisterCatalog{Node: &catalog.Node{Name: "web"}, Checks: moved})
	}},
	{"registration of the longest VIP address", isDone, true, func(*node, int) Item {
		in := instance("LONG", "one")
		in.VIP = strings.Repeat("a,", 100_000)
		return op(registry.Register{Instance: in})
	}},
	{"metadata of the most pairs", isDone, true, func(n *node, _ int) Item {
		in := instance("META", "one")
		update := registry.UpdateMetadata{Key: in.Key()}
		for i := range 256 {
			in.Metadata = append(in.Metadata, registry.Pair{Key: fmt.Sprintf("key-%03d", i), Value: strings.Repeat("v", 200)})
			update.Pairs = append(update.Pairs, registry.Pair{Key: fmt.Sprintf("key-%03d", 255-i), Value: strings.Repeat("w", 200)})
		}
		n.perform(op(registry.Register{Instance: in}))
		return op(update)
	}},
	{"transaction that fails after it has deleted a node of many services", isRefused, false, func(n *node, objects int) Item {
		n.performMany(objects, func(i int) Item { return op(onNode("far", i)) })
		return coordinates(kv.Txn{Ops: []kv.TxnOp{{Catalog: &registry.CatalogOp{Verb: registry.CatalogDelete, Node: "far"}}, getTxn("far", "", "")}})
	}},
	{"transaction that fails after it has changed one service of many", isRefused, true, func(n *node, objects int) Item {
		n.performMany(objects, func(i int) Item { return op(onNode("far", i)) })
		return coordinates(kv.Txn{Ops: []kv.TxnOp{{Catalog: &registry.CatalogOp{Verb: registry.CatalogDelete, Node: "far", Service: serviceID(0)}}, getTxn("none", "", "")}})
	}},
	{"end of a session that holds keys", isOK, false, func(n *node, objects int) Item {
		withSessions(n, 1)
		n.performMany(objects, func(i int) Item {
			return coordinates(kv.KeyOp{Verb: kv.Acquire, Key: keyName(i), Session: sessionID(0)})
		})
		return coordinates(kv.DestroySession{ID: sessionID(0)})
	}},
	{"release of a lock for which many wait", isOK, true, func(n *node, objects int) Item {
		withSessions(n, objects)
		n.performMany(objects, func(i int) Item {
			return coordinates(kv.AcquirePermit{Kind: kv.Lock, Name: "queue", Session: sessionID(i), Wait: 600_000})
		})
		return coordinates(kv.ReleasePermit{Kind: kv.Lock, Name: "queue", Session: sessionID(0)})
	}},
	{"first operation after the records of many removals became too old", isDone, false, func(n *node, objects int) Item {
		n.performMany(objects, func(i int) Item { return op(registry.Register{Instance: instance("GONE", serviceID(i))}) })
		n.performMany(objects, func(i int) Item { return op(registry.Cancel{Key: instance("GONE", serviceID(i)).Key()}) })
		n.stamp.Lease += 30 * 60_000
		for range 60 { // the clock moves by at most an hour
			n.perform()
			n.stamp.Lease += 30 * 60_000
		}
		return op(registry.Register{Instance: instance("NEW", "one")})
	}},
}

// applied performs an operation on a machine with some objects, and returns how many bytes Apply allocated.
func (c costly) applied(t testing.TB, objects int) (bytes uint64) {
	n := newNode(t)
	n.establish()
	item := c.prepare(n, objects)
	var r BatchResult
	bytes = allocated(func() { r = n.perform(item) })
	need.That(t, c.done(n, r), "%s: got %+v %+v", c.name, r.Registry, r.KV)
	return bytes
}

// allocated returns how many bytes a function allocates.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// These bound the memory that Apply may allocate: per object that an operation changes, and for changes of one
// object, however many it meets. Work that grows with pairs of objects takes far more; time would depend on the
// machine.
const (
	bytesPerObject = 12 << 10
	bytesAlone     = 1 << 20
)

func TestApplyOfTheLargestOperationsIsLinear(t *testing.T) {
	for _, c := range costlies {
		t.Run(c.name, func(t *testing.T) {
			bytes := c.applied(t, fewObjects)
			want := uint64(bytesAlone)
			if !c.single {
				want = bytesPerObject * fewObjects
			}
			expect.That(t, bytes <= want, "Apply took %d KiB of memory with %d objects, at most %d KiB are right", bytes>>10, fewObjects, want>>10)
		})
	}
}

// population is the size of the registry in the benchmarks.
const population = 100_000

// largeInstance returns one of a population; it takes 1.1 KB in a log entry.
func largeInstance(i int) *registry.Instance {
	app := fmt.Sprintf("SERVICE-%03d", i%500)
	host := fmt.Sprintf("host-%06d.example.com", i)
	inst := instance(app, fmt.Sprintf("%s:%s:8080", host, strings.ToLower(app)))
	inst.HostName, inst.IPAddr, inst.SID = host, fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255), "na"
	inst.Port = registry.Port{Number: 8080, Enabled: true}
	inst.HomePageURL = "http://" + host + ":8080/"
	inst.StatusPageURL = "http://" + host + ":8080/actuator/info"
	inst.HealthCheckURL = "http://" + host + ":8080/actuator/health"
	for k := range 12 {
		inst.Metadata = append(inst.Metadata, registry.Pair{Key: fmt.Sprintf("metadata-key-%02d", k), Value: strings.Repeat("v", 42)})
	}
	return inst
}

// populated returns a machine with population instances and their handles.
func populated(b *testing.B) (*node, []registry.Handle) {
	b.Helper()
	n := newNode(b)
	n.establish()
	var handles []registry.Handle
	for first := 0; first < population; first += 200 {
		var ops []registry.Op
		for i := range 200 {
			ops = append(ops, registry.Register{Instance: largeInstance(first + i)})
		}
		n.id.Finished = n.id.Seq
		for _, r := range n.write(ops...) {
			handles = append(handles, r.Handle)
		}
	}
	return n, handles
}

// BenchmarkSnapshot100k writes snapshots, and also reports how long each keeps Apply waiting.
func BenchmarkSnapshot100k(b *testing.B) {
	n, _ := populated(b)
	var frozen time.Duration
	for b.Loop() {
		start := time.Now()
		s := n.m.Snapshot()
		frozen += time.Since(start)
		_, err := s.WriteTo(io.Discard)
		need.OK(b, err)
	}
	b.ReportMetric(float64(frozen.Nanoseconds())/float64(b.N), "freeze-ns")
}

// BenchmarkDigest100k makes the digest that each node makes once a minute.
func BenchmarkDigest100k(b *testing.B) {
	n, _ := populated(b)
	for b.Loop() {
		n.m.Snapshot().Digest()
	}
}

func BenchmarkRestore100k(b *testing.B) {
	n, _ := populated(b)
	snapshot := snapshotOf(b, n.m)
	n.m = nil
	before := liveHeap()
	m := NewMachine()
	b.ReportAllocs()
	for b.Loop() {
		need.OK(b, m.Restore(bytes.NewReader(snapshot)))
	}
	b.ReportMetric(float64(liveHeap()-before)/population, "heap-B/instance")
	runtime.KeepAlive(m)
	runtime.KeepAlive(snapshot)
}

func liveHeap() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}
