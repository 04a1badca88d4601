package consensus

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// writeKey writes a key, and returns the log entry that did.
func writeKey(t *testing.T, n *testNode, key string) uint64 {
	t.Helper()
	_, err := n.Coordination().Apply(t.Context(), kv.KeyOp{Verb: kv.Set, Key: key})
	need.OKf(t, err, "write %s", key)
	return n.machine.Index() // Raft counts an entry as applied only after it was answered
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
		establish := snapshot + 2 // behind Raft's own entry of the leadership
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
			_, err := SkipEntry(dir, tt.entry)
			expect.ErrorSays(t, err, tt.want, "%s (%d)", tt.name, tt.entry)
			expect.Equal(t, string(need.Got(os.ReadFile(identity))(t)), before, tt.name+": the identity")
		}
		done := need.Got(SkipEntry(dir, skipped))(t)
		expect.That(t, done.Node == "n1" && len(done.Skipped) == 1 && done.Skipped[0] == skipped && strings.Join(done.Operations, ";") == "key of b", "%+v", done)
		_, err := SkipEntry(dir, skipped)
		expect.ErrorSays(t, err, "already", "twice")
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

// A node with an empty directory takes over what the cluster skips, before it applies anything.
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

// A node that was killed leaves its socket behind.
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
