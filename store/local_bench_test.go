package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

const benchedLeases = 100_000

func benchedKeys() []registry.Key {
	keys := make([]registry.Key, benchedLeases)
	for i := range keys {
		keys[i] = registry.NewKey(fmt.Sprintf("app%d", i%200), fmt.Sprintf("host-%d.example:service:8080", i))
	}
	return keys
}

// BenchmarkLocalRenew compares renewals by all cores with the least that could be called a registry: a
// mutex, a map and the time.
func BenchmarkLocalRenew(b *testing.B) {
	keys := benchedKeys()
	var seed atomic.Uint64
	parallel := func(b *testing.B, renew func(registry.Key)) {
		b.ReportAllocs()
		b.ResetTimer()
		b.RunParallel(func(pb *testing.PB) {
			for at := seed.Add(1) * 7919; pb.Next(); at++ {
				renew(keys[at%benchedLeases])
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "renewals/s")
	}
	b.Run("map", func(b *testing.B) {
		var mu sync.Mutex
		last := make(map[registry.Key]time.Time, benchedLeases)
		for _, k := range keys {
			last[k] = time.Now()
		}
		parallel(b, func(k registry.Key) {
			mu.Lock()
			defer mu.Unlock()
			if _, ok := last[k]; ok {
				last[k] = time.Now()
			}
		})
	})
	b.Run("local", func(b *testing.B) {
		s := benchedLocal(b, keys)
		parallel(b, func(k registry.Key) {
			if _, err := s.Apply(context.Background(), registry.FromClient, registry.Renew{Key: k, LastDirty: 1}); err != nil {
				b.Error(err)
			}
		})
	})
}

// benchedLocal is a running node with a lease for each key.
func benchedLocal(b *testing.B, keys []registry.Key) *Local {
	s, err := OpenLocal(Config{Node: "n1", DataDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	b.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	for _, k := range keys {
		i := instance(k.App, k.ID, 3600)
		i.LastDirty = 1
		if _, err := s.Apply(ctx, registry.FromClient, registry.Register{Instance: i}); err != nil {
			b.Fatal(err)
		}
	}
	return s
}

// BenchmarkRestartWithALongLog says how long a node that was killed takes until it is ready, with 20,000 entries
// and no snapshot behind them.
func BenchmarkRestartWithALongLog(b *testing.B) {
	const entries = 20_000
	c := startCluster(b, 1, func(cfg *Config) {
		cfg.SnapshotInterval, cfg.SnapshotThreshold, cfg.TrailingLogs = time.Hour, 1<<40, 1<<40
	})
	errKilled := errors.New("killed")
	kill := func() {
		c.nodes[0].fail(errKilled)
		<-c.nodes[0].done
	}
	last, stamp := c.nodes[0].raft.LastIndex(), c.nodes[0].machine.View().Stamp()
	kill()
	lengthen(b, c.nodes[0].cfg.DataDir, last, entries, stamp)
	var opened time.Duration
	for b.Loop() {
		began := time.Now()
		c.nodes[0] = c.prepare(c.nodes[0].cfg)
		opened += time.Since(began)
		c.nodes[0].run()
		c.waitReady(0)
		b.StopTimer()
		if c.nodes[0].raft.LastIndex() < last+entries {
			b.Fatalf("the last entry is %d", c.nodes[0].raft.LastIndex())
		}
		kill()
		b.StartTimer()
	}
	b.ReportMetric(float64(opened.Milliseconds())/float64(b.N), "ms/open")
	b.ReportMetric(b.Elapsed().Seconds()*1000/float64(b.N), "ms/ready")
	b.ReportMetric(0, "ns/op")
	c.nodes[0].done <- nil
}

// lengthen adds entries to a log: each has a registration of one of 200 instances and two renewals.
func lengthen(b *testing.B, dir string, last uint64, entries int, stamp registry.Stamp) {
	b.Helper()
	d, err := openDisk(dir, nil, func(err error) { b.Error(err) })
	if err != nil {
		b.Fatal(err)
	}
	var newest raft.Log
	if err := d.GetLog(last, &newest); err != nil {
		b.Fatal(err)
	}
	name := func(i int) string { return "instance-" + string(rune('a'+i%200/26)) + string(rune('a'+i%200%26)) }
	var logs []*raft.Log
	for i := range entries {
		stamp.Lease, stamp.Wall = stamp.Lease+5, stamp.Wall+5
		in := instance("ORDERS", name(i), 90)
		in.LastDirty = stamp.Wall
		batch := fsm.AppendBatch(nil, fsm.BatchID{Node: "writer", Boot: 1, Seq: uint64(i + 1), Answered: uint64(i)}, []fsm.Item{
			{Op: registry.Register{Instance: in}},
			{Op: registry.Renew{Key: instance("ORDERS", name(i+1), 90).Key()}},
			{Op: registry.Renew{Key: instance("ORDERS", name(i+2), 90).Key()}},
		})
		last++
		logs = append(logs, &raft.Log{Index: last, Term: newest.Term, Type: raft.LogCommand, Data: fsm.AppendWrite(nil, stamp, 1, batch)})
		if len(logs) == 1000 || i == entries-1 {
			if err := d.StoreLogs(logs); err != nil {
				b.Fatal(err)
			}
			logs = nil
		}
	}
	if err := d.close(); err != nil {
		b.Fatal(err)
	}
}
