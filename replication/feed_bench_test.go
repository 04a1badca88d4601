package replication

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/replication/peertest"
)

// discardingLink is a link that transmits every task at once, so that the benchmark measures only what comes before it.
type discardingLink struct{ fakeLink }

func (l discardingLink) ProcessBatch(context.Context, []link.Task) batcher.Result {
	l.env.Succeeded()
	return batcher.Success
}

// BenchmarkFeedOfHeartbeats sends 3,333 heartbeats per second, of 100,000 leases, to one peer, and reports
// how much of a core that takes, without the link and without the renewals themselves. It runs for real
// time.
func BenchmarkFeedOfHeartbeats(b *testing.B) {
	const leases, perTick, tick = 100_000, 333, 100 * time.Millisecond
	m := registrytest.New()
	handles := make([]registry.Handle, leases)
	for i := range handles {
		in := peertest.Instance("ORDERS", fmt.Sprintf("orders-%d", i), 1)
		handles[i] = m.Registry.Apply(m.Stamp(), 1, registry.FromClient, registry.Register{Instance: in}).Handle
	}
	m.Perform(b, registry.AckPeer{Peer: "dc2", Cursor: m.Newest().Index()})
	measure := func(sends bool) (share float64, sent uint64) {
		c := Config{Side: link.Side{
			Service: m, Datacenter: "dc1", Node: "n1", Consensus: true,
			Sender: func() string { return "dc1" }, Peers: []link.PeerConfig{datacenter("dc2")},
		}}
		r, err := newReplicator(c, func(env link.Env) link.Link { return discardingLink{fakeLink{env, newFakePeer()}} })
		if err != nil {
			b.Fatal(err)
		}
		run := &replicating{Replicator: r, t: b}
		if sends {
			run.start()
			defer run.stop()
		}
		next := 0
		began, used := time.Now(), cpu(b)
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		for range 50 {
			<-ticker.C
			m.Set(func(m *registrytest.Memory) {
				for range perTick {
					m.Registry.Apply(m.Stamp(), 1, registry.FromClient, registry.Renew{Handle: handles[next]})
					next = (next + 1) % leases
				}
			})
		}
		return float64(cpu(b)-used) / float64(time.Since(began)), run.present()[0].stats().SuccessfulExecutions
	}
	for b.Loop() {
		idle, _ := measure(false)
		busy, sent := measure(true)
		b.ReportMetric((busy-idle)*100, "%core")
		b.ReportMetric(float64(sent)/5, "heartbeats/s")
	}
}

// cpu is the time that the process has used of all cores.
func cpu(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkFeedOfChanges reads changes and queues them: the cost of one.
func BenchmarkFeedOfChanges(b *testing.B) {
	const changes = 10_000
	m := registrytest.New()
	for _, op := range registers(0, changes) {
		m.Registry.Apply(m.Stamp(), 1, registry.FromClient, op)
	}
	v := m.Newest()
	p := &peer{PeerConfig: datacenter("dc2"), config: Config{Side: link.Side{Consensus: true}}}
	b.ReportAllocs()
	for b.Loop() {
		list, err := v.Changes(0, changes)
		if err != nil {
			b.Fatal(err)
		}
		sent := 0
		for _, c := range list {
			if _, ok := p.taskOf(v, c, place{}, 0); ok {
				sent++
			}
		}
		if sent != changes {
			b.Fatalf("%d changes are sent, want %d", sent, changes)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/changes, "ns/change")
}
