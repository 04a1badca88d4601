package integration

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// The next version is the program under test with one more level of the formats, and with one operation that needs
// it: PUT /v1/rollcall/notes/KEY.

// putNote sends the operation of the next level.
func (n *Node) putNote(key string) Response {
	return n.Do(Request{Method: "PUT", Path: "/v1/rollcall/notes/" + key + "?value=x"})
}

// levels returns what a node says about the cluster's level.
func (n *Node) levels(t *testing.T) (u api.Upgrade) {
	t.Helper()
	decode(t, n.Get("/v1/rollcall/upgrade").Body, &u)
	return u
}

// awaitLevel waits until every node writes a level. The nodes must read it for half a minute before.
func (c *Cluster) awaitLevel(t *testing.T, level int) {
	t.Helper()
	for _, n := range c.Nodes {
		Eventually(t, 5*ReadyLimit, fmt.Sprintf("%s writes level %d", n.Name, level), func() error {
			return notYet(n.levels(t).Level, level)
		})
	}
}

// change stops a node as a service manager does and starts it with another program; "" for the one under test.
func (n *Node) change(t *testing.T, program string) {
	t.Helper()
	n.Stop(t)
	n.runs = program
	n.Start(t)
	n.WaitReady(t)
}

// upgradeOrders returns the orders of upgrading the three nodes: those in ROLLCALL_UPGRADE_ORDERS, "all" of
// them, or one.
func upgradeOrders() [][]int {
	all := [][]int{{2, 0, 1}, {0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 1, 0}}
	if os.Getenv("ROLLCALL_UPGRADE_ORDERS") == "all" {
		return all
	}
	return all[:1]
}

// upgradeKeepers returns how many instances are kept alive meanwhile, each with a heartbeat every two seconds.
func upgradeKeepers(t *testing.T) int {
	text := os.Getenv("ROLLCALL_UPGRADE_KEEPERS")
	if text == "" {
		return 40
	}
	return need.Got(strconv.Atoi(text))(t)
}

// The nodes are upgraded one after the other, and the leader is killed after each step. Until the last one runs the
// new version an operation that needs it is refused, in words; then it is done.
func TestUpgradeInAnyOrderLosesNothing(t *testing.T) {
	orders := upgradeOrders()
	if len(orders) == 1 {
		t.Parallel() // all of them need thousands of heartbeats, and have the machine to themselves
	}
	next := otherProgram(t, "-tags=nextlevel")
	for _, order := range orders {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			c := StartCluster(t, Config{Settings: map[string]string{"cluster.finalize-after": "0s"}})
			l := startLoad(t, 10, upgradeKeepers(t), 4, c.Nodes)
			for step, i := range order {
				n := c.Nodes[i]
				l.use(c.Others(n))
				n.change(t, next)
				l.use(c.Nodes)
				killLeader(t, c, l)
				for _, upgraded := range order[:step+1] {
					r := c.Nodes[upgraded].putNote("early")
					if step < 2 {
						expect.That(t, r.Status == 501 && strings.Contains(string(r.Body), "needs all nodes at 0.2; n"), "step %d: got %v, want 501 with the nodes that lack it", step, r)
					}
				}
			}
			c.awaitLevel(t, 4)
			for _, n := range c.Nodes {
				// 503 until it has applied the raise
				Eventually(t, ReadyLimit, n.Name+" takes the operation of the level", func() error {
					r := n.putNote("late")
					need.That(t, r.Status == 200 || r.Status == 503, "%s: got %v, want 200", n.Name, r)
					return unless(r.Status == 200, "%v", r)
				})
			}
			l.stop()
			c.WaitReady()
			l.check(t, c.Nodes)
			mustRefuseOldVersions(t, c)
		})
	}
}

