package compare

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/client"
)

const (
	leaderWithin = 5 * time.Second // one must have been elected, or nobody can be struck as the leader
	leaderPoll   = 50 * time.Millisecond
	statusWithin = time.Second
)

// leaderOf finds the leader of the first datacenter by asking its nodes, and waits a while if there is none.
func leaderOf(nodes []Node) func(ctx context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		transport := new(http.Transport)
		defer transport.CloseIdleConnections()
		h := &http.Client{Transport: transport}
		ctx, cancel := context.WithTimeoutCause(ctx, leaderWithin, fmt.Errorf("no leader within %s", leaderWithin))
		defer cancel()
		leader := -1
		await(ctx, leaderPoll, func() bool {
			leader = askForLeader(ctx, h, nodes)
			return leader >= 0
		})
		if leader < 0 {
			return 0, fmt.Errorf("find the leader: %w", context.Cause(ctx))
		}
		return leader, nil
	}
}

// askForLeader is the leader of the newest term that any node of the first datacenter knows of; -1: none. An old
// leader that is cut off may still believe in itself.
func askForLeader(ctx context.Context, h *http.Client, nodes []Node) int {
	answers := make([]client.Status, len(nodes))
	var all sync.WaitGroup
	for i, n := range nodes {
		if n.Datacenter == nodes[0].Datacenter {
			all.Go(func() { answers[i], _ = askStatus(ctx, h, n.HTTP) }) // a node without an answer knows nobody
		}
	}
	all.Wait()
	var newest client.Status
	for _, s := range answers {
		if s.Quorum && s.Leader != "" && s.Term >= newest.Term {
			newest = s
		}
	}
	return slices.IndexFunc(nodes, func(n Node) bool { return n.Name == newest.Leader })
}

// askStatus asks one node.
func askStatus(ctx context.Context, h *http.Client, addr string) (client.Status, error) {
	cl, err := client.New(client.Config{Servers: []string{"http://" + addr}, HTTPClient: h, Timeout: statusWithin})
	if err != nil {
		return client.Status{}, err
	}
	return cl.Status(ctx)
}
