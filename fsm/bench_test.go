package fsm

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// population is the size of the registry that the benchmarks work on.
const population = 100_000

// largeInstance is one of a population; it takes 1.1 KB in a log entry.
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

func BenchmarkApplyRenewals(b *testing.B) {
	const renewals = 100
	n, handles := populated(b)
	batches := make([][]registry.Op, 1000) // that reach every instance
	for i := range batches {
		for j := range renewals {
			h := handles[(i*renewals+j)*7919%population]
			batches[i] = append(batches[i], registry.Renew{Handle: h, LastDirty: 1_700_000_000_000})
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		n.stamp.Lease++
		n.id.Finished, n.id.Seq = n.id.Seq, n.id.Seq+1
		n.apply(n.batch(batches[i%len(batches)]...))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*renewals), "ns/renewal")
}

// BenchmarkParseRenewals is what decoding has in BenchmarkApplyRenewals.
func BenchmarkParseRenewals(b *testing.B) {
	const renewals = 100
	var items []Item
	for i := range renewals {
		h := registry.Handle{Slot: uint32(i * 997), Gen: uint64(i*997 + 1)}
		items = append(items, Item{Op: registry.Renew{Handle: h, LastDirty: 1_700_000_000_000}})
	}
	entry := AppendWrite(nil, codec.Newest, registry.Stamp{Lease: 1}, 0, AppendBatch(nil, codec.Newest, BatchID{Node: "n1", Boot: 1, Seq: 1}, items))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parseEntry(entry); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*renewals), "ns/renewal")
}

func BenchmarkApplyRegister(b *testing.B) {
	n, _ := populated(b)
	entry := AppendBatch(nil, codec.Newest, BatchID{}, []Item{{Op: registry.Register{Instance: largeInstance(0)}}})
	b.ReportAllocs()
	b.ReportMetric(float64(len(entry)), "B/entry")
	for i := 0; b.Loop(); i++ {
		inst := *largeInstance(i % population)
		inst.LastDirty += int64(i)
		n.stamp.Lease++
		n.id.Finished, n.id.Seq = n.id.Seq, n.id.Seq+1
		n.apply(n.batch(registry.Register{Instance: &inst}))
	}
}

// BenchmarkSnapshotWrite100k reports beside it how long Snapshot keeps Apply waiting.
func BenchmarkSnapshotWrite100k(b *testing.B) {
	n, _ := populated(b)
	var frozen time.Duration
	var size int64
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		s := n.m.Snapshot()
		frozen += time.Since(start)
		var err error
		if size, err = s.WriteTo(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(frozen.Microseconds())/1000/float64(b.N), "freeze-ms")
	b.ReportMetric(float64(size)/population, "B/instance")
}

// BenchmarkDigest100k is what a node does once a minute; it reports the share of a core that this takes.
func BenchmarkDigest100k(b *testing.B) {
	n, _ := populated(b)
	b.ReportAllocs()
	for b.Loop() {
		n.m.Snapshot().Digest()
	}
	b.ReportMetric(100*b.Elapsed().Minutes()/float64(b.N), "%core")
}

func BenchmarkRestore100k(b *testing.B) {
	n, _ := populated(b)
	snapshot := snapshotOf(b, n.m)
	n.m = nil
	before := liveHeap()
	m := NewMachine()
	b.ReportAllocs()
	for b.Loop() {
		if err := m.Restore(bytes.NewReader(snapshot)); err != nil {
			b.Fatal(err)
		}
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