// mustRefuseOldVersions checks that after the level has risen, the version before neither starts on the data of a
// node nor joins.
func mustRefuseOldVersions(t *testing.T, c *Cluster) {
	t.Helper()
	leader := c.Leader()
	n := c.Others(leader)[0]
	n.Stop(t)
	n.runs = ""
	n.Start(t)
	code := n.ExitCode(t, ReadyLimit)
	expect.That(t, code != 0 && strings.Contains(n.Output(t), "level 4 of the formats, this program reads 1 to 3: start the newer version again"),
		"the version before on data of level 4: exit code %d", code)
	fresh := newNode(t, t.TempDir(), "n4")
	fresh.Settings["cluster.join"] = leader.Cluster
	fresh.Start(t)
	want := `the cluster writes level 4 of the formats, and node \"n4\" runs `
	Eventually(t, ReadyLimit, "a new node of the version before is refused", func() error {
		return unless(strings.Contains(fresh.Output(t), want), "its log lacks %s", want)
	})
}

// Before the level rises, the way back is open: the older version starts on the same directories.
func TestUpgradeCanBeTakenBackBeforeItIsFinal(t *testing.T) {
	t.Parallel()
	next := otherProgram(t, "-tags=nextlevel")
	c := StartCluster(t, Config{Settings: map[string]string{"cluster.finalize": "manual"}})
	l := startLoad(t, 10, 20, 4, c.Nodes)
	for _, program := range []string{next, ""} {
		for _, n := range c.Nodes {
			l.use(c.Others(n))
			n.change(t, program)
		}
		l.use(c.Nodes)
		l.awaitProgress(t)
		if program == next {
			// a node that was just restarted may not respond at once
			Eventually(t, ReadyLimit, "level 4 waits for an operator", func() error {
				u := c.Nodes[0].levels(t)
				return unless(u.Level == 3 && u.Next == 4 && u.Lacking == "" && u.Due == 0, "all nodes upgraded: got %+v", u)
			})
			Eventually(t, ReadyLimit, "the operation is refused with the command", func() error {
				r := c.Nodes[1].putNote("early")
				return unless(r.Status == 501 && strings.Contains(string(r.Body), "rollcall upgrade finalize"), "%v", r)
			})
		}
	}
	l.stop()
	l.check(t, c.Nodes)
}

// The way back is also open if no node had time to save a snapshot: the newer version, too, writes its log as the
// older one reads it.
func TestUpgradeCanBeTakenBackAfterAPowerCut(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{Settings: map[string]string{"cluster.finalize": "manual"}})
	mustRegister(t, c.Leader(), Instance{App: "KEPT", ID: "before", Duration: 300})
	for version, program := range []string{otherProgram(t, "-tags=nextlevel"), ""} {
		for _, n := range c.Nodes {
			n.Kill()
		}
		for _, n := range c.Nodes {
			n.runs = program
			n.Start(t)
		}
		c.WaitReady()
		mustRegister(t, c.Leader(), Instance{App: "KEPT", ID: fmt.Sprint("of-", version), Duration: 300})
	}
	for _, n := range c.Nodes {
		listed := need.Got(n.Listing())(t)
		expect.That(t, len(listed) == 3, "%s lists %v, want all three", n.Name, listed)
	}
}

// An operation that the leader cannot read is refused alone, and soon: the heartbeats beside it succeed.
func TestOperationOfAnUpgradedFollowerIsRefusedAlone(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{})
	n := c.Others(c.Leader())[0]
	n.change(t, otherProgram(t, "-tags=nextlevel"))
	const clients, beats = 50, 10
	for i := range clients {
		mustRegister(t, n, Instance{App: "KEPT", ID: fmt.Sprint("kept-", i), Duration: 90})
	}
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for range beats {
				r := n.Renew("KEPT", fmt.Sprint("kept-", i))
				expect.That(t, r.Outcome() == Done, "a heartbeat beside the operation: %v", r)
			}
		})
	}
	began := time.Now()
	r := n.putNote("early")
	took := time.Since(began)
	all.Wait()
	t.Logf("refused after %v", took)
	expect.That(t, r.Status == 501 && strings.Contains(string(r.Body), "needs all nodes at 0.2"), "got %v, want 501", r)
}

