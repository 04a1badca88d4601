package expiry

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// evictionRig is a leader without the other nodes, in a bubble of virtual time: the state machine, fed with encoded
// entries as Raft would, the lease clock, the evictor and the coordinator. Clients send their renewals as told. It
// belongs to one goroutine.
type evictionRig struct {
	t        *testing.T
	machine  *fsm.Machine
	clock    Clock
	settings registry.Settings
	upstream bool
	spares   SparePolicy
	evictor  *Evictor

	coordinator *Coordinator
	metrics     *prometheus.Registry
	counters    EvictorMetrics
	log         *bytes.Buffer

	index, term, seq uint64
	begun            time.Time
	written          time.Time // when the newest entry was written
	clients          map[registry.Key]*rigClient
	evictedAt        map[registry.Key]time.Duration // since begun

	// before, if not nil, sees every proposal of the evictor before it is applied; its error prevents it.
	before func(ops []registry.Op) error
	// beforeKV is the same for the coordinator.
	beforeKV func(ops []kv.Op) error
	sessions map[string]*rigSession
	endings  *CoordinatorMetrics
}

// rigClient renews one lease.
type rigClient struct {
	every time.Duration // 0 if silent
	next  time.Time
}

// inBubble runs a test with a rig, whose node leads, in a bubble of virtual time.
func inBubble(t *testing.T, settings registry.Settings, upstream bool, do func(g *evictionRig)) {
	synctest.Test(t, func(t *testing.T) {
		g := &evictionRig{
			t: t, machine: fsm.NewMachine(), settings: settings, upstream: upstream,
			metrics: prometheus.NewRegistry(), log: new(bytes.Buffer), begun: time.Now(),
			clients: map[registry.Key]*rigClient{}, evictedAt: map[registry.Key]time.Duration{},
		}
		g.counters = NewEvictorMetrics(g.metrics)
		g.metrics.MustRegister(PreservationGauges{Now: func() (*registry.View, int64) {
			now, _ := g.clock.Read(time.Now())
			return g.machine.View(), now
		}})
		g.lead()
		do(g)
	})
}

// lead establishes a leadership.
func (g *evictionRig) lead() {
	g.term++
	applied := g.entry(fsm.AppendEstablish(nil, codec.Newest, fsm.Establish{Node: "n1", Cluster: "c", Settings: &g.settings}))
	g.clock.Start(applied.Clock.Lease, time.Now())
	g.evictor = NewEvictor(EvictorEnv{
		Epoch:   applied.Epoch,
		Clock:   func() (int64, int) { return g.clock.Read(time.Now()) },
		Confirm: func(context.Context) bool { g.tick(); return true },
		View:    g.machine.View,
		Expired: g.machine.Expired,
		Ending:  g.machine.Ending,
		Owner:   g.machine.Owner,
		Spares: func(dc string, silent time.Duration, ok bool) bool {
			return g.spares != nil && g.spares(dc, silent, ok)
		},
		Apply: func(_ context.Context, ops ...registry.Op) ([]registry.Result, error) {
			if g.before != nil {
				if err := g.before(ops); err != nil {
					return nil, err
				}
			}
			return g.apply(ops...), nil
		},
		Draw:     rand.New(rand.NewPCG(1, 2)).IntN,
		Interval: time.Second,
		Upstream: g.upstream,
		Log:      slog.New(slog.NewTextHandler(g.log, nil)),
		Metrics:  g.counters,
	})
	g.coordinate()
}

// lose ends the leadership.
func (g *evictionRig) lose() {
	g.clock.Stop()
	g.evictor, g.coordinator = nil, nil
}

func (g *evictionRig) entry(encoded []byte) fsm.Applied {
	g.t.Helper()
	g.index++
	applied, err := g.machine.Apply(g.index, g.term, encoded)
	if err != nil {
		g.t.Fatal(err)
	}
	g.clock.Observe(applied.Clock.Lease)
	g.written = time.Now()
	return applied
}

func (g *evictionRig) stamp() registry.Stamp {
	now, _ := g.clock.Read(time.Now())
	return registry.Stamp{Lease: now, Wall: time.Now().UnixMilli()}
}

func (g *evictionRig) tick() { g.entry(fsm.AppendWrite(nil, codec.Newest, g.stamp(), 0)) }

// apply performs operations as one batch in an entry of its own.
func (g *evictionRig) apply(ops ...registry.Op) []registry.Result {
	g.t.Helper()
	return g.applyFrom(registry.FromClient, ops...)
}

// batch applies items as one batch in an entry of its own.
func (g *evictionRig) batch(items []fsm.Item) fsm.BatchResult {
	g.t.Helper()
	g.seq++
	id := fsm.BatchID{Node: "n1", Boot: 1, Seq: g.seq, Finished: g.seq - 1}
	return g.entry(fsm.AppendWrite(nil, codec.Newest, g.stamp(), 0, fsm.AppendBatch(nil, codec.Newest, id, items))).Batches[0]
}

