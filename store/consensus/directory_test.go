package consensus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// copyDir copies a data directory.
func copyDir(t *testing.T, from, to string) {
	t.Helper()
	need.OK(t, os.RemoveAll(to))
	need.OK(t, os.CopyFS(to, os.DirFS(from)))
}

// mustEndWith waits until a node has stopped on its own, and checks its reason.
func (n *testNode) mustEndWith(t *testing.T, parts ...string) {
	t.Helper()
	var err error
	select {
	case err = <-n.done:
		n.done <- nil // stopAll reads it again
	case <-time.After(limit):
		t.Errorf("%s has not ended after %v", n.cfg.Node, limit)
		n.halt()
	}
	for _, part := range parts {
		expect.That(t, err != nil && strings.Contains(err.Error(), part), "%s ended with %v, want a reason that says %q", n.cfg.Node, err, part)
	}
}

func TestANodeWithAnOlderCopyOfItsDataStops(t *testing.T) {
	for _, tt := range []struct{ name, part string }{
		{"of all of it", "."},
		{"of its identity", "identity.json"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inCluster(t, 3, nil, func(t *testing.T, c *testCluster) {
				at := (c.leader() + 1) % 3
				cfg := c.nodes[at].cfg
				need.OK(t, c.nodes[at].halt())
				older := filepath.Join(t.TempDir(), "older")
				copyDir(t, cfg.DataDir, older)
				c.nodes[at] = c.start(cfg)
				c.waitReady(at)
				need.OK(t, c.nodes[at].halt())
				if tt.part == "." {
					copyDir(t, older, cfg.DataDir)
				} else if b, err := os.ReadFile(filepath.Join(older, tt.part)); err != nil {
					t.Fatal(err)
				} else if err := os.WriteFile(filepath.Join(cfg.DataDir, tt.part), b, 0o600); err != nil {
					t.Fatal(err)
				}
				c.nodes[at] = c.start(cfg)
				c.nodes[at].mustEndWith(t, "older copy of its data directory", "members remove "+cfg.Node)
				c.nodes[(at+1)%3].apply(t, registry.Register{Instance: instance("A", "i", 90)})
			})
		})
	}
}

// besideItsCopy copies a node's directory while the node is stopped, and checks that the cluster serves after do.
func besideItsCopy(t *testing.T, do func(c *testCluster, at int, original, copied store.Config)) {
	t.Helper()
	inCluster(t, 3, nil, func(t *testing.T, c *testCluster) {
		at := (c.leader() + 1) % 3
		original := c.nodes[at].cfg
		need.OK(t, c.nodes[at].halt())
		copied := original
		copied.DataDir, copied.ClusterAddr = filepath.Join(t.TempDir(), "copy"), freeAddr(t)
		copyDir(t, original.DataDir, copied.DataDir)
		do(c, at, original, copied)
		c.nodes[at].apply(t, registry.Register{Instance: instance("A", "i", 90)})
	})
}

func TestACopyThatRunsBesideItsOriginalStops(t *testing.T) {
	besideItsCopy(t, func(c *testCluster, at int, original, copied store.Config) {
		c.nodes[at] = c.start(original)
		c.waitReady(at)
		c.start(copied).mustEndWith(t, copied.DataDir)
		for _, node := range c.nodes[at].members.Status(context.Background()).Nodes {
			expect.That(t, node.ID != original.Node || node.Cluster == original.ClusterAddr, "the cluster knows %s at %s, want the original's %s", node.ID, node.Cluster, original.ClusterAddr)
		}
	})
}

// By its identity, the copy is as new as the original.
func TestACopyOfARunningNodeDoesNotGetItsVote(t *testing.T) {
	besideItsCopy(t, func(c *testCluster, at int, original, copied store.Config) {
		c.nodes[at] = c.start(original)
		c.waitReady(at)
		identity := need.Got(os.ReadFile(filepath.Join(original.DataDir, "identity.json")))(t)
		need.OK(t, os.WriteFile(filepath.Join(copied.DataDir, "identity.json"), identity, 0o600))
		c.start(copied).mustEndWith(t, "runs at "+original.ClusterAddr+" already", copied.DataDir)
	})
}

// The copy can take its place only while the original does not respond.
func TestANodeStopsWhenACopyHasTakenItsPlace(t *testing.T) {
	besideItsCopy(t, func(c *testCluster, at int, original, copied store.Config) {
		c.nodes[at] = c.start(copied)
		c.waitReady(at)
		c.start(original).mustEndWith(t, "older copy of its data directory")
	})
}

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
			// not the entry's checksum
			entry := &raft.Log{Index: index, Term: 1, Data: []byte("x"), Extensions: []byte("none")}
			expect.That(t, n.logs.StoreLog(entry) != nil, "entry %d was stored", index)
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

// An operator hears of bad memory before it does harm.
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
		kept.Data[0] ^= 1 // memory has these bytes
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

// writeKey writes a key, and returns the index of its log entry.
func writeKey(t *testing.T, n *testNode, key string) uint64 {
	t.Helper()
	need.OKf(t, expect.Err(n.Coordination().Apply(t.Context(), kv.KeyOp{Verb: kv.Set, Key: key})), "write %s", key)
	return n.machine.Index() // Raft counts an entry as applied only after Apply returned
}

