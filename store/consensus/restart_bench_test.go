package consensus

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/consensus/raftio"
)

// BenchmarkRestartWithALongLog says how long a node that was killed takes until it is ready, with 20,000 entries
// and no snapshot behind them.
func BenchmarkRestartWithALongLog(b *testing.B) {
	const entries = 20_000
	c := startCluster(b, 1, func(cfg *store.Config) {
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
	d, _, err := raftio.Open(dir, store.LogBolt, func(err error) { b.Error(err) })
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
		batch := fsm.AppendBatch(nil, codec.Newest, fsm.BatchID{Node: "writer", Boot: 1, Seq: uint64(i + 1), Finished: uint64(i)}, []fsm.Item{
			{Op: registry.Register{Instance: in}},
			{Op: registry.Renew{Key: instance("ORDERS", name(i+1), 90).Key()}},
			{Op: registry.Renew{Key: instance("ORDERS", name(i+2), 90).Key()}},
		})
		last++
		logs = append(logs, &raft.Log{Index: last, Term: newest.Term, Type: raft.LogCommand, Data: fsm.AppendWrite(nil, codec.Newest, stamp, 1, batch)})
		if len(logs) == 1000 || i == entries-1 {
			if err := d.StoreLogs(logs); err != nil {
				b.Fatal(err)
			}
			logs = nil
		}
	}
	if err := d.Close(); err != nil {
		b.Fatal(err)
	}
}
