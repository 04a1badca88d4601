package consensus

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store/consensus/port"
	"github.com/seed-20419f34/rollcall/store/disk"
)

func TestIdentityIsKeptAndBootsRise(t *testing.T) {
	dir := t.TempDir()
	first := need.Got(disk.OpenIdentity(dir, disk.Owner{Mode: disk.ModeCP, Node: "n1"}))(t)
	second := need.Got(disk.OpenIdentity(dir, disk.Owner{Mode: disk.ModeCP, Node: "n1"}))(t)
	expect.That(t, first.ServerID == second.ServerID && disk.NodeName(first.ServerID) == "n1",
		"server ids %q and %q: want the same one, of n1", first.ServerID, second.ServerID)
	expect.That(t, second.Boot > first.Boot && second.Before == first.Boot,
		"boots %d and %d after %d: want a higher one that knows the first", first.Boot, second.Boot, second.Before)
}

// TestNoTwoStartsHaveOneBoot though they begin with the same identity: a batch of the one must not be
// answered with what is remembered of the other.
func TestNoTwoStartsHaveOneBoot(t *testing.T) {
	for name, before := range map[string]uint64{"by the clock": 1, "the clock was set back": 1 << 60} {
		t.Run(name, func(t *testing.T) {
			dir, who := t.TempDir(), disk.Owner{Mode: disk.ModeCP, Node: "n1"}
			original := need.Got(disk.OpenIdentity(dir, who))(t)
			original.Boot = before
			seen := map[uint64]bool{}
			for range 3 {
				need.OK(t, original.Save())
				id := need.Got(disk.OpenIdentity(dir, who))(t)
				expect.That(t, !seen[id.Boot], "two starts have boot %d", id.Boot)
				expect.That(t, id.Boot > before, "boot %d after %d, want a higher one", id.Boot, before)
				seen[id.Boot] = true
			}
		})
	}
}

// TestTheLaterOfTwoStartsHasTheHigherBoot however soon it comes: so a node that was started with an older copy is told so.
func TestTheLaterOfTwoStartsHasTheHigherBoot(t *testing.T) {
	dir, who := t.TempDir(), disk.Owner{Mode: disk.ModeCP, Node: "n1"}
	original := need.Got(disk.OpenIdentity(dir, who))(t)
	last := original.Boot
	for range 10 {
		need.OK(t, original.Save())
		id := need.Got(disk.OpenIdentity(dir, who))(t)
		expect.That(t, id.Boot > last, "boot %d after %d, want a higher one", id.Boot, last)
		last = id.Boot
	}
}

