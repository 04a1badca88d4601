package integration

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// TestLeaderLossEvictsOnlyTheDead takes the leader away for longer than a lease, while all instances but one renew
// through followers. The next leader evicts the dead one, not before clients have had time to come back to it, and all
// nodes explain it, even after all of them have restarted.
func TestLeaderLossEvictsOnlyTheDead(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name          string
		lose, bringUp func(*testing.T, *Node)
	}{
		{"killed", func(_ *testing.T, n *Node) { n.Kill() }, func(t *testing.T, n *Node) { n.Start(t) }},
		{"paused", func(t *testing.T, n *Node) { n.Pause(t) }, func(t *testing.T, n *Node) { n.Resume(t) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			const lease, mortal = 9, 6 // seconds: of the instances that renew, and of the dead one
			c := StartCluster(t, Config{})
			leader := c.Leader()
			others := c.Others(leader)
			l := startLoad(t, lease, 6, 0, others)
			mustRegister(t, others[0], Instance{App: "MORTAL", ID: "dead", Duration: mortal})
			Pass(t, mortal*time.Second/3) // so that its own end comes before that of the grace
			leader = c.Leader()           // a busy machine may have changed it
			others = c.Others(leader)
			l.use(others)
			lost := time.Now()
			tc.lose(t, leader)
			c.Leader(others...)
			back := time.Now()

			for _, n := range others {
				awaitGone(t, n, "dead", mortal)
			}
			absentAt := time.Now()
			took := absentAt.Sub(lost)
			expect.That(t, took >= mortal*time.Second,
				"the dead instance went %v after the leader was lost, the next one has to give %d s of grace", took, mortal)
			t.Logf("it went %v after the leader was lost; the next one, which gives %d s of grace, was known %v after that at the latest", absentAt.Sub(lost), mortal, back.Sub(lost))
			Pass(t, time.Until(lost.Add((lease+1)*time.Second))) // the newest renewal that it knows is longer ago than a lease lasts
			tc.bringUp(t, leader)
			leader.WaitReady(t)
			l.use(c.Nodes)
			Pass(t, lease*time.Second) // in which an earlier leader would evict
			l.stop()
			l.check(t, c.Nodes)
			mustTellTheStory(t, c)
		})
	}
}

// awaitGone waits until a node does not list an instance whose lease has so many seconds.
func awaitGone(t *testing.T, n *Node, id string, lease int) {
	t.Helper()
	Eventually(t, max(ReadyLimit, 10*time.Duration(lease)*time.Second), id+" is gone from node "+n.Name, func() error {
		if _, listed := mustList(t, n)[id]; listed {
			return errors.New("still listed")
		}
		return nil
	})
}

// mustTellTheStory expects all nodes to explain the dead instance, now and after a restart of all.
func mustTellTheStory(t *testing.T, c *Cluster) {
	t.Helper()
	before := mustExplainAlike(t, c.Nodes, "MORTAL", "dead")
	expect.That(t, before.State == "gone" && before.Removed != nil && before.Removed.Kind == "evicted",
		"the dead instance is explained by %+v, want gone by eviction", before)
	expect.Slice(t, happened(before), []string{"registered", "evicted"}, "its history is")
	last := before.History[len(before.History)-1]
	expect.That(t, last.Text != "", "%+v does not say why", last)
	for _, n := range c.Nodes {
		n.Stop(t)
	}
	c.Start()
	after := mustExplainAlike(t, c.Nodes, "MORTAL", "dead")
	expect.That(t, slices.Equal(after.History, before.History) && after.State == before.State,
		"after the restart it is explained by %+v, before by %+v", after, before)
}

// happened are the words of a history.
func happened(e *api.Explanation) []string {
	var what []string
	for _, event := range e.History {
		what = append(what, event.What)
	}
	return what
}

// TestExplainOfAnInstanceThatNeverWasIs404 asks every node for an instance that was never registered.
func TestExplainOfAnInstanceThatNeverWasIs404(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		for _, n := range StartCluster(t, smallConfig(ap, 1)).Nodes {
			e, err := readUntilTaken(func() (*api.Explanation, error) { return n.Explain("NOBODY", "never") })
			expect.That(t, e == nil && err == nil, "node %s explains what never was by %+v, %v, want 404", n.Name, e, err)
		}
	})
}
