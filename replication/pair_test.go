package replication

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/setting"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/wire"
)

// runPair has two sites replicate to each other until the test ends.
func runPair(t testing.TB, kind Kind) (a, b *site) {
	t.Helper()
	a, b = newSite(), newSite()
	to := func(name string, s *site) PeerConfig {
		return PeerConfig{Name: name, Kind: kind, URLs: []string{s.server.URL}, Flow: Flow{BatchDelay: 10 * time.Millisecond, CongestionDelay: 20 * time.Millisecond}}
	}
	if kind == Node {
		a.become(t, "dc1", "n1", false, to("b", b))
		b.become(t, "dc1", "n2", false, to("a", a))
	} else {
		a.become(t, "dc1", "n1", true, to("dc2", b))
		b.become(t, "dc2", "n4", true, to("dc1", a))
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	for _, s := range []*site{a, b} {
		go func() { ended <- s.Run(ctx) }()
	}
	t.Cleanup(func() {
		cancel()
		for range 2 {
			expect.OK(t, <-ended)
		}
	})
	return a, b
}

// changes is how many changes were told to a site. That an act of a client renews the lease may be told
// once more after it.
func (s *site) changes(t testing.TB) (n int) {
	t.Helper()
	for _, r := range s.came(messagePath) {
		var m wire.Message
		need.OK(t, wire.Decode(r.body, &m))
		for _, item := range m.Items {
			if _, renew := item.Op.(registry.Renew); !renew {
				n++
			}
		}
	}
	return n
}

// idle says that a site has told its peer everything.
func idle(s *site) bool {
	p := s.Status()[0]
	return p.Pending == 0 && p.InFlight == 0 && p.LagChanges == 0
}

func same(a, b *site) bool {
	if a.Newest().Total() != b.Newest().Total() {
		return false
	}
	for l := range a.Newest().All() {
		if m, ok := b.Newest().Find(l.Key()); !ok || l.Sum() != m.Sum() {
			return false
		}
	}
	return true
}

// Two whole replicators: changes flow both ways at once, are there once, and then there is silence.
func TestTwoReplicatorsAgreeAndFallSilent(t *testing.T) {
	for _, kind := range []Kind{Node, Datacenter} {
		t.Run(kind.String(), func(t *testing.T) {
			a, b := runPair(t, kind)
			const each = 300
			for n := range each {
				registerAll(t, a, 1, fmt.Sprint("a-", n))
				registerAll(t, b, 1, fmt.Sprint("b-", n))
			}
			eventually(t, "both have all", func() bool { return a.Newest().Total() == 2*each && same(a, b) })
			for n := range each / 2 {
				cancelAll(t, a, fmt.Sprint("a-", n))
				b.Perform(t, registry.SetOverride{Key: ordersID(fmt.Sprint("b-", n)), Status: registry.OutOfService})
			}
			eventually(t, "both have what is left", func() bool { return a.Newest().Total() == each+each/2 && same(a, b) })

			eventually(t, "nothing is left to say", func() bool { return idle(a) && idle(b) })
			index := [2]registry.Index{a.Newest().Index(), b.Newest().Index()}
			sent := [2]int{a.changes(t), b.changes(t)}
			for range 3 { // comparisons take nothing up again
				for _, s := range []*site{a, b} {
					d, err := s.Repair(context.Background(), s.config.Peers[0].Name)
					expect.That(t, err == nil && d.Apps == 0, "got %+v, %v, want no difference", d, err)
				}
			}
			expect.Equal(t, [2]registry.Index{a.Newest().Index(), b.Newest().Index()}, index, "the indexes went from %v to", index)
			expect.Equal(t, [2]int{a.changes(t), b.changes(t)}, sent, "%v changes had come, and then", sent)
		})
	}
}

// What is told while a peer is not there arrives when it is, however it was away.
func TestAPeerThatWasAwayCatchesUp(t *testing.T) {
	for _, c := range []struct {
		name string
		away func(s *site)
	}{
		{"busy", func(s *site) { s.answering(answerWith(503, "")) }},
		{"closes", func(s *site) { s.answering(drop) }},
		{"garbage", func(s *site) { s.answering(answers("<html>")) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := runPair(t, Datacenter)
			registerAll(t, a, 1, "1", "2", "3")
			eventually(t, "the peer has them", func() bool { return same(a, b) })
			c.away(b)
			registerAll(t, a, 2, "1")
			cancelAll(t, a, "2")
			registerAll(t, b, 1, "theirs")
			eventually(t, "the other way is open", func() bool {
				_, ok := a.Newest().Find(ordersID("theirs"))
				return ok
			})
			eventually(t, "it fails", func() bool { return a.Status()[0].LastError != nil })
			b.answering(nil)
			if c.name == "garbage" { // that is nothing to wait for, so a comparison finds it
				both(a, b, 11*time.Second)
				need.Got(a.Repair(context.Background(), "dc2"))(t)
			}
			eventually(t, "both are equal", func() bool { return same(a, b) })
		})
	}
}

func BenchmarkBatchOfHeartbeats(b *testing.B) {
	near, far := twoDatacenters(b)
	var tasks []task
	var ops []registry.Op
	for n := range setting.Default[Flow]().BatchSize {
		i := instance("ORDERS", fmt.Sprintf("orders-%03d.example.com:orders:8080", n), 1_700_000_000_000)
		ops = append(ops, registry.Register{Instance: i})
		tasks = append(tasks, task{key: i.Key(), facts: heartbeat})
	}
	near.Perform(b, ops...)
	near.tellChanges(b, 0)
	far.answering(answersOf(slices.Repeat([]wire.Result{{Status: wire.Done}}, setting.Default[Flow]().BatchSize)...)) // as one that knows all
	b.ReportAllocs()
	for b.Loop() {
		if result := near.only().ProcessBatch(context.Background(), tasks); result != batcher.Success {
			b.Fatal(result)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(tasks)), "ns/heartbeat")
}
