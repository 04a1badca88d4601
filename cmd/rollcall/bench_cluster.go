package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/freeport"
)

// benchProcesses are children of bench. There is room for more deaths than children, because some are
// restarted.
type benchProcesses struct {
	*devCluster
	binary string
}

func newBenchProcesses() (*benchProcesses, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return &benchProcesses{&devCluster{out: io.Discard, leads: true, deaths: make(chan *devChild, 64)}, binary}, nil
}

// run starts a process that lives until stop.
func (p *benchProcesses) run(n devNode, args []string) error {
	child, err := n.start(p.binary, args)
	if err != nil {
		return err
	}
	p.watch(child)
	return nil
}

// benchNodes is how many nodes a cluster has.
const benchNodes = 3

// benchCluster is three server processes with default settings, but for those it was started with.
type benchCluster struct {
	*benchProcesses
	options   devOptions
	nodes     []devNode
	profilers []string // addresses of the nodes' profilers
	args      [][]string
}

// layOutCluster finds ports for a cluster of one of the datacenters. Nothing runs yet.
func layOutCluster(dir string, o devOptions, dc int) (*benchCluster, error) {
	o.nodes = benchNodes
	ports, err := freeport.Claim(3 * o.nodes)
	if err != nil {
		return nil, err
	}
	processes, err := newBenchProcesses()
	if err != nil {
		return nil, err
	}
	processes.leads = o.mode == modeCP
	c := &benchCluster{benchProcesses: processes, options: o}
	for i := range o.nodes {
		n := devNode{dc: dc, number: i + 1, http: localhost(ports[3*i]), cluster: localhost(ports[3*i+1])}
		n.dir = filepath.Join(dir, n.name())
		c.nodes = append(c.nodes, n)
		c.profilers = append(c.profilers, localhost(ports[3*i+2]))
	}
	return c, nil
}

// startBenchCluster starts a new cluster below dir, the only datacenter there is. The caller stops it.
func startBenchCluster(ctx context.Context, dir, mode string, settings ...string) (*benchCluster, error) {
	c, err := layOutCluster(dir, devOptions{mode: mode, dcs: 1}, 1)
	if err != nil {
		return nil, err
	}
	return c, c.start(ctx, c.nodes, settings...)
}

// start starts the processes and waits until they are ready. seen are the nodes of all datacenters, at
// the addresses at which this one reaches them. After an error nothing runs.
func (c *benchCluster) start(ctx context.Context, seen []devNode, settings ...string) (err error) {
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	for i, n := range c.nodes {
		c.args = append(c.args, append(append(c.options.serverArgs(n, seen), "--pprof-addr", c.profilers[i]), settings...))
		if err := c.run(n, c.args[i]); err != nil {
			return err
		}
	}
	if err := c.awaitReady(ctx); err != nil {
		return err
	}
	return ctx.Err()
}

// restart ends a node by SIGTERM, starts it again, and returns the time from its start until it may
// serve.
func (c *benchCluster) restart(ctx context.Context, node int) (time.Duration, error) {
	n := c.nodes[node]
	at := slices.IndexFunc(c.children, func(child *devChild) bool { return child.number == n.number })
	old := c.children[at]
	if err := old.signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	select {
	case dead := <-c.deaths:
		if dead != old || old.err != nil {
			return 0, errors.New(dead.obituary())
		}
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	c.children = slices.Delete(c.children, at, at+1)
	begin := time.Now()
	if err := c.run(n, c.args[node]); err != nil {
		return 0, err
	}
	ctx, cancel := withinReady(ctx, n.name())
	defer cancel()
	if err := c.children[len(c.children)-1].awaitReady(ctx, false); err != nil {
		return 0, err
	}
	return time.Since(begin), nil
}

// withinReady bounds the wait for what was started.
func withinReady(ctx context.Context, what string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, readyWithin, fmt.Errorf("%s is not ready after %v", what, readyWithin))
}

// awaitOK asks every 5 ms until the answer is 200.
func awaitOK(ctx context.Context, url string) error {
	ctx, cancel := withinReady(ctx, url)
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
		addrs[i] = n.http
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
		if i := slices.IndexFunc(c.nodes, func(own devNode) bool { return own.http == n.HTTP }); i >= 0 {
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
	l := httpLoad{targets: []string{c.nodes[leader].http}, conns: min(256, f.size), requests: f.registrations, want: http.StatusNoContent, insist: true}
	r, err := l.closed(ctx)
	if err != nil {
		return fmt.Errorf("register %d instances: %w", f.size, err)
	}
	if len(r.wrong) > 0 {
		return fmt.Errorf("register %d instances: %v", f.size, r.wrong)
	}
	return nil
}
