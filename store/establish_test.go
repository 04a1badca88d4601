package store

import (
	"testing"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// As after a start with a long log, Raft takes nothing for longer than an entry waits for its place.
func TestALeaderWhoseRaftTakesNothingForAWhileLeadsInTheEnd(t *testing.T) {
	c := startCluster(t, 1, nil)
	need.OK(t, c.nodes[0].halt())
	cfg := c.nodes[0].cfg
	cfg.Test.SyncDelay = enqueueTimeout * 11 / 10
	c.nodes[0] = c.start(cfg)
	c.waitReady(0)
}
