package registry

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
)

// payload is an instance of about 1 KB in all, its strings its own as after decoding.
func payload(i int) *Instance {
	id := fmt.Sprintf("host-%06d.example.internal:orders:8080", i)
	host := fmt.Sprintf("host-%06d.example.internal", i)
	return &Instance{
		InstanceID: id, HostName: host, App: fmt.Sprintf("APPLICATION-%03d", i%200), IPAddr: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255),
		Status: Up, LastDirty: startOfWall, Port: Port{Number: 8080, Enabled: true}, SecurePort: Port{Number: 443}, CountryID: 1,
		DataCenter: DataCenter{Name: MyOwn}, RenewalInterval: 30, Duration: 90,
		Metadata:    []Pair{{Key: "management.port", Value: "8081"}, {Key: "zone", Value: strings.Clone("eu-1a")}, {Key: "build", Value: strings.Repeat("x", 200)}},
		HomePageURL: "http://" + host + ":8080/", StatusPageURL: "http://" + host + ":8080/actuator/info",
		HealthCheckURL: "http://" + host + ":8080/actuator/health",
		VIP:            fmt.Sprintf("application-%03d", i%200), SecureVIP: fmt.Sprintf("application-%03d", i%200),
	}
}

func filled(n int) *rig {
	g := newRig(nil)
	for i := range n {
		g.client(Register{payload(i)})
	}
	return g
}

func BenchmarkRenewByHandle(b *testing.B) {
	g := filled(100_000)
	ops := make([]Op, 4096)
	for i := range ops {
		slot := i * 7919 % 100_000
		ops[i] = Renew{Handle: Handle{Slot: uint32(slot), Gen: uint64(slot + 1)}, LastDirty: startOfWall}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if res := g.client(ops[i%len(ops)]); res.Outcome != Done {
			b.Fatal(res)
		}
	}
}

func BenchmarkRenewByName(b *testing.B) {
	g := filled(100_000)
	ops := make([]Op, 4096)
	for i := range ops {
		ops[i] = Renew{Key: payload(i * 7919 % 100_000).Key(), LastDirty: startOfWall}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if res := g.client(ops[i%len(ops)]); res.Outcome != Done {
			b.Fatal(res)
		}
	}
}

// A registration of a new instance and its removal, with a view made after each, as if each were a
// log entry of its own.
func BenchmarkRegister(b *testing.B) {
	for _, existing := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("existing=%d", existing), func(b *testing.B) {
			g := filled(existing)
			in := payload(existing + 1)
			register, cancel := Op(Register{in}), Op(Cancel{in.Key()})
			b.ReportAllocs()
			for b.Loop() {
				g.client(register)
				g.View()
				g.client(cancel)
				g.View()
			}
		})
	}
}

// Changes of one of 10 services of each of 1,000 agents, each change with a view of its own.
func BenchmarkCatalog(b *testing.B) {
	const agents, services = 1000, 10
	agentsService := func(agent, i int, port int32) RegisterCatalog {
		name := fmt.Sprintf("service-%d", i)
		op := serviceOn(fmt.Sprintf("agent-%d", agent), name, name, &catalog.Check{ID: name, Service: name, TTL: 30_000})
		op.Agent, op.KeepStatus, op.Service.Port = true, true, port
		return op
	}
	g := newRig(nil)
	for n := range agents * services {
		g.client(agentsService(n/services, n%services, 80))
	}
	fresh := agentsService(agents, 0, 80)
	for _, tt := range []struct {
		name string
		ops  []Op
	}{
		{"registered as it is", []Op{agentsService(500, 5, 80)}},
		{"registered with another port", []Op{agentsService(500, 5, 81), agentsService(500, 5, 80)}},
		{"comes and goes", []Op{DeregisterCatalog{Node: "agent-500", Service: "service-5"}, agentsService(500, 5, 80)}},
		{"comes and goes with its agent", []Op{fresh, DeregisterCatalog{Node: fresh.Node.Name, Service: fresh.Service.ID}}},
		{"check flips", []Op{
			SetCheck{Node: "agent-500", Check: "service-6", Status: catalog.Critical}, SetCheck{Node: "agent-500", Check: "service-6"}}},
		{"heartbeat", []Op{SetCheck{Node: "agent-500", Check: "service-7"}}},
	} {
		b.Run(tt.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for _, op := range tt.ops {
					g.client(op)
					g.View()
				}
			}
		})
	}
}

// 64 re-registrations in one log entry.
func BenchmarkReregisterBatch(b *testing.B) {
	g := filled(100_000)
	ops := make([]Op, 64)
	for i := range ops {
		ops[i] = Register{payload(i * 997)}
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, op := range ops {
			g.client(op)
		}
		g.View()
	}
}

func BenchmarkView(b *testing.B) {
	g := filled(100_000)
	b.ReportAllocs()
	for b.Loop() {
		g.View()
	}
}

func BenchmarkFreeze100k(b *testing.B) {
	g := filled(100_000)
	b.ReportAllocs()
	for b.Loop() {
		g.Freeze()
	}
}

func BenchmarkThaw100k(b *testing.B) {
	f := filled(100_000).Freeze()
	for b.Loop() {
		if _, err := Thaw(f); err != nil {
			b.Fatal(err)
		}
	}
}

// A look for expired leases when none of 100,000 is due, and when 100 or 1000 are.
func BenchmarkExpired100k(b *testing.B) {
	for _, due := range []int{0, 100, 1000} {
		b.Run(fmt.Sprintf("due=%d", due), func(b *testing.B) {
			g := filled(100_000 - due)
			late := g.now.Lease + 90_000
			g.pass(1)
			for i := range due {
				in := payload(200_000 + i)
				in.Duration = 3
				g.client(Register{in})
			}
			b.ReportAllocs()
			for b.Loop() {
				if got := len(g.Expired(late, 1000)); got != due {
					b.Fatal(got)
				}
			}
		})
	}
}

