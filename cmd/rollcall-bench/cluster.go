package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
)

// benchNodes is how many nodes a cluster has.
const benchNodes = 3

// benchCluster is three server processes with default settings, except those given at its start.
type benchCluster struct {
	nodes     []*localcluster.Node
	client    *client.Client // asks the nodes in turn until one answers
	server    string         // the program
	profilers []string       // addresses of the nodes' profilers
	leads     bool           // with consensus: one of them must lead
}

// newBenchCluster makes a cluster of nodes that know each other. It starts nothing.
func newBenchCluster(server string, nodes []*localcluster.Node, args []string) (*benchCluster, error) {
	ports, err := localcluster.ClaimPorts(len(nodes))
	if err != nil {
		return nil, err
	}
	c := &benchCluster{nodes: nodes, server: server, leads: nodes[0].Mode == localcluster.CP}
	if c.client, err = benchClient(c.addrs()...); err != nil {
		return nil, err
	}
	for i, n := range nodes {
		c.profilers = append(c.profilers, localcluster.Address(ports[i]))
		n.Settings["pprof.addr"] = c.profilers[i]
		n.Args = args
	}
	return c, nil
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

// restart ends a node by SIGTERM, starts it again, and returns the time from its start until it can serve.
func (c *benchCluster) restart(ctx context.Context, node int) (time.Duration, error) {
	n := c.nodes[node]
	if err := n.Terminate(ctx); err != nil {
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

// leader returns the number of the leader in nodes. Without consensus all nodes are equal, and it returns the first.
func (c *benchCluster) leader(ctx context.Context) (int, error) {
	if !c.leads {
		return 0, nil
	}
	status, err := c.client.Status(ctx)
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

// leaderAddr returns the HTTP address of the leader.
func (c *benchCluster) leaderAddr(ctx context.Context) (string, error) {
	leader, err := c.leader(ctx)
	return c.nodes[leader].HTTP, err
}

// register registers a whole fleet.
func (c *benchCluster) register(ctx context.Context, f benchFleet) error {
	leader, err := c.leaderAddr(ctx)
	if err != nil {
		return err
	}
	return f.registerAt(ctx, leader)
}

// bareRaft is one node of hashicorp/raft with nothing around it: the other baseline, the minimum that a durable write
// on a majority takes with this library and its default log store.
type bareRaft struct {
	addr  string // Raft's own
	peers []string
	dir   string

	commitTimeout time.Duration // how long an idle leader waits before it tells the others the commit index
}

func newBenchRaftCommand() *cobra.Command {
	var b bareRaft
	var addr string
	cmd := baselineCommand("raft", "Run a node of the bare Raft library that bench compares with", func(ctx context.Context) error { return b.serve(ctx, addr) })
	f := cmd.Flags()
	f.StringVar(&addr, "http-addr", "", "address to serve")
	f.StringVar(&b.addr, "cluster-addr", "", "address of Raft")
	f.StringSliceVar(&b.peers, "cluster-join", nil, "addresses of Raft on all nodes")
	f.StringVar(&b.dir, "data-dir", "", "directory of the log")
	f.DurationVar(&b.commitTimeout, "commit-timeout", 0, "as the servers have it")
	return cmd
}

// serve answers GET /apply with the median time of an Apply, on the leader only.
func (b bareRaft) serve(ctx context.Context, addr string) error {
	node, err := b.open()
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /apply", func(w http.ResponseWriter, r *http.Request) {
		median, err := medianApply(r.Context(), node)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		io.WriteString(w, strconv.FormatInt(median.Microseconds(), 10))
	})
	err = serveUntil(ctx, addr, mux)
	return errors.Join(err, node.Shutdown().Error())
}

// open starts Raft with the library's defaults, except where the server's defaults differ for every cluster.
func (b bareRaft) open() (*raft.Raft, error) {
	log, err := raftboltdb.NewBoltStore(filepath.Join(b.dir, "log.db"))
	if err != nil {
		return nil, err
	}
	advertised, err := net.ResolveTCPAddr("tcp", b.addr)
	if err != nil {
		return nil, err
	}
	transport, err := raft.NewTCPTransport(b.addr, advertised, 3, 10*time.Second, os.Stderr)
	if err != nil {
		return nil, err
	}
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(b.addr)
	conf.CommitTimeout = b.commitTimeout
	conf.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: os.Stderr})
	node, err := raft.NewRaft(conf, nothing{}, log, log, raft.NewDiscardSnapshotStore(), transport)
	if err != nil {
		return nil, err
	}
	var servers []raft.Server
	for _, p := range b.peers {
		servers = append(servers, raft.Server{ID: raft.ServerID(p), Address: raft.ServerAddress(p)})
	}
	return node, node.BootstrapCluster(raft.Configuration{Servers: servers}).Error()
}

// medianApply applies commands of a renewal's size, one at a time.
func medianApply(ctx context.Context, node *raft.Raft) (time.Duration, error) {
	const tries = 500
	command := make([]byte, 14)
	times := make([]time.Duration, 0, tries)
	for range tries {
		begin := time.Now()
		if err := cmp.Or(ctx.Err(), node.Apply(command, time.Second).Error()); err != nil {
			return 0, err
		}
		times = append(times, time.Since(begin))
	}
	slices.Sort(times)
	return times[tries/2], nil
}

