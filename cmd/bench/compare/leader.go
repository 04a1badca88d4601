package compare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	leaderWithin = 5 * time.Second // one must have been elected, or nobody can be struck as the leader
	leaderPoll   = 50 * time.Millisecond
	statusWithin = time.Second
)

// status is what a node says of its datacenter's cluster.
type status struct {
	Leader string `json:"leader"`
	Term   uint64 `json:"term"`
	Quorum bool   `json:"quorum"`
}

// leaderOf finds the leader of the first datacenter by asking its nodes, and waits a while if there is none.
func leaderOf(nodes []Node) func(ctx context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		transport := new(http.Transport)
		defer transport.CloseIdleConnections()
		client := &http.Client{Transport: transport, Timeout: statusWithin}
		ctx, cancel := context.WithTimeoutCause(ctx, leaderWithin, fmt.Errorf("no leader within %s", leaderWithin))
		defer cancel()
		leader := -1
		await(ctx, leaderPoll, func() bool {
			leader = askForLeader(ctx, client, nodes)
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
func askForLeader(ctx context.Context, client *http.Client, nodes []Node) int {
	answers := make([]status, len(nodes))
	var all sync.WaitGroup
	for i, n := range nodes {
		if n.Datacenter == nodes[0].Datacenter {
			all.Go(func() { answers[i], _ = askStatus(ctx, client, n.HTTP) }) // a node without an answer knows nobody
		}
	}
	all.Wait()
	var newest status
	for _, s := range answers {
		if s.Quorum && s.Leader != "" && s.Term >= newest.Term {
			newest = s
		}
	}
	return slices.IndexFunc(nodes, func(n Node) bool { return n.Name == newest.Leader })
}

func askStatus(ctx context.Context, client *http.Client, addr string) (status, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/v1/rollcall/status", nil)
	if err != nil {
		return status{}, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return status{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return status{}, errors.New(resp.Status)
	}
	var s status
	err = json.NewDecoder(resp.Body).Decode(&s)
	return s, err
}
