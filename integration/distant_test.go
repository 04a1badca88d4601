package integration

import (
	"net/http"
	"sync"
	"testing"
	"time"
)

// Between the nodes lies 150 ms each way, from the founding on, with Raft's timeouts as they are by default.
func TestNodesFarFromEachOtherServeReadsAndWrites(t *testing.T) {
	t.Parallel()
	c, _ := newDistantCluster(t, 150*time.Millisecond, nil)
	var clients sync.WaitGroup
	for _, n := range c.Nodes {
		clients.Go(func() {
			for _, id := range []string{n.Name + "-0", n.Name + "-1"} {
				if answer := n.Register(Instance{App: "FAR", ID: id}); answer.Status != http.StatusNoContent {
					t.Errorf("register %s: %v", id, answer)
				}
				if answer := n.Get("/eureka/apps?consistency=linearizable"); answer.Status != http.StatusOK {
					t.Errorf("linearizable read at %s: %v", n.Name, answer)
				}
			}
		})
	}
	clients.Wait()
}
