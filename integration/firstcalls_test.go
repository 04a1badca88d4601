package integration

import (
	"fmt"
	"testing"
	"time"
)

// TestFirstCallsOfAnEvaluatorEndNoNode registers an instance with clusters that never had one, and cancels it at once: the other
// nodes, or the other datacenter, may hear of the removal alone.
func TestFirstCallsOfAnEvaluatorEndNoNode(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) []*Node{
		"a datacenter without consensus": func(t *testing.T) []*Node { return StartCluster(t, Config{AP: true}).Nodes },
		"two datacenters with consensus": func(t *testing.T) []*Node { return StartDatacenters(t, 2, Config{Nodes: 1}).Nodes() },
		"two datacenters without":        func(t *testing.T) []*Node { return StartDatacenters(t, 2, Config{Nodes: 1, AP: true}).Nodes() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := start(t)
			mustRegister(t, nodes[0], Instance{App: "A", ID: "a-1"})
			mustCancel(t, nodes[0], "A", "a-1")
			mustServe(t, nodes, 10*time.Second)
			mustRegister(t, nodes[0], Instance{App: "A", ID: "a-2"}) // the removal was sent before it
			for _, n := range nodes {
				awaitListed(t, n, wantListed("a-2"))
			}
		})
	}
}

// mustServe asks all nodes again and again for a time whether they are ready. It fails as soon as the process of one has ended, or
// if one is not ready when the time has passed; until then a busy machine may keep it from replying.
func mustServe(t *testing.T, nodes []*Node, lasting time.Duration) {
	t.Helper()
	last := time.Now().Add(lasting)
	Eventually(t, lasting+ReadyLimit, fmt.Sprintf("all nodes are ready for %v", lasting), func() error {
		for _, n := range nodes {
			if !n.Running() {
				t.Fatalf("node %s has ended", n.Name)
			}
			if err := n.Ready(); err != nil {
				return fmt.Errorf("node %s: %w", n.Name, err)
			}
		}
		return unless(time.Now().After(last), "ready so far")
	})
}