// Without the gate, a leader of the next version writes what the others cannot read, and they stop: the tests of
// upgrades must see that.
func TestUpgradeWithoutTheGateStopsTheOtherNodes(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{})
	leader := c.Leader()
	n := c.Others(leader)[0]
	n.Stop(t)
	n.runs = otherProgram(t, "-tags=nextlevel,nogate")
	n.Start(t)
	others := c.Others(n)
	// It leads sooner or later, if the others stop leading whenever they do.
	Eventually(t, 5*ReadyLimit, "a node of the version before stops with an error", func() error {
		for _, o := range others {
			if !o.Running() {
				out := o.Output(t)
				return unless(strings.Contains(out, "level 4 of the formats, this program reads 1 to 3"), "%s ended for another reason: %.300s", o.Name, out)
			}
		}
		if l := c.Leader(); l != n {
			l.Signal(t, syscall.SIGTERM)
			l.ExitCode(t, StopLimit)
			need.OK(t, l.Node.Start(l.program(t))) // it may end at once, and that is checked
			l.process = adopt(t, l.Process)
		}
		return fmt.Errorf("all run")
	})
}

// A version may not be skipped.
func TestVersionThatReadsNothingOfWhatIsThereSaysWhichToGoThrough(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{Nodes: 1})
	n := c.Nodes[0]
	mustRegister(t, n, Instance{App: "A", ID: "a", Duration: 90})
	n.Stop(t)
	n.runs = otherProgram(t, "-tags=skiplevel")
	n.Start(t)
	code := n.ExitCode(t, ReadyLimit)
	expect.That(t, code != 0 && strings.Contains(n.Output(t), "go through version 0.2 first"), "exit code %d, output %s", code, n.Output(t))
	n.runs = ""
	n.Start(t)
	n.WaitReady(t)
	need.OK(t, shows(n, "A", "a"))
}

// Without consensus each node writes the lowest level of its datacenter until all read the next one.
func TestUpgradeWithoutConsensus(t *testing.T) {
	t.Parallel()
	next := otherProgram(t, "-tags=nextlevel")
	c := StartCluster(t, Config{AP: true, Nodes: 2, Settings: map[string]string{"cluster.finalize": "manual"}})
	c.awaitLevel(t, 3) // a new node rises to what all of its datacenter read
	l := startLoad(t, 10, 20, 4, c.Nodes)
	c.Nodes[0].change(t, next)
	expect.Equal(t, c.Nodes[0].levels(t).Level, 3, "beside a node of the version before it writes level")
	r := c.Nodes[0].Do(Request{Method: "POST", Path: "/v1/rollcall/upgrade/finalize"})
	expect.That(t, r.Status == 409, "finalized beside a node of the version before: %v", r)
	l.awaitProgress(t)
	c.Nodes[1].change(t, next)
	Eventually(t, 3*ReadyLimit, "the upgrade can be finalized", func() error {
		r := c.Nodes[1].Do(Request{Method: "POST", Path: "/v1/rollcall/upgrade/finalize"})
		return unless(r.Status == 200, "%v", r)
	})
	c.awaitLevel(t, 4)
	l.awaitProgress(t)
	l.stop()
	mustConverge(t, c.Nodes)
	l.check(t, c.Nodes)
	n := c.Nodes[0]
	n.Stop(t)
	n.runs = ""
	n.Start(t)
	code := n.ExitCode(t, ReadyLimit)
	expect.That(t, code != 0 && strings.Contains(n.Output(t), "start the newer version again"), "the version before on a file of level 4: exit code %d", code)
}

// release is a version from which this one is upgraded.
type release struct {
	version, commit string
	build           func() (program string, err error) // once
}

var releases = []*release{newRelease("v0.1.1", "5ad4626f"), newRelease("v0.1.0", "4b317dc4")}

// eachRelease runs a test for each release, only by make upgrades, which needs the history of the repository and
// builds them.
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

// newCluster lays out a cluster that runs the release once it is started.
func (r *release) newCluster(t *testing.T, cfg Config) *Cluster {
	t.Helper()
	program := need.Got(r.build())(t)
	c := NewCluster(t, cfg)
	for _, n := range c.Nodes {
		n.runs = program
	}
	return c
}

// mustVerify checks that the nodes' digests are equal.
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

// A removal that a new node replicates into an old one's empty registry stops the old one, as the changelog says; one
// that an old node sends to a new one does not.
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