// nothing is a state machine without a state.
type nothing struct{}

func (nothing) Apply(*raft.Log) any                 { return nil }
func (nothing) Snapshot() (raft.FSMSnapshot, error) { return nothing{}, nil }
func (nothing) Restore(r io.ReadCloser) error       { return r.Close() }
func (nothing) Persist(s raft.SnapshotSink) error   { return s.Close() }
func (nothing) Release()                            {}

// bareRaftCluster is three processes of bareRaft.
type bareRaftCluster struct {
	nodes []*localcluster.Process
	addrs []string // where the nodes serve /apply
}

// startBareRaft starts the processes below dir. The caller stops them.
func startBareRaft(dir string, commitTimeout time.Duration) (_ *bareRaftCluster, err error) {
	const nodes = 3
	ports, err := localcluster.ClaimPorts(2 * nodes)
	if err != nil {
		return nil, err
	}
	var peers []string
	for i := range nodes {
		peers = append(peers, localcluster.Address(ports[2*i]))
	}
	c := new(bareRaftCluster)
	for i, p := range peers {
		own := filepath.Join(dir, strconv.Itoa(i+1))
		c.addrs = append(c.addrs, localcluster.Address(ports[2*i+1]))
		node, err := startBaseline(filepath.Join(own, "log"), "raft", "--http-addr", c.addrs[i], "--cluster-addr", p, "--data-dir", own,
			"--cluster-join", strings.Join(peers, ","), "--commit-timeout", commitTimeout.String())
		if err != nil {
			c.stop()
			return nil, err
		}
		c.nodes = append(c.nodes, node)
	}
	return c, nil
}

func (c *bareRaftCluster) stop() {
	for _, n := range c.nodes {
		n.Stop()
	}
}

// apply returns the median time of an Apply on the leader, in ms. It waits until there is a leader.
func (c *bareRaftCluster) apply(ctx context.Context) (float64, error) {
	var median float64
	err := await(ctx, "the bare raft has a leader", localcluster.ReadyWithin, func(ctx context.Context) (bool, error) {
		var errs []error
		for _, addr := range c.addrs {
			text, err := getText(ctx, "http://"+addr+"/apply")
			if err == nil {
				median, err = strconv.ParseFloat(text, 64)
				return true, err
			}
			errs = append(errs, err)
		}
		return false, errors.Join(errs...)
	})
	return median / 1000, err
}

// newBenchBareCommand makes the command of the ratios' baseline, which has a process of its own like the nodes.
func newBenchBareCommand() *cobra.Command {
	var addr string
	var gcPercent int
	cmd := baselineCommand("bare", "Serve the bare handler that bench compares with", func(ctx context.Context) error {
		debug.SetGCPercent(gcPercent) // the same as the nodes: the ratio is about the work
		return serveUntil(ctx, addr, new(bareHandler))
	})
	cmd.Flags().StringVar(&addr, "http-addr", "", "address to serve")
	cmd.Flags().IntVar(&gcPercent, "gc-percent", 100, "as the servers have it")
	return cmd
}

// baselineCommand serves, in a process of its own, something that clusters are compared with, until the process that
// started it ends.
func baselineCommand(use, short string, serve func(context.Context) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Hidden: true,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := localcluster.UntilParentEnds(cmd.Context(), os.LookupEnv, cmd.InOrStdin())
			defer cancel()
			return serve(ctx)
		},
	}
}

// serveUntil serves until ctx ends.
func serveUntil(ctx context.Context, addr string, handler http.Handler) error {
	server := &http.Server{Addr: addr, Handler: handler}
	context.AfterFunc(ctx, func() { server.Close() })
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
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

// profile writes CPU profiles, if wanted, of the leader and of a follower under a load on the leader, or without
// consensus of the node under load and one that it replicates to. It sends a load of its own, because a profile slows
// the node down.
func (r *ratiosRun) profile(ctx context.Context, name string, c *benchCluster, l load.Bulk) error {
	if r.profiles == "" {
		return nil
	}
	if err := os.MkdirAll(r.profiles, 0o755); err != nil {
		return fmt.Errorf("--profiles: %w", err)
	}
	leader, err := c.leader(ctx)
	if err != nil {
		return err
	}
	r.reportProgress("profiling: %s", name)
	l.Targets = []string{c.nodes[leader].HTTP}
	var g errgroup.Group
	here, elsewhere := "leader", "follower"
	if !c.leads {
		here, elsewhere = "loaded", "told"
	}
	g.Go(func() error { return r.fetchProfile(ctx, c.profilers[leader], name+"-"+here) })
	g.Go(func() error { return r.fetchProfile(ctx, c.profilers[(leader+1)%len(c.nodes)], name+"-"+elsewhere) })
	g.Go(func() error {
		_, err := l.Closed(ctx)
		return err
	})
	return g.Wait()
}

// fetchProfile takes a profile for about as long as a load lasts.
func (r *ratiosRun) fetchProfile(ctx context.Context, profiler, name string) error {
	seconds := math.Ceil((r.warm + r.window).Seconds())
	resp, err := getOK(ctx, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%.0f", profiler, seconds))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	f, err := os.Create(filepath.Join(r.profiles, name+".pprof"))
	if err != nil {
		return fmt.Errorf("--profiles: %w", err)
	}
	defer f.Close()
	_, err = io.Copy(f, resp.Body)
	return err
}
