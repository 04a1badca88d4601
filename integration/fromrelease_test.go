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

// lastRelease is the commit of version 0.1.0, from which this version is upgraded.
const lastRelease = "4b317dc4"

// needsReleased skips a test outside of make upgrades, which needs the history of the repository and builds the last release.
func needsReleased(t *testing.T) {
	t.Helper()
	if os.Getenv("ROLLCALL_UPGRADE_ORDERS") == "" {
		t.Skip("upgrades from the last release run by make upgrades")
	}
}

var buildReleased = sync.OnceValues(func() (string, error) {
	dir, path := filepath.Join(built, "released"), filepath.Join(built, "rollcall-released")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	archive, err := exec.Command("git", "-C", "..", "archive", lastRelease).Output()
	if err != nil {
		return "", fmt.Errorf("read the last release from the repository's history: %w", err)
	}
	unpack := exec.Command("tar", "-x", "-C", dir)
	unpack.Stdin = bytes.NewReader(archive)
	if out, err := unpack.CombinedOutput(); err != nil {
		return "", fmt.Errorf("unpack the last release: %w\n%s", err, out)
	}
	build := exec.Command("go", "build", "-ldflags", "-X main.version=v0.1.0", "-o", path, "./cmd/rollcall")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the last release: %w\n%s", err, out)
	}
	return path, nil
})

// releasedProgram returns the path of the last release's program, which it builds once.
func releasedProgram(t *testing.T) string {
	t.Helper()
	return need.Got(buildReleased())(t)
}

// newReleasedCluster makes a cluster that runs the last release once it is started.
func newReleasedCluster(t *testing.T, cfg Config) *Cluster {
	t.Helper()
	program := releasedProgram(t)
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

func TestUpgradeFromTheLastReleaseLosesNothing(t *testing.T) {
	needsReleased(t)
	for _, order := range upgradeOrders() {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			c := newReleasedCluster(t, Config{Of: mixedLogs, Settings: map[string]string{"cluster.finalize-after": "0s"}})
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
}

func TestUpgradeFromTheLastReleaseCanBeTakenBack(t *testing.T) {
	needsReleased(t)
	program := releasedProgram(t)
	c := newReleasedCluster(t, Config{Settings: map[string]string{"cluster.finalize": "manual"}})
	c.Start()
	l := startLoad(t, 10, 20, 4, c.Nodes)
	for _, program := range []string{"", program} {
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
}

func TestUpgradeFromTheLastReleaseWithoutConsensus(t *testing.T) {
	needsReleased(t)
	c := newReleasedCluster(t, Config{AP: true, Nodes: 3, Settings: map[string]string{"cluster.finalize-after": "0s"}})
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
}

// A removal that a new node replicates into an old one's empty registry stops the old one, as the changelog says; one that
// an old node sends to a new one does not.
func TestUpgradedNodeSurvivesTheRemovalThatStoppedTheLastRelease(t *testing.T) {
	needsReleased(t)
	c := newReleasedCluster(t, Config{AP: true, Nodes: 2})
	c.Nodes[1].runs = ""
	c.Start()
	old, upgraded := c.Nodes[0], c.Nodes[1]
	mustRegister(t, old, Instance{App: "A", ID: "a-1", Duration: 90})
	r := old.Cancel("A", "a-1")
	need.That(t, r.Status == 200, "cancel: %v", r)
	Eventually(t, ReadyLimit, "the upgraded node knows of the removal", func() error {
		need.That(t, upgraded.Running(), "the upgraded node has ended")
		e, err := upgraded.Explain("A", "a-1")
		return errors.Join(err, unless(e != nil, "not yet"))
	})
	mustRegister(t, old, Instance{App: "B", ID: "b-1", Duration: 90})
	Eventually(t, ReadyLimit, "what came after the removal is at the upgraded node", func() error { return shows(upgraded, "B", "b-1") })
}
