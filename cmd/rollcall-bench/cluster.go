package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// benchNodes is how many nodes a cluster has.
const benchNodes = 3

// benchCluster is three server processes with default settings, except those given at its start.
type benchCluster struct {
	nodes  []*localcluster.Node
	client *client.Client // asks the nodes in turn until one answers
	server string         // the program
	leads  bool           // with consensus: one of them must lead
}

// newBenchCluster makes a cluster of nodes that know each other. It starts nothing.
func newBenchCluster(server string, nodes []*localcluster.Node, args ...string) (c *benchCluster, err error) {
	c = &benchCluster{nodes: nodes, server: server, leads: nodes[0].Mode == localcluster.CP}
	for _, n := range nodes {
		n.Args = args
	}
	c.client, err = benchClient(c.addrs()...)
	return c, err
}

// startBenchCluster starts a new cluster below dir, as the only datacenter. The caller stops it. After an error
// nothing runs.
func startBenchCluster(ctx context.Context, server, dir, mode string, args ...string) (*benchCluster, error) {
	nodes, err := localcluster.LayOut(dir, mode, 1, benchNodes)
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		n.Introduce(nodes)
	}
	c, err := newBenchCluster(server, nodes, args...)
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

// await calls reached again and again until it returns true. An error counts as false: errors are normal during an
// election.
func await(ctx context.Context, what string, limit time.Duration, reached func(context.Context) (bool, error)) error {
	const look = 5 * time.Millisecond
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("waited %v in vain", limit))
	defer cancel()
	for pause := look; ; pause = min(2*pause, 10*look) {
		yes, err := reached(ctx)
		if yes && err == nil {
			return nil
		}
		if !wait.For(ctx, pause) {
			return fmt.Errorf("wait until %s: %w", what, errors.Join(context.Cause(ctx), err))
		}
	}
}

// awaitLeader waits for the leader, and returns its address.
func awaitLeader(ctx context.Context, c peerCluster) (addr string, err error) {
	return addr, await(ctx, "a node leads", localcluster.ReadyWithin, func(ctx context.Context) (bool, error) {
		addr, err = c.leaderAddr(ctx)
		return true, err
	})
}

// awaitOK waits until the response is 200.
func awaitOK(ctx context.Context, url string) error {
	return await(ctx, url+" answers", localcluster.ReadyWithin, func(ctx context.Context) (bool, error) {
		_, err := getText(ctx, url)
		return true, err
	})
}

// getText returns the body of a 200.
func getText(ctx context.Context, url string) (string, error) {
	resp, err := getOK(ctx, url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// getOK returns a 200, whose body the caller closes. Headers are name, value, name, value.
func getOK(ctx context.Context, url string, headers ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return resp, nil
}

// addrs returns the nodes' HTTP addresses.
func (c *benchCluster) addrs() []string {
	addrs := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		addrs[i] = n.HTTP
	}
	return addrs
}

// benchClient returns a client that asks nodes in turn until one answers.
func benchClient(addrs ...string) (*client.Client, error) {
	servers := make([]string, len(addrs))
	for i, addr := range addrs {
		servers[i] = "http://" + addr
	}
	return client.New(client.Config{Servers: servers, InOrder: true})
}

// leaderAddr returns the HTTP address of the leader. Without consensus all nodes are equal, and it returns the first.
func (c *benchCluster) leaderAddr(ctx context.Context) (string, error) {
	if !c.leads {
		return c.nodes[0].HTTP, nil
	}
	status, err := c.client.Status(ctx)
	if err != nil {
		return "", fmt.Errorf("find the leader: %w", err)
	}
	for _, n := range status.Nodes {
		if n.ID == status.Leader {
			return n.HTTP, nil
		}
	}
	return "", fmt.Errorf("find the leader: %q of %s leads", status.Leader, status.Node)
}

// bareServer is the bare handler in a process of its own, like the nodes.
type bareServer struct {
	addr    string
	process *localcluster.Process
}

// startBare starts the bare handler by this program's command bare, with its log below dir. The caller stops it.
func startBare(ctx context.Context, dir string, gcPercent int) (*bareServer, error) {
	ports, err := localcluster.ClaimPorts(1)
	if err != nil {
		return nil, err
	}
	own, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	s := &bareServer{addr: localcluster.Address(ports[0])}
	s.process, err = localcluster.Start(filepath.Join(dir, "bare", "log"), nil, own,
		"bare", "--http-addr", s.addr, "--gc-percent", strconv.Itoa(gcPercent))
	if err != nil {
		return nil, err
	}
	if err := awaitOK(ctx, "http://"+s.addr+barePath(0)); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *bareServer) leaderAddr(context.Context) (string, error) { return s.addr, nil }

func (s *bareServer) processes() []*localcluster.Process { return []*localcluster.Process{s.process} }

func (s *bareServer) stop() { s.process.Stop() }

// newBenchBareCommand makes the command that serves the bare handler until the process that started it ends.
func newBenchBareCommand() *cobra.Command {
	var addr string
	var gcPercent int
	cmd := &cobra.Command{
		Use: "bare", Short: "Serve the bare handler that clusters are compared with", Hidden: true,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			debug.SetGCPercent(gcPercent) // the same as the nodes: the ratio is about the work
			ctx, cancel := localcluster.UntilParentEnds(cmd.Context(), os.LookupEnv, cmd.InOrStdin())
			defer cancel()
			server := &http.Server{Addr: addr, Handler: new(bareHandler)}
			context.AfterFunc(ctx, func() { server.Close() })
			if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&addr, "http-addr", "", "address to serve")
	cmd.Flags().IntVar(&gcPercent, "gc-percent", 100, "as the servers have it")
	return cmd
}

// bareHandler answers any PUT and POST with an empty 200, and GET /bytes/N always with the same N bytes.
type bareHandler struct {
	payloads sync.Map // of []byte by length
}

// barePath returns the path of a payload of n bytes.
func barePath(n int64) string { return "/bytes/" + strconv.FormatInt(n, 10) }

// maxBarePayload keeps a mistaken path from using up all memory.
const maxBarePayload = 1 << 30

func (h *bareHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut || r.Method == http.MethodPost {
		return
	}
	var n int64
	if _, err := fmt.Sscanf(r.URL.Path, "/bytes/%d", &n); err != nil || n < 0 || n > maxBarePayload {
		http.NotFound(w, r)
		return
	}
	payload, ok := h.payloads.Load(n)
	if !ok {
		payload, _ = h.payloads.LoadOrStore(n, make([]byte, n))
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Encoding", "gzip")
	header.Set("Content-Length", strconv.FormatInt(n, 10))
	w.Write(payload.([]byte))
}
