package integration

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// ownDisk runs a node with a data directory on a disk of its own, of so many MiB, in a mount
// namespace that ends with it.
func ownDisk(t *testing.T, n *Node, mib int) {
	t.Helper()
	if out, err := exec.Command("unshare", "-Urm", "true").CombinedOutput(); err != nil {
		lacks(t, "unshare -Urm does not work here (%v: %s): allow unprivileged user namespaces, or run as root", err, out)
	}
	need.OK(t, os.MkdirAll(n.Dir, 0o700))
	mount := fmt.Sprintf(`mount -t tmpfs -o size=%dm none "$0" && exec "$@"`, mib)
	n.within = []string{"unshare", "-Urm", "sh", "-c", mount, n.Dir}
}

// TestNodeWhoseDiskIsFullStopsAndTheOthersGoOn fills the disk of one node: it must end by itself,
// with the exit code that says so, and nothing that was acknowledged may be missing afterwards.
func TestNodeWhoseDiskIsFullStopsAndTheOthersGoOn(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		c := NewCluster(t, Config{AP: ap, Settings: map[string]string{"data.min-free": "0"}})
		for _, n := range c.Nodes[:2] {
			ownDisk(t, n, 256)
		}
		small, others := c.Nodes[2], c.Nodes[:2]
		ownDisk(t, small, 4)
		c.Start()
		acknowledged := fillDisk(t, small, others)
		expect.Equal(t, small.ExitCode(t, StopLimit), 3, "%s ended with exit code", small.Name)
		if out := small.Output(t); !strings.Contains(out, "no space left on device") {
			t.Errorf("the log of %s does not say that its disk is full:\n%s", small.Name, small.LastWords(10))
		}
		t.Logf("%s ended after %d acknowledged registrations", small.Name, len(acknowledged))

		if !ap {
			c.Leader(others...)
		}
		for _, n := range others {
			mustRegisterSoon(t, n, Instance{App: "AFTER", ID: "of-" + n.Name})
		}
		listing := mustConverge(t, others)
		for id := range acknowledged {
			_, ok := listing[id]
			expect.That(t, ok, "the others lack %s, which was acknowledged", id)
		}
	})
}

// fillDisk registers large instances at the others until a node has ended, and returns those that were
// acknowledged.
func fillDisk(t *testing.T, small *Node, others []*Node) map[string]bool {
	t.Helper()
	acknowledged := map[string]bool{}
	pad := strings.Repeat("x", 60_000)
	deadline := time.Now().Add(ReadyLimit)
	for i := 0; small.Running(); i++ {
		need.That(t, !time.Now().After(deadline), "%s still runs after %d registrations of 60 KB on a disk of 4 MiB", small.Name, i)
		id := fmt.Sprintf("i%d", i)
		if others[i%2].Register(Instance{App: "FULL", ID: id, Duration: 600, Metadata: map[string]string{"pad": pad}}).Status == 204 {
			acknowledged[id] = true
		}
	}
	return acknowledged
}
