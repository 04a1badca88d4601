package integration

import (
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

// twoRemovalsRound removes two nodes at the same moment, through two nodes, while a third stands still. Each
// removal alone leaves a majority. Both together would leave two voters of which one stands still: nobody
// could ever elect again.
func twoRemovalsRound(t *testing.T) {
	c := StartCluster(t, Config{Nodes: 4})
	leader := c.Leader()
	others := c.Others(leader)
	still := others[2]
	still.Pause(t)
	defer still.Resume(t)

	removed := removeAtOnce(t, others[0], others[1])
	expect.That(t, len(removed) <= 1, "%v were both removed while %s stood still", removed, still.Name)
	Eventually(t, ReadyLimit, "a write is taken after the removals", func() error {
		for _, n := range c.Others(still) {
			if !n.Running() {
				continue // it was removed, and stopped
			}
			answer := n.Register(Instance{App: "orders", ID: "after"})
			if answer.Status == 204 {
				return nil
			}
			t.Logf("register at %s: %v", n.Name, answer)
		}
		return fmt.Errorf("removed: %v, refused at every node", removed)
	})
}

// removeAtOnce removes each node by a command of its own, sent to that node, and returns which of the
// commands say that it is removed.
func removeAtOnce(t *testing.T, nodes ...*Node) []string {
	t.Helper()
	said := make([]error, len(nodes))
	var all sync.WaitGroup
	for i, n := range nodes {
		all.Go(func() {
			out, err := exec.Command(Binary(t), "members", "remove", n.Name, "--addr", n.URL()).CombinedOutput()
			if err != nil {
				said[i] = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
			}
		})
	}
	all.Wait()
	var removed []string
	for i, n := range nodes {
		if said[i] == nil {
			removed = append(removed, n.Name)
		} else {
			t.Logf("remove %s: %v", n.Name, said[i])
		}
	}
	return removed
}