func TestAServerThatDoesNotKnowItsNewestStartIsOutdated(t *testing.T) {
	for _, tt := range []struct {
		name         string
		boot, before uint64
		known        uint64
		want         string // part of the error; empty: it is not outdated
	}{
		{"nothing is known", 5, 4, 0, ""},
		{"the same start", 5, 4, 5, ""},
		{"the next start", 5, 4, 4, ""},
		{"the next but one, of which nothing is known", 5, 4, 3, ""},
		{"a newer start is known", 5, 4, 6, "started again since"},
		{"a start is known between its own and the one before", 9, 4, 6, "older copy"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := port.Hello{ServerID: "n1.aa", Boot: tt.boot, Before: tt.before}.Outdated(tt.known)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

func TestTwoNodesOfOneNameGetDifferentServerIDs(t *testing.T) {
	a, errA := disk.OpenIdentity(t.TempDir(), disk.Owner{Mode: disk.ModeCP, Node: "n1"})
	b, errB := disk.OpenIdentity(t.TempDir(), disk.Owner{Mode: disk.ModeCP, Node: "n1"})
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	expect.That(t, a.ServerID != b.ServerID, "both are %q", a.ServerID)
}

func TestDataDirectoryThatDoesNotFitIsRefused(t *testing.T) {
	tests := []struct {
		name, file, node string
		want             []string // parts of the error
	}{
		{"another node's", `{"level":1,"mode":"cp","node":"n2","server_id":"n2.aa"}`, "n1", []string{`belongs to node "n2"`, `this node is "n1"`}},
		{"another mode's", `{"level":1,"mode":"ap","node":"n1","server_id":"n1.aa"}`, "n1", []string{`mode "ap"`, `mode "cp"`}},
		{"a newer version's", `{"level":99,"mode":"cp","node":"n1","server_id":"n1.aa"}`, "n1", []string{"newer version"}},
		{"from before levels", `{"version":2,"mode":"cp","node":"n1","server_id":"n1.aa"}`, "n1", []string{"identity.json", "before the first release", "empty data directory"}},
		{"from before levels, in the other mode", `{"version":2,"mode":"ap","node":"n1","server_id":"n1.aa"}`, "n1", []string{"before the first release", "empty data directory"}},
		{"of no version", `{"mode":"cp","node":"n1","server_id":"n1.aa"}`, "n1", []string{"before the first release", "empty data directory"}},
		{"not JSON", `{"level":1,`, "n1", []string{"corrupt"}},
		{"empty", ``, "n1", []string{"corrupt"}},
		{"without a server id", `{"level":1,"mode":"cp","node":"n1"}`, "n1", []string{"corrupt"}},
		{"bad node name", ``, "n 1", []string{"node name", "letters"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			need.OK(t, os.WriteFile(filepath.Join(dir, "identity.json"), []byte(tt.file), 0o600))
			_, err := disk.OpenIdentity(dir, disk.Owner{Mode: disk.ModeCP, Node: tt.node})
			need.That(t, err != nil, "was accepted")
			for _, part := range tt.want {
				expect.That(t, strings.Contains(err.Error(), part), "error %q does not say %q", err, part)
			}
		})
	}
}

func TestDataDirectoryOfAnotherModeOrDatacenterIsRefused(t *testing.T) {
	ap := disk.Owner{Mode: disk.ModeAP, Node: "n1", Datacenter: "dc1"}
	tests := []struct {
		name          string
		first, second disk.Owner
		want          []string // parts of the error; none: it is accepted
	}{
		{"the same", ap, ap, nil},
		{"CP, then AP", disk.Owner{Mode: disk.ModeCP, Node: "n1"}, ap, []string{`mode "cp"`, `mode "ap"`, "another directory"}},
		{"AP, then CP", ap, disk.Owner{Mode: disk.ModeCP, Node: "n1"}, []string{`mode "ap"`, `mode "cp"`, "another directory"}},
		{"another datacenter", ap, disk.Owner{Mode: disk.ModeAP, Node: "n1", Datacenter: "dc2"}, []string{`datacenter "dc1"`, `"dc2"`, "set datacenter"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			need.Got(disk.OpenIdentity(dir, tt.first))(t)
			_, err := disk.OpenIdentity(dir, tt.second)
			need.That(t, (err == nil) == (tt.want == nil), "got %v, want an error that says %q", err, tt.want)
			for _, part := range tt.want {
				expect.That(t, strings.Contains(err.Error(), part), "error %q does not say %q", err, part)
			}
		})
	}
}

func TestLogWithoutAnIdentityIsRefused(t *testing.T) { refusedWithoutIdentity(t, disk.RaftDir) }

func TestRegistryWithoutAnIdentityIsRefused(t *testing.T) { refusedWithoutIdentity(t, disk.LocalFile) }

func refusedWithoutIdentity(t *testing.T, left string) {
	dir := t.TempDir()
	need.OK(t, os.MkdirAll(filepath.Join(dir, left), 0o700))
	_, err := disk.OpenIdentity(dir, disk.Owner{Mode: disk.ModeCP, Node: "n1"})
	expect.That(t, err != nil && strings.Contains(err.Error(), left), "a directory with %s and no identity: %v, want an error that names it", left, err)
}

func TestClusterIDDependsOnTheFoundersAlone(t *testing.T) {
	a := disk.ClusterIDOf([]string{"n1.aa", "n2.bb", "n3.cc"})
	b := disk.ClusterIDOf([]string{"n3.cc", "n1.aa", "n2.bb"})
	expect.That(t, a == b, "order matters: %s and %s", a, b)
	b = disk.ClusterIDOf([]string{"n1.aa", "n2.bb", "n3.dd"})
	expect.That(t, a != b, "different founders make the same cluster %s", a)
}

// copyDir copies a data directory.
func copyDir(t *testing.T, from, to string) {
	t.Helper()
	need.OK(t, os.RemoveAll(to))
	need.OK(t, os.CopyFS(to, os.DirFS(from)))
}

// mustEndWith waits until a node has stopped by itself with a reason.
func (n *testNode) mustEndWith(t *testing.T, parts ...string) {
	t.Helper()
	var err error
	select {
	case err = <-n.done:
		n.done <- nil // stopAll looks again
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
			c := startCluster(t, 3, nil)
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
	}
}

func TestACopyThatRunsBesideItsOriginalStops(t *testing.T) {
	c := startCluster(t, 3, nil)
	at := (c.leader() + 1) % 3
	cfg := c.nodes[at].cfg
	need.OK(t, c.nodes[at].halt())
	copied := cfg
	copied.DataDir, copied.ClusterAddr = filepath.Join(t.TempDir(), "copy"), freeAddr(t)
	copyDir(t, cfg.DataDir, copied.DataDir)
	c.nodes[at] = c.start(cfg)
	c.waitReady(at)
	c.start(copied).mustEndWith(t, copied.DataDir)
	for _, node := range c.nodes[at].Status(context.Background()).Nodes {
		if node.ID == cfg.Node && node.Cluster != cfg.ClusterAddr {
			t.Errorf("the cluster knows %s at %s, want the original's %s", node.ID, node.Cluster, cfg.ClusterAddr)
		}
	}
	c.nodes[at].apply(t, registry.Register{Instance: instance("A", "i", 90)})
}

// TestACopyOfARunningNodeDoesNotGetItsVote: it is as new as its original, by its identity.
func TestACopyOfARunningNodeDoesNotGetItsVote(t *testing.T) {
	c := startCluster(t, 3, nil)
	at := (c.leader() + 1) % 3
	cfg := c.nodes[at].cfg
	need.OK(t, c.nodes[at].halt())
	copied := cfg
	copied.DataDir, copied.ClusterAddr = filepath.Join(t.TempDir(), "copy"), freeAddr(t)
	copyDir(t, cfg.DataDir, copied.DataDir)
	c.nodes[at] = c.start(cfg)
	c.waitReady(at)
	identity := need.Got(os.ReadFile(filepath.Join(cfg.DataDir, "identity.json")))(t)
	need.OK(t, os.WriteFile(filepath.Join(copied.DataDir, "identity.json"), identity, 0o600))
	c.start(copied).mustEndWith(t, "runs at "+cfg.ClusterAddr+" already", copied.DataDir)
	c.nodes[at].apply(t, registry.Register{Instance: instance("A", "i", 90)})
}

// TestANodeStopsWhenACopyHasTakenItsPlace, which is possible only while the original does not answer.
func TestANodeStopsWhenACopyHasTakenItsPlace(t *testing.T) {
	c := startCluster(t, 3, nil)
	at := (c.leader() + 1) % 3
	cfg := c.nodes[at].cfg
	need.OK(t, c.nodes[at].halt())
	copied := cfg
	copied.DataDir, copied.ClusterAddr = filepath.Join(t.TempDir(), "copy"), freeAddr(t)
	copyDir(t, cfg.DataDir, copied.DataDir)
	c.nodes[at] = c.start(copied)
	c.waitReady(at)
	c.start(cfg).mustEndWith(t, "older copy of its data directory")
	c.nodes[at].apply(t, registry.Register{Instance: instance("A", "i", 90)})
}