func (g *evictionRig) applyFrom(origin registry.Origin, ops ...registry.Op) []registry.Result {
	g.t.Helper()
	items := make([]fsm.Item, len(ops))
	for i, op := range ops {
		items[i] = fsm.Item{Origin: origin, Op: op}
	}
	return g.batch(items).Registry
}

// register adds an instance whose client renews at an interval, or never if it is 0.
func (g *evictionRig) register(id string, interval, duration int32, every time.Duration) registry.Key {
	g.t.Helper()
	i := instanceOf("A", id, duration)
	i.RenewalInterval = interval
	if got := g.apply(registry.Register{Instance: i})[0]; got.Outcome != registry.Done {
		g.t.Fatalf("register %s: %+v", id, got)
	}
	g.clients[i.Key()] = &rigClient{every: every, next: time.Now().Add(every)}
	return i.Key()
}

// registerMany registers instances i1, i2, … with a renewal every interval.
func (g *evictionRig) registerMany(n int, interval, duration int32) []registry.Key {
	g.t.Helper()
	keys := make([]registry.Key, n)
	for i := range keys {
		keys[i] = g.register(fmt.Sprintf("i%d", i+1), interval, duration, time.Duration(interval)*time.Second)
	}
	return keys
}

// silence stops the renewals of instances.
func (g *evictionRig) silence(keys ...registry.Key) {
	for _, k := range keys {
		g.clients[k].every = 0
	}
}

// resume renews instances now, and from then on at an interval.
func (g *evictionRig) resume(every time.Duration, keys ...registry.Key) {
	for _, k := range keys {
		g.clients[k].every, g.clients[k].next = every, time.Now()
	}
}

// pass lets time pass in steps of the clock. In each step the evictor acts before the clients, which is worse for
// them.
func (g *evictionRig) pass(d time.Duration) {
	g.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(min(ClockInterval, time.Until(end)))
		if g.evictor == nil {
			continue
		}
		g.clock.Read(time.Now())
		if g.machine.NeedsClock() && time.Since(g.written) > TickAge {
			g.tick()
		}
		g.evictor.step(context.Background())
		g.coordinator.step(context.Background())
		g.recordEvicted()
		g.recordEnded()
		g.beat()
	}
}

func (g *evictionRig) beat() {
	for key, c := range g.clients {
		if _, gone := g.evictedAt[key]; gone || c.every == 0 || time.Now().Before(c.next) {
			continue
		}
		c.next = c.next.Add(c.every)
		g.apply(registry.Renew{Key: key})
	}
}

func (g *evictionRig) recordEvicted() {
	for key := range g.clients {
		if _, before := g.evictedAt[key]; before {
			continue
		}
		if _, ok := g.machine.View().Find(key); !ok {
			g.evictedAt[key] = time.Since(g.begun)
		}
	}
}

// wantState fails the test unless self-preservation is in a state.
func (g *evictionRig) wantState(want registry.PreservationState) {
	g.t.Helper()
	if got := g.machine.View().Preservation(); got.State != want {
		g.t.Fatalf("after %v self-preservation is %+v, want it %v", time.Since(g.begun), got, want)
	}
}

// wantGone fails the test unless an instance went at a time since the beginning, or slightly later.
func (g *evictionRig) wantGone(key registry.Key, at time.Duration) {
	g.t.Helper()
	got, ok := g.evictedAt[key]
	if !ok {
		g.t.Errorf("%v is still there after %v, want it gone after %v", key, time.Since(g.begun), at)
	} else if late := got - at; late <= 0 || late > ClockInterval {
		g.t.Errorf("%v went after %v, want it gone just after %v", key, got, at)
	}
}

func (g *evictionRig) wantNoneEvicted() {
	g.t.Helper()
	expect.That(g.t, len(g.evictedAt) == 0, "after %v these are gone: %v, want none evicted", time.Since(g.begun), g.evictedAt)
}

// metric returns the value of a metric with at most one label.
func (g *evictionRig) metric(name, label string) float64 {
	g.t.Helper()
	families, err := g.metrics.Gather()
	if err != nil {
		g.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || len(m.GetLabel()) > 0 && m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	g.t.Fatalf("no metric %s %s", name, label)
	return 0
}

// logged counts the lines of the log that contain all words.
func (g *evictionRig) logged(words ...string) int {
	n := 0
	for line := range strings.Lines(g.log.String()) {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			n++
		}
	}
	return n
}

func sessionIDOf(n int) string { return fmt.Sprintf("00000000-0000-0000-0000-%012d", n) }

func instanceOf(app, id string, duration int32) *registry.Instance {
	return &registry.Instance{
		InstanceID: id, App: app, HostName: id + ".example", IPAddr: "10.0.0.1", Status: registry.Up,
		DataCenter: registry.DataCenter{Name: registry.MyOwn}, RenewalInterval: 1, Duration: duration,
	}
}
