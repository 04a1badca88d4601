package store

import "testing"

// As after a start with a long log, Raft takes nothing for longer than an entry waits for its place.
func TestALeaderWhoseRaftTakesNothingForAWhileLeadsInTheEnd(t *testing.T) {
	c := startCluster(t, 1, nil)
	if err := c.nodes[0].halt(); err != nil {
		t.Fatal(err)
	}
	cfg := c.nodes[0].cfg
	cfg.SyncDelay = enqueueTimeout * 11 / 10
	c.nodes[0] = c.start(cfg)
	c.waitReady(0)
}
