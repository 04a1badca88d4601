package integration

import (
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// herdLimit is how long it may take until the leases of a herd have ended or been renewed: ten times a lease and the
// rounds after it.
const herdLimit = 10 * 2 * herdLease * time.Second

func TestSelfPreservationKeepsTheSilentUntilAnOperatorReleasesThem(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		c := StartCluster(t, withSteadyLeader(smallConfig(ap, 1)))
		h := startHerd(t, "HERD", 20, c.Nodes)
		awaitFigures(t, c.Nodes[0], "off", api.Figures{Leases: 20, Counted: 20, Fresh: 20})
		silent := h.silence(12)

		for _, n := range c.Nodes {
			p := awaitFigures(t, n, "on", api.Figures{Leases: 20, Counted: 20, Fresh: 8, Expired: 12})
			mustWithhold(t, n, p, silent)
		}
		mustSayWhyOnTheCommandLine(t, c, silent[0])
		Pass(t, herdLease*time.Second) // some rounds in which they would be evicted
		for _, n := range c.Nodes {
			mustListExactly(t, n, h.ids())
		}

		rollcall(t, "self-preservation", "release", "--author", "ann", "--reason", "the rack is gone", "--addr", c.Nodes[len(c.Nodes)-1].URL())
		for _, n := range c.Nodes {
			awaitListing(t, n, h.ids()[len(silent):])
			mustTellOfTheRelease(t, n)
		}
		mustHaveGoneByShares(t, c, "HERD", silent, 20)
		h.stop()
		h.check(t)
	})
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

// mustWithhold expects that a node explains why no instance is evicted, and names the instances that would be.
func mustWithhold(t *testing.T, n *Node, p api.SelfPreservation, silent []string) {
	t.Helper()
	expect.That(t, int(p.Withheld) == len(silent) && strings.Contains(p.Reason, "8") && strings.Contains(p.Reason, "20"),
		"node %s withholds %d evictions because %q, want %d and the numbers", n.Name, p.Withheld, p.Reason, len(silent))
	var overdue []string
	for _, app := range p.Applications {
		for _, o := range app.Overdue {
			overdue = append(overdue, app.App+"/"+o.ID)
		}
	}
	slices.Sort(overdue)
	var want []string
	for _, id := range silent {
		want = append(want, "HERD/"+id)
	}
	expect.That(t, slices.Equal(overdue, want), "node %s calls %v overdue, want %v", n.Name, overdue, want)
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

// mustTellOfTheRelease expects that self-preservation went on, was released by the operator, and is off again since all
// remaining leases are fresh.
func mustTellOfTheRelease(t *testing.T, n *Node) {
	t.Helper()
	Eventually(t, herdLimit, "self-preservation is off again on node "+n.Name, func() error {
		p, err := n.Preservation()
		if err == nil && p.State != "off" {
			err = fmt.Errorf("%+v", p)
		}
		return err
	})
	p := need.Got(readUntilTaken(n.Preservation))(t)
	need.Slice(t, states(p), []string{"off", "released", "on"}, "node %s remembers, newest first,", n.Name)
	r := p.Transitions[1]
	expect.That(t, r.Author == "ann" && strings.Contains(r.Reason, "the rack is gone"), "node %s remembers the release as %+v", n.Name, r)
}

// states are the remembered transitions, newest first.
func states(p api.SelfPreservation) []string {
	var states []string
	for _, tr := range p.Transitions {
		states = append(states, tr.State)
	}
	return states
}

// mustHaveGoneByShares expects that instances were evicted in rounds of at most 15 % of what was left
// of a registry of size; those of a round have their eviction's time in common.
func mustHaveGoneByShares(t *testing.T, c *Cluster, app string, evicted []string, size int) {
	t.Helper()
	rounds := map[int64]int{}
	for _, id := range evicted {
		e := mustExplainAlike(t, c.Nodes, app, id)
		last := e.History[len(e.History)-1]
		need.That(t, e.State == "gone" && e.Removed != nil && e.Removed.Kind == "evicted" && last.What == "evicted",
			"%s is explained by %+v, want that it was evicted", id, e)
		rounds[last.At]++
	}
	for _, at := range slices.Sorted(maps.Keys(rounds)) {
		n := rounds[at]
		limit := size - size*85/100
		expect.That(t, n <= limit, "a round took %d of %d, want at most %d; rounds: %v", n, size, limit, rounds)
		size -= n
	}
}

// mustExplainAlike expects the same history of an instance from every node, and returns it.
func mustExplainAlike(t *testing.T, nodes []*Node, app, id string) *api.Explanation {
	t.Helper()
	var first *api.Explanation
	for _, n := range nodes {
		e, err := readUntilTaken(func() (*api.Explanation, error) { return n.Explain(app, id) })
		need.That(t, err == nil && e != nil && len(e.History) != 0, "node %s explains %s/%s by %+v, %v, want a history", n.Name, app, id, e, err)
		if first == nil {
			first = e
		}
		expect.That(t, reflect.DeepEqual(e.History, first.History) && e.State == first.State,
			"node %s explains %s/%s by %+v, %s by %+v", n.Name, app, id, e, nodes[0].Name, first)
	}
	return first
}

func TestSelfPreservationEndsByItselfWhenTheSilentReturn(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		c := StartCluster(t, withSteadyLeader(smallConfig(ap, 1)))
		h := startHerd(t, "HERD", 20, c.Nodes)
		awaitFigures(t, c.Nodes[0], "off", api.Figures{Leases: 20, Counted: 20, Fresh: 20})
		h.silence(12)
		awaitFigures(t, c.Nodes[len(c.Nodes)-1], "on", api.Figures{Leases: 20, Counted: 20, Fresh: 8, Expired: 12})
		h.wake()
		for _, n := range c.Nodes {
			p := awaitFigures(t, n, "off", api.Figures{Leases: 20, Counted: 20, Fresh: 20})
			expect.That(t, p.Withheld == 0 && p.Transitions[0].Author == "", "node %s: %+v, want nothing withheld and no operator", n.Name, p)
			mustListExactly(t, n, h.ids())
		}
		h.stop()
		h.check(t)
	})
}

