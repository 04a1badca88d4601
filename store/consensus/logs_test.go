package consensus

import (
	"bytes"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/disk"
)

func TestTheLogIsBoundedByBytesAndAFollowerThatLagsCatchesUp(t *testing.T) {
	for _, log := range []store.RaftLog{store.LogBolt, store.LogWAL} {
		t.Run(string(log), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				const most = 4 << 20
				c := startCluster(t, 3, func(cfg *store.Config) { cfg.LogBytes, cfg.RaftLog = most, log })
				leader := c.nodes[c.leader()]
				late := c.nodes[(c.leader()+1)%3]
				had := late.raft.LastIndex()
				need.OK(t, late.halt())
				for range 80 {
					i := instance("A", "large", 3600)
					i.Metadata = []registry.Pair{{Key: "pad", Value: strings.Repeat("x", 256<<10)}}
					need.Got(leader.Apply(t.Context(), registry.FromClient, registry.Register{Instance: i}))(t)
				}
				eventually(t, "the log has no more bytes than it may", func() bool { return leader.logs.BytesAfter(0) <= 2*most })
				*late = *c.start(late.cfg)
				eventually(t, "the node that was stopped has caught up", func() bool { return late.raft.AppliedIndex() >= leader.raft.AppliedIndex() })
				eventually(t, "it has removed what the leader's snapshot has replaced", func() bool {
					first := need.Got(late.logs.FirstIndex())(t)
					return log == store.LogBolt || first == 0 || first > had
				})
				segments := need.Got(filepath.Glob(filepath.Join(leader.cfg.DataDir, disk.RaftDir, "wal", "*.wal")))(t)
				expect.That(t, len(segments) <= 2, "20 MiB were written, and there are the segments %v", segments)
			})
		})
	}
}

func TestNodesSeldomAllSaveAtTheSameMoment(t *testing.T) {
	var shares []float64
	for range 100 {
		shares = append(shares, ownShare())
	}
	least, most := slices.Min(shares), slices.Max(shares)
	expect.That(t, least > 0.66 && least < 0.75 && most > 0.9 && most <= 1, "shares are from %v to %v, want them from two thirds to the whole", least, most)
}

func TestEntryThatArrivesDamagedIsLoggedOnceWithItsLeader(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var log sharedLog
		c := startCluster(t, 1, func(cfg *store.Config) { cfg.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		n := c.nodes[0]
		seen := testutil.ToFloat64(n.metrics.refused)
		for _, index := range []uint64{1_000_000, 1_000_000, 1_000_001} {
			entry := &raft.Log{Index: index, Term: 1, Data: []byte("x"), Extensions: []byte("none")} // which is no checksum of it
			err := n.logs.StoreLog(entry)
			expect.That(t, err != nil, "entry %d was stored", index)
		}
		if got := testutil.ToFloat64(n.metrics.refused) - seen; got != 3 {
			t.Errorf("%v are counted, want 3", got)
		}
		for _, index := range []string{"index=1000000 ", "index=1000001 "} {
			got := log.count("level=ERROR", "came damaged", index, "leader=n1 ", n.cfg.ClusterAddr)
			expect.That(t, got == 1, "%s was said %d times with its leader, want once", index, got)
		}
		n.apply(t, registry.Register{Instance: instance("A", "i0", 90)}) // it serves
	})
}

// An operator hears of memory that is bad before it does harm.
func TestEntryThatIsDamagedInMemoryReachesNoFollower(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var log sharedLog
		c := startCluster(t, 1, func(cfg *store.Config) { cfg.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		n := c.nodes[0]
		n.apply(t, registry.Register{Instance: instance("A", "i0", 90)})
		index := n.raft.LastIndex()
		var kept raft.Log
		need.OK(t, n.logs.GetLog(index, &kept))
		written := bytes.Clone(kept.Data)
		kept.Data[0] ^= 1 // the bytes are those that memory has
		for range 2 {
			var sent raft.Log
			err := n.logs.GetLog(index, &sent)
			expect.That(t, err == nil && bytes.Equal(sent.Data, written), "a follower would get %x (%v), want %x", sent.Data, err, written)
		}
		if got := log.count("level=ERROR", "damaged in this node's memory", fmt.Sprint("index=", index)); got != 1 || testutil.ToFloat64(n.metrics.damaged) != 2 {
			t.Errorf("said %d times and counted %v, want 1 and 2", got, testutil.ToFloat64(n.metrics.damaged))
		}
	})
}
