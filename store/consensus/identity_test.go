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
	"github.com/seed-20419f34/rollcall/store"
)

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

// besideItsCopy has the directory of a node copied while the node is stopped, and the cluster serve after do.
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
		for _, node := range c.nodes[at].Status(context.Background()).Nodes {
			expect.That(t, node.ID != original.Node || node.Cluster == original.ClusterAddr, "the cluster knows %s at %s, want the original's %s", node.ID, node.Cluster, original.ClusterAddr)
		}
	})
}

// TestACopyOfARunningNodeDoesNotGetItsVote: it is as new as its original, by its identity.
func TestACopyOfARunningNodeDoesNotGetItsVote(t *testing.T) {
	besideItsCopy(t, func(c *testCluster, at int, original, copied store.Config) {
		c.nodes[at] = c.start(original)
		c.waitReady(at)
		identity := need.Got(os.ReadFile(filepath.Join(original.DataDir, "identity.json")))(t)
		need.OK(t, os.WriteFile(filepath.Join(copied.DataDir, "identity.json"), identity, 0o600))
		c.start(copied).mustEndWith(t, "runs at "+original.ClusterAddr+" already", copied.DataDir)
	})
}

// TestANodeStopsWhenACopyHasTakenItsPlace, which is possible only while the original does not answer.
func TestANodeStopsWhenACopyHasTakenItsPlace(t *testing.T) {
	besideItsCopy(t, func(c *testCluster, at int, original, copied store.Config) {
		c.nodes[at] = c.start(copied)
		c.waitReady(at)
		c.start(original).mustEndWith(t, "older copy of its data directory")
	})
}