// TestSelfPreservationHoldOutlivesALeaderAndEndsAtItsTime holds evictions for longer than a lease and an election last,
// so that the lease has ended when the hold does. Without consensus the node that received the hold dies, and the
// others have it by replication.
func TestSelfPreservationHoldOutlivesALeaderAndEndsAtItsTime(t *testing.T) {
	t.Parallel()
	const hold = 25 * time.Second // a busy cluster takes some of it for the election
	eachMode(t, func(t *testing.T, ap bool) {
		c := StartCluster(t, Config{AP: ap})
		lost := c.Nodes[0]
		if !ap {
			lost = c.Leader()
		}
		others := c.Others(lost)
		began := time.Now()
		rollcall(t, "self-preservation", "hold", "--for", hold.String(), "--author", "ann", "--reason", "the network is moved", "--addr", lost.URL())
		mustRegister(t, others[0], Instance{App: "MORTAL", ID: "dead", Duration: 3})
		c.mustOnEvery(t, "the hold", func(n *Node) error {
			p, err := n.Preservation()
			if err == nil && p.State != "held" {
				err = errors.New(p.State)
			}
			return err
		})
		c.mustListEverywhere(t, "dead")
		lost.Kill()
		for _, n := range others {
			awaitHeldBeyondLease(t, n)
		}
		for _, n := range others {
			awaitListing(t, n, nil)
		}
		took := time.Since(began)
		expect.That(t, took >= hold, "the dead instance went after %v, evictions were held for %v", took, hold)
		for _, n := range others {
			p, err := readUntilTaken(n.Preservation)
			expect.That(t, err == nil && p.State == "off", "node %s: %+v, %v, want off", n.Name, p, err)
		}
		mustRefuseToRelease(t, others[0])
	})
}

// awaitHeldBeyondLease waits until a node explains that the operator's hold keeps the instance whose lease has ended.
func awaitHeldBeyondLease(t *testing.T, n *Node) {
	t.Helper()
	Eventually(t, ReadyLimit, "the hold keeps an ended lease on node "+n.Name, func() error {
		p, err := n.Preservation()
		if err != nil {
			return err
		}
		need.That(t, p.State == "held" && p.Author == "ann" && p.Note == "the network is moved" && p.Until != 0,
			"node %s: %+v, want held by ann until a time", n.Name, p)
		return notYet(int(p.Withheld), 1)
	})
}

// mustRefuseToRelease expects that there is nothing to release, from the interface and the command.
func mustRefuseToRelease(t *testing.T, n *Node) {
	t.Helper()
	expect.OKf(t, untilNotRefused(func() Response { return n.Release("ann", "again") }).is(409), "release while off")
	out, err := exec.Command(Binary(t), "self-preservation", "release", "--author", "ann", "--reason", "again", "--addr", n.URL()).CombinedOutput()
	expect.That(t, err != nil && strings.Contains(string(out), "nothing to release"), "the command to release while off: %v, it said %s", err, out)
}
