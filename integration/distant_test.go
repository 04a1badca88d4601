package integration

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

// Between the nodes lies 150 ms each way, from the founding on, with Raft's timeouts as they are by default.
func TestNodesFarFromEachOtherServeReadsAndWrites(t *testing.T) {
	t.Parallel()
	c, _ := newDistantCluster(t, 150*time.Millisecond, nil)
	var clients sync.WaitGroup
	for _, n := range c.Nodes {
		clients.Go(func() {
			for _, id := range []string{n.Name + "-0", n.Name + "-1"} {
				err := Poll(ReadyLimit, func() error { // a busy machine may take too long for an answer
					if answer := n.Register(Instance{App: "FAR", ID: id}); answer.Status != http.StatusNoContent {
						return fmt.Errorf("register %s at %s: %v", id, n.Name, answer)
					}
					_, err := n.ListingOf("/eureka/apps?consistency=linearizable")
					return err
				})
				expect.OK(t, err)
			}
		})
	}
	clients.Wait()
}
