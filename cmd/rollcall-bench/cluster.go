package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/localcluster"
)

// benchNodes is how many nodes a cluster has.
const benchNodes = 3

// benchCluster is three server processes with default settings, but for those it was started with.
type benchCluster struct {
	nodes     []*localcluster.Node
	server    string   // the program
	profilers []string // addresses of the nodes' profilers
	leads     bool     // one of them is to lead
}

// newBenchCluster adds what is measured to nodes that know of each other. Nothing runs yet.
func newBenchCluster(server string, nodes []*localcluster.Node, args []string) (*benchCluster, error) {
	ports, err := localcluster.ClaimPorts(len(nodes))
	if err != nil {
		return nil, err
	}
	c := &benchCluster{nodes: nodes, server: server, leads: nodes[0].Mode == localcluster.CP}
	for i, n := range nodes {
		c.profilers = append(c.profilers, localcluster.Address(ports[i]))
		n.Settings["pprof.addr"] = c.profilers[i]
		n.Args = args
	}
	return c, nil
}

// startBenchCluster starts a new cluster below dir, the only datacenter there is. The caller stops it. After an
// error nothing runs.
func startBenchCluster(ctx context.Context, server, dir, mode string, args ...string) (*benchCluster, error) {
	nodes, err := localcluster.LayOut(dir, mode, 1, benchNodes)
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		n.Introduce(nodes)
	}
	c, err := newBenchCluster(server, nodes, args)
	if err != nil {
		return nil, err
	}
	return c, c.start(ctx)
}

// start starts the processes and waits until they are ready. After an error nothing runs.
func (c *benchCluster) start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	for _, n := range c.nodes {
		if err := n.Start(c.server); err != nil {
			return err
		}
	}
	return localcluster.AwaitReady(ctx, c.nodes)
}

func (c *benchCluster) stop() { localcluster.StopAll(c.nodes) }

// restart ends a node by SIGTERM, starts it again, and returns the time from its start until it may
// serve.
func (c *benchCluster) restart(ctx context.Context, node int) (time.Duration, error) {
	n := c.nodes[node]
	if err := n.End(ctx); err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := n.Start(c.server); err != nil {
		return 0, err
	}
	ctx, cancel := localcluster.WithinReady(ctx)
	defer cancel()
	if err := n.AwaitReady(ctx, false); err != nil {
		return 0, err
	}
	return time.Since(begin), nil
}

// awaitOK asks every 5 ms until the answer is 200.
func awaitOK(ctx context.Context, url string) error {
	ctx, cancel := localcluster.WithinReady(ctx)
	defer cancel()
	for {
		if body, err := getOK(ctx, url); err == nil {
			return body.Close()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// getText returns the body of a 200.
func getText(ctx context.Context, url string) (string, error) {
	body, err := getOK(ctx, url)
	if err != nil {
		return "", err
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	return string(text), err
}

// getOK returns the body of a 200. The caller closes it.
func getOK(ctx context.Context, url string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return resp.Body, nil
}

// addrs are the nodes' HTTP addresses.
func (c *benchCluster) addrs() []string {
	addrs := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		addrs[i] = n.HTTP
	}
	return addrs
}

// client is a client of the cluster, whichever node answers.
func (c *benchCluster) client() (*client.Client, error) { return benchClient(c.addrs()...) }

// benchClient is a client of nodes, of which the first that answers is asked.
func benchClient(addrs ...string) (*client.Client, error) {
	servers := make([]string, len(addrs))
	for i, addr := range addrs {
		servers[i] = "http://" + addr
	}
	return client.New(client.Config{Servers: servers, InOrder: true})
}

// leader returns the number of the leader in nodes. Without consensus all are alike, and it is the
// first.
func (c *benchCluster) leader(ctx context.Context) (int, error) {
	if !c.leads {
		return 0, nil
	}
	cl, err := c.client()
	if err != nil {
		return 0, err
	}
	status, err := cl.Status(ctx)
	if err != nil {
		return 0, fmt.Errorf("find the leader: %w", err)
	}
	for _, n := range status.Nodes {
		if n.ID != status.Leader {
			continue
		}
		if i := slices.IndexFunc(c.nodes, func(own *localcluster.Node) bool { return own.HTTP == n.HTTP }); i >= 0 {
			return i, nil
		}
	}
	return 0, fmt.Errorf("find the leader: %q of %s leads", status.Leader, status.Node)
}

// register registers a whole fleet.
func (c *benchCluster) register(ctx context.Context, f benchFleet) error {
	leader, err := c.leader(ctx)
	if err != nil {
		return err
	}
	l := httpLoad{targets: []string{c.nodes[leader].HTTP}, conns: min(256, f.size), requests: f.registrations, want: http.StatusNoContent, insist: true}
	r, err := l.closed(ctx)
	if err != nil {
		return fmt.Errorf("register %d instances: %w", f.size, err)
	}
	if len(r.wrong) > 0 {
		return fmt.Errorf("register %d instances: %v", f.size, r.wrong)
	}
	return nil
}
