package integration

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// release is a version from which this one is upgraded.
type release struct {
	version, commit string
	build           func() (program string, err error) // once
}

var releases = []*release{newRelease("v0.1.1", "5ad4626f"), newRelease("v0.1.0", "4b317dc4")}

// eachRelease runs a test for each release by make upgrades alone, which needs the history of the repository and builds them.
func eachRelease(t *testing.T, test func(*testing.T, *release)) {
	t.Helper()
	if os.Getenv("ROLLCALL_UPGRADE_ORDERS") == "" {
		t.Skip("upgrades from releases run by make upgrades")
	}
	for _, r := range releases {
		t.Run("from "+r.version, func(t *testing.T) { test(t, r) })
	}
}

func newRelease(version, commit string) *release {
	r := &release{version: version, commit: commit}
	r.build = sync.OnceValues(r.buildProgram)
	return r
}

func (r *release) buildProgram() (string, error) {
	dir, path := filepath.Join(built, r.version), filepath.Join(built, "rollcall-"+r.version)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	archive, err := exec.Command("git", "-C", "..", "archive", r.commit).Output()
	if err != nil {
		return "", fmt.Errorf("read %s from the repository's history: %w", r.version, err)
	}
	unpack := exec.Command("tar", "-x", "-C", dir)
	unpack.Stdin = bytes.NewReader(archive)
	if out, err := unpack.CombinedOutput(); err != nil {
		return "", fmt.Errorf("unpack %s: %w\n%s", r.version, err, out)
	}
	build := exec.Command("go", "build", "-ldflags", "-X main.version="+r.version, "-o", path, "./cmd/rollcall")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", r.version, err, out)
	}
	return path, nil
}

// newCluster makes a cluster that runs the release once it is started.
func (r *release) newCluster(t *testing.T, cfg Config) *Cluster {
	t.Helper()
	program := need.Got(r.build())(t)
	c := NewCluster(t, cfg)
	for _, n := range c.Nodes {
		n.runs = program
	}
	return c
}

// mustVerify expects the nodes' digests to be equal.
func mustVerify(t *testing.T, n *Node, when string) {
	t.Helper()
	v, code := verify(t, n, 10*comparedWithin)
	need.That(t, code == 0 && v.Verdict == "equal", "%s: verify ended with %d, %+v, want digests that are equal", when, code, v)
}

func TestUpgradeFromAReleaseLosesNothing(t *testing.T) {
	eachRelease(t, func(t *testing.T, r *release) {
		for _, order := range upgradeOrders() {
			t.Run(fmt.Sprint(order), func(t *testing.T) {
				c := r.newCluster(t, Config{Of: mixedLogs, Settings: map[string]string{"cluster.finalize-after": "0s"}})
				c.Start()
				l := startLoad(t, 10, upgradeKeepers(t), 4, c.Nodes)
				mustVerify(t, c.Nodes[0], "before the upgrade")
				for _, i := range order {
					n := c.Nodes[i]
					l.use(c.Others(n))
					n.change(t, "")
					l.use(c.Nodes)
					killLeader(t, c, l)
					mustVerify(t, n, "with "+n.Name+" upgraded")
				}
				c.awaitLevel(t, codec.Newest)
				l.awaitProgress(t)
				l.stop()
				c.WaitReady()
				mustVerify(t, c.Nodes[0], "after the level rose")
				l.check(t, c.Nodes)
			})
		}
	})
}

func TestUpgradeFromAReleaseCanBeTakenBack(t *testing.T) {
	eachRelease(t, func(t *testing.T, r *release) {
		c := r.newCluster(t, Config{Settings: map[string]string{"cluster.finalize": "manual"}})
		c.Start()
		l := startLoad(t, 10, 20, 4, c.Nodes)
		for _, program := range []string{"", need.Got(r.build())(t)} {
			for _, n := range c.Nodes {
				l.use(c.Others(n))
				n.change(t, program)
			}
			l.use(c.Nodes)
			l.awaitProgress(t)
			mustVerify(t, c.Nodes[0], "with all nodes changed")
		}
		l.stop()
		l.check(t, c.Nodes)
	})
}

func TestUpgradeFromAReleaseWithoutConsensus(t *testing.T) {
	eachRelease(t, func(t *testing.T, r *release) {
		c := r.newCluster(t, Config{AP: true, Nodes: 3, Settings: map[string]string{"cluster.finalize-after": "0s"}})
		c.Start()
		l := startLoad(t, 10, 20, 4, c.Nodes)
		for _, n := range c.Nodes {
			l.use(c.Others(n))
			n.change(t, "")
			l.use(c.Nodes)
			l.awaitProgress(t)
		}
		c.awaitLevel(t, codec.Newest)
		l.stop()
		mustConverge(t, c.Nodes)
		l.check(t, c.Nodes)
	})
}

// A removal that a new node replicates into an old one's empty registry stops the old one, as the changelog says; one that
// an old node sends to a new one does not.
func TestUpgradedNodeSurvivesTheRemovalThatStoppedTheFirstRelease(t *testing.T) {
	eachRelease(t, func(t *testing.T, r *release) {
		c := r.newCluster(t, Config{AP: true, Nodes: 2})
		c.Nodes[1].runs = ""
		c.Start()
		old, upgraded := c.Nodes[0], c.Nodes[1]
		mustRegister(t, old, Instance{App: "A", ID: "a-1", Duration: 90})
		reply := old.Cancel("A", "a-1")
		need.That(t, reply.Status == 200, "cancel: %v", reply)
		Eventually(t, ReadyLimit, "the upgraded node knows of the removal", func() error {
			need.That(t, upgraded.Running(), "the upgraded node has ended")
			e, err := upgraded.Explain("A", "a-1")
			return errors.Join(err, unless(e != nil, "not yet"))
		})
		mustRegister(t, old, Instance{App: "B", ID: "b-1", Duration: 90})
		Eventually(t, ReadyLimit, "what came after the removal is at the upgraded node", func() error { return shows(upgraded, "B", "b-1") })
	})
}