func TestEntryIsSkippedAfterARestart(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *testCluster) {
		n := c.nodes[0]
		writeKey(t, n, "a")
		n.halt() // with a snapshot
		c.nodes[0] = c.start(n.cfg)
		n = c.nodes[0]
		c.waitReady(0)
		skipped := writeKey(t, n, "b")
		last := writeKey(t, n, "c")
		n.fail(errors.New("ends without a snapshot"))
		need.That(t, <-n.done != nil, "the node went on")
		n.done <- nil

		dir, identity := n.cfg.DataDir, filepath.Join(n.cfg.DataDir, "identity.json")
		before := string(need.Got(os.ReadFile(identity))(t))
		snapshots := need.Got(raft.NewFileSnapshotStoreWithLogger(filepath.Join(dir, disk.RaftDir), snapshotsKept, nil))(t)
		snapshot := need.Got(snapshots.List())(t)[0].Index
		establish := snapshot + 2 // after Raft's own entry of the leadership
		for _, tt := range []struct {
			name  string
			entry uint64
			want  string
		}{
			{"of a snapshot", snapshot, "is part of the snapshot at entry"},
			{"before a snapshot", 1, "is part of the snapshot at entry"},
			{"beyond the end", last + 100, "beyond the end of the log"},
			{"of Raft", snapshot + 1, "one of Raft's own"},
			{"of a leadership", establish, "begins the leadership of n1"},
		} {
			expect.ErrorSays(t, expect.Err(SkipEntry(dir, tt.entry)), tt.want, "%s (%d)", tt.name, tt.entry)
			expect.Equal(t, string(need.Got(os.ReadFile(identity))(t)), before, tt.name+": the identity")
		}
		done := need.Got(SkipEntry(dir, skipped))(t)
		expect.That(t, done.Node == "n1" && len(done.Skipped) == 1 && done.Skipped[0] == skipped && strings.Join(done.Operations, ";") == "key of b", "%+v", done)
		expect.ErrorSays(t, expect.Err(SkipEntry(dir, skipped)), "already", "twice")
		id := need.Got(disk.ReadIdentity(dir))(t)
		expect.That(t, id.Level == 2 && len(id.Skipped) == 1, "level %d, %v: a program of 0.1.0 would start with it", id.Level, id.Skipped)

		c.nodes[0] = c.start(n.cfg)
		c.waitReady(0)
		for key, want := range map[string]bool{"a": true, "b": false, "c": true} {
			pair, _ := c.nodes[0].machine.KV().Get(key)
			expect.Equal(t, pair != nil, want, key+" is there")
		}
		expect.Equal(t, len(need.Got(disk.ReadIdentity(dir))(t).Skipped), 1, "skipped entries after a start")
	})
}

func TestNodesThatSkipOtherEntriesRefuseEachOther(t *testing.T) {
	inCluster(t, 3, nil, func(t *testing.T, c *testCluster) {
		behind := c.nodes[2]
		need.OK(t, behind.halt())
		id := need.Got(disk.ReadIdentity(behind.cfg.DataDir))(t)
		id.Skipped = []uint64{7}
		need.OK(t, id.Save())
		log := &keptOutput{}
		cfg := behind.cfg
		cfg.Log = slog.New(slog.NewTextHandler(log, nil))
		c.nodes[2] = c.start(cfg)
		eventually(t, "the node says why it is refused", func() bool {
			return strings.Contains(log.String(), "skips the log entries [], this node [7]")
		})
		expect.That(t, !c.nodes[2].Health().Ready, "it serves with another state than the others")
		need.OK(t, c.nodes[2].halt())
		id = need.Got(disk.ReadIdentity(cfg.DataDir))(t)
		id.Skipped = nil
		need.OK(t, id.Save())
		c.nodes[2] = c.start(behind.cfg)
		c.waitReady(2)
	})
}

// keptOutput is a log that a test reads while it is written.
type keptOutput struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (o *keptOutput) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *keptOutput) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// A node with an empty directory takes over what the cluster skips before it applies anything.
func TestNodeThatJoinsSkipsWhatTheClusterSkips(t *testing.T) {
	inCluster(t, 1, nil, func(t *testing.T, c *testCluster) {
		n := c.nodes[0]
		n.apply(t, registry.Register{Instance: instance("ORDERS", "o1", 90)})
		need.OK(t, n.identity.Change(func(id *disk.Identity) bool { id.Skipped = []uint64{1}; return true }))
		cfg := c.config(0, []string{freeAddr(t)}, 1)
		cfg.Node, cfg.DataDir, cfg.Join = "n2", filepath.Join(c.dir, "n2"), []string{n.cfg.ClusterAddr}
		c.nodes = append(c.nodes, c.start(cfg))
		c.waitReady(1)
		expect.Slice(t, c.nodes[1].identity.Now().Skipped, []uint64{1}, "skipped by the node that joined")
	})
}

// A killed node leaves its socket behind.
func TestCopyOfADataDirectoryLeavesSocketsAway(t *testing.T) {
	dir := need.Got(os.MkdirTemp("", "s"))(t) // the path of a socket must be short
	defer os.RemoveAll(dir)
	from, to := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	need.OK(t, os.MkdirAll(filepath.Join(from, "raft"), 0o700))
	need.OK(t, os.WriteFile(filepath.Join(from, "raft", "log.db"), []byte("log"), 0o600))
	l := need.Got(net.Listen("unix", filepath.Join(from, "admin.sock")))(t)
	defer l.Close()
	need.OK(t, copyTree(from, to))
	copied := need.Got(os.ReadFile(filepath.Join(to, "raft", "log.db")))(t)
	_, err := os.Lstat(filepath.Join(to, "admin.sock"))
	expect.That(t, string(copied) == "log" && os.IsNotExist(err), "copied %q, and of the socket: %v", copied, err)
}
