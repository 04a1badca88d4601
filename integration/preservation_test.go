package integration

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// herdLimit is how long it may take until the leases of a herd have ended or been renewed: ten times a lease and the
// rounds after it.
const herdLimit = 10 * 2 * herdLease * time.Second

// TestSelfPreservationCommandsSayWhyReleaseAndHold reads and does by the command line what operators do.
func TestSelfPreservationCommandsSayWhyReleaseAndHold(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, withSteadyLeader(Config{Nodes: 1}))
	n := c.Nodes[0]
	h := startHerd(t, "HERD", 20, c.Nodes)
	awaitFigures(t, n, "off", api.Figures{Leases: 20, Counted: 20, Fresh: 20})
	silent := h.silence(12)
	awaitFigures(t, n, "on", api.Figures{Leases: 20, Counted: 20, Fresh: 8, Expired: 12})
	mustSayWhyOnTheCommandLine(t, c, silent[0])

	rollcall(t, "self-preservation", "release", "--author", "ann", "--reason", "the rack is gone", "--addr", n.URL())
	awaitListing(t, n, h.ids()[len(silent):])
	mustRefuseToRelease(t, n)
	rollcall(t, "self-preservation", "hold", "--for", "5m", "--author", "ann", "--reason", "the network is moved", "--addr", n.URL())
	p, err := readUntilTaken(n.Preservation)
	expect.That(t, err == nil && p.State == "held" && p.Author == "ann" && p.Note == "the network is moved" && p.Until != 0,
		"after the command to hold: %+v, %v, want held by ann until a time", p, err)
	h.stop()
	h.check(t)
}

// awaitFigures waits until a node says that self-preservation is in a state, with certain numbers.
func awaitFigures(t *testing.T, n *Node, state string, want api.Figures) (p api.SelfPreservation) {
	t.Helper()
	Eventually(t, herdLimit, fmt.Sprintf("self-preservation is %s on node %s, with %+v", state, n.Name, want), func() (err error) {
		if p, err = n.Preservation(); err == nil && (p.State != state || p.Figures != want) {
			err = fmt.Errorf("%+v", p)
		}
		return err
	})
	return p
}

// awaitListing waits until a node lists these instances and no other.
func awaitListing(t *testing.T, n *Node, want []string) {
	t.Helper()
	Eventually(t, herdLimit, fmt.Sprintf("node %s lists %v", n.Name, want), func() error {
		got := listedIDs(t, n)
		return unless(slices.Equal(got, want), "%v", got)
	})
}

// mustSayWhyOnTheCommandLine expects the same reason from the commands, whichever node is asked.
func mustSayWhyOnTheCommandLine(t *testing.T, c *Cluster, id string) {
	t.Helper()
	for _, n := range c.Nodes {
		var p api.SelfPreservation
		decode(t, rollcall(t, "self-preservation", "-o", "json", "--addr", n.URL()), &p)
		expect.That(t, p.State == "on" && p.Withheld == 12, "self-preservation at %s: %+v, want on with 12 withheld", n.Name, p)
		table := rollcall(t, "self-preservation", "status", "--addr", n.URL())
		expect.That(t, strings.Contains(withoutUntil(string(table)), withoutUntil(p.Reason)),
			"self-preservation status at %s prints\n%s\nwithout %q", n.Name, table, p.Reason)
		var e api.Explanation
		decode(t, rollcall(t, "explain", "HERD/"+id, "-o", "json", "--addr", n.URL()), &e)
		expect.That(t, e.State == "listed" && e.Expired && e.SelfPreservation.Withholds, "explain at %s: %+v, want listed, expired and withheld", n.Name, e)
		table = rollcall(t, "explain", "HERD/"+id, "--addr", n.URL())
		expect.That(t, strings.Contains(strings.ToLower(string(table)), "self-preservation"),
			"explain at %s prints\n%s\nwithout self-preservation's part", n.Name, table)
	}
}

// withoutUntil leaves out until when evictions are withheld at the latest. Nodes know that by the leases' clock,
// and show it by the wall clock of the newest entry: sometimes in one second, sometimes in the next.
func withoutUntil(text string) string {
	return regexp.MustCompile(`until \d[-:0-9 ]* UTC`).ReplaceAllString(text, "")
}

// mustRefuseToRelease expects that there is nothing to release, from the interface and the command.
func mustRefuseToRelease(t *testing.T, n *Node) {
	t.Helper()
	expect.OKf(t, untilNotRefused(func() Response { return n.Release("ann", "again") }).is(409), "release while off")
	out, err := exec.Command(Binary(t), "self-preservation", "release", "--author", "ann", "--reason", "again", "--addr", n.URL()).CombinedOutput()
	expect.That(t, err != nil && strings.Contains(string(out), "nothing to release"), "the command to release while off: %v, it said %s", err, out)
}