// A round each second among 100,000 leases that are renewed every 30 s: most of what it finds was
// renewed since, and is put back.
func BenchmarkExpiredRound100k(b *testing.B) {
	const n = 100_000
	g := filled(n)
	renewSome := func(second int) {
		for slot := second % 30; slot < n; slot += 30 {
			g.client(Renew{Handle: Handle{Slot: uint32(slot), Gen: uint64(slot + 1)}})
		}
	}
	for second := range 300 {
		g.pass(1000)
		renewSome(second)
		g.Expired(g.now.Lease, 1000)
	}
	b.ResetTimer()
	for second := range b.N {
		b.StopTimer()
		g.pass(1000)
		renewSome(second)
		b.StartTimer()
		if due := g.Expired(g.now.Lease, 1000); len(due) != 0 {
			b.Fatal(due)
		}
	}
}

// What the leader counts in each round.
func BenchmarkFreshness100k(b *testing.B) {
	v := filled(100_000).View()
	b.ReportAllocs()
	for b.Loop() {
		if f := v.Freshness(100_000); f.Counted != 100_000 {
			b.Fatal(f)
		}
	}
}

// A walk for the renewals of the last half second, among 100,000 leases that are renewed every 30 s.
func BenchmarkRenewedAfter100k(b *testing.B) {
	const n, told = 100_000, 1667
	g := filled(n)
	after := g.View().NewestBeat()
	for slot := range told {
		g.client(Renew{Handle: Handle{Slot: uint32(slot * 59), Gen: uint64(slot*59 + 1)}})
	}
	v := g.View()
	b.ReportAllocs()
	for b.Loop() {
		found := 0
		for range v.RenewedAfter(after, true) {
			found++
		}
		if found != told {
			b.Fatal(found)
		}
	}
}

// All sums, for a comparison with one peer.
func BenchmarkComparableSums100k(b *testing.B) {
	g := filled(100_000)
	v := g.View()
	b.ReportAllocs()
	for b.Loop() {
		var sum Digest
		for l := range v.Comparable(g.now.Lease+comparisonWait, true, "") {
			sum.Count++
			sum.Sum += l.Sum()
		}
		if sum.Count != 100_000 {
			b.Fatal(sum)
		}
	}
}

// An equal copy of a stored instance is told, as a repair or a start-up copy does.
func BenchmarkEqualReplica(b *testing.B) {
	g := filled(100_000)
	l, _ := g.View().Lease(payload(7).Key())
	op := Op(g.View().ReplicaOf(l, g.now.Lease))
	b.ReportAllocs()
	for b.Loop() {
		if res := g.apply(fromNode, op); res.Outcome != Done || res.Index != 0 {
			b.Fatal(res)
		}
	}
}

func BenchmarkDelta(b *testing.B) {
	g := filled(100_000)
	g.pass(400_000)
	for i := range 500 {
		g.client(Register{payload(i)})
	}
	v := g.View()
	b.ReportAllocs()
	for b.Loop() {
		if n := len(v.Delta().Leases); n != 500 {
			b.Fatal(n)
		}
	}
}

// Bytes of live heap per registered instance, its own strings included and apart.
func BenchmarkMemory100k(b *testing.B) {
	const n = 100_000
	for b.Loop() {
		empty := liveHeap()
		instances := make([]*Instance, n)
		for i := range instances {
			instances[i] = payload(i)
		}
		given := liveHeap()
		g := newRig(nil)
		for _, in := range instances {
			g.client(Register{in})
		}
		v := g.View()
		all := liveHeap()
		b.ReportMetric(float64(given-empty)/n, "instance-B")
		b.ReportMetric(float64(all-given)/n, "registry-B")
		runtime.KeepAlive(v)
		runtime.KeepAlive(instances)
	}
}

func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A change and its view are published, while no reader waits, while 10,000 wait for 200 applications (50
// are woken by a change), and while all of them wait for everything. publish-ns is the time of Publish
// alone, for which the store waits.
func BenchmarkPublish(b *testing.B) {
	for _, tt := range []struct {
		name  string
		waits int
		app   func(i int) string
	}{
		{"waiting=0", 0, nil},
		{"waiting=10000", 10_000, func(i int) string { return fmt.Sprintf("APPLICATION-%03d", i%200) }},
		{"waiting=10000,for=all", 10_000, func(int) string { return "" }},
	} {
		b.Run(tt.name, func(b *testing.B) {
			w := newWatched(b)
			for i := range 1000 {
				w.client(Register{payload(i)})
			}
			w.publish()
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			after := w.View().Index()
			for i := range tt.waits {
				go w.followWithout(ctx, after, Selector{App: tt.app(i)})
			}
			for w.waits() < tt.waits {
				runtime.Gosched()
			}
			var publishing time.Duration
			for i := 0; b.Loop(); i++ {
				w.client(Register{payload(i % 1000)})
				view := w.View()
				w.newest.Store(view)
				began := time.Now()
				w.Publish(view)
				publishing += time.Since(began)
			}
			b.ReportMetric(float64(publishing.Nanoseconds())/float64(b.N), "publish-ns/op")
		})
	}
}

// followWithout follows the changes without looking at them.
func (w *watched) followWithout(ctx context.Context, after Index, which Selector) {
	for {
		changes, err := w.Await(ctx, w.newestView, after, which)
		if err != nil {
			return
		}
		after = changes.View.Index()
	}
}

// waits is the number of waits under way.
func (w *watched) waits() int {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.waiters.Len()
}
