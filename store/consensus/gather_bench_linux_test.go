package consensus

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/commit"
)

// BenchmarkSessionRenewals holds 10,000 sessions through three nodes, each renewed every 10 s: an iteration
// is one second of it, 1,000 renewals evenly spread. core% is the CPU time of all three nodes and of those
// who renew, in percent of one core; µs/renewal what is beyond idle nodes.
func BenchmarkSessionRenewals(b *testing.B) {
	const sessions, perSecond = 10_000, 1000
	c := startCluster(b, 3, func(cfg *store.Config) { cfg.Log = nil })
	ops := make([]kv.Op, sessions)
	for i := range ops {
		ops[i] = kv.CreateSession{ID: sessionID(i), TTL: time.Hour.Milliseconds()} // the idle ones live too
	}
	if _, err := c.nodes[0].Coordination().Apply(b.Context(), ops...); err != nil {
		b.Fatal(err)
	}
	next := 0
	second := func(renewals int) {
		var all sync.WaitGroup
		begun := time.Now()
		for i := range renewals {
			time.Sleep(time.Until(begun.Add(time.Duration(i) * time.Second / perSecond)))
			next++
			node, op := c.nodes[next%3], kv.RenewSession{ID: sessionID(next % sessions)}
			all.Go(func() {
				res, err := node.Coordination().Apply(context.Background(), op)
				if err != nil || !res[0].OK {
					b.Errorf("renewal: %+v, %v", res, err)
				}
			})
		}
		time.Sleep(time.Until(begun.Add(time.Second)))
		all.Wait()
	}
	var idle time.Duration // CPU time per second
	for _, mode := range []struct {
		name     string
		renewals int
		patience time.Duration
	}{{"idle", 0, commit.GatherFor}, {"one by one", perSecond, 0}, {"gathered", perSecond, commit.GatherFor}} {
		b.Run(mode.name, func(b *testing.B) {
			for _, n := range c.nodes {
				n.committer.SetPatience(mode.patience)
			}
			before := cpuTime(b)
			for b.Loop() {
				second(mode.renewals)
			}
			perSecond := (cpuTime(b) - before) / time.Duration(b.N)
			if mode.renewals == 0 {
				idle = perSecond
			}
			b.ReportMetric(100*perSecond.Seconds(), "core%")
			if mode.renewals > 0 {
				b.ReportMetric(float64((perSecond-idle).Microseconds())/float64(mode.renewals), "µs/renewal")
			}
		})
	}
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
