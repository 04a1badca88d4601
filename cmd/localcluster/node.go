// Package localcluster runs clusters of server processes on 127.0.0.1, whose links can be cut: for `rollcall dev`,
// the benchmarks, the comparison of the modes and the integration tests. It knows the servers from outside, by
// their settings and by HTTP, and not what is measured or tested.
package localcluster

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// The modes of a node.
const (
	CP = "cp"
	AP = "ap"
)

// ReadyWithin bounds the start of a cluster, data directories that must be read again included.
const ReadyWithin = time.Minute

// Node is one server: addresses, a directory and settings for good, and the process that serves it at the
// moment.
type Node struct {
	*Process   // the newest; nil: none was started
	Name       string
	Datacenter string
	Mode       string            // CP or AP
	HTTP       string            // host:port of the HTTP listener
	Cluster    string            // host:port of the node-to-node listener, which mode ap does not have
	Dir        string            // of the data
	LogFile    string            // with what the processes printed
	Settings   map[string]string // other than those above, by key of the configuration file
	Args       []string          // after the settings
	Client     *http.Client      // of an HTTPS listener; nil: the listener is a plain one
}

// Address is a port of 127.0.0.1.
func Address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }

// DatacenterName is the name of a local datacenter, which are counted from 1.
func DatacenterName(dc int) string { return "dc" + strconv.Itoa(dc) }

// URL is the base of the node's HTTP interface, without a slash at its end.
func (n *Node) URL() string {
	if n.Client != nil {
		return "https://" + n.HTTP
	}
	return "http://" + n.HTTP
}

// PutBelow puts the node's data and log below a directory.
func (n *Node) PutBelow(dir string) {
	n.Dir, n.LogFile = filepath.Join(dir, "data"), filepath.Join(dir, "log")
}

// Introduce tells the node, by its settings, of the nodes of all datacenters, which it reaches at the addresses
// given. The node itself is among them.
func (n *Node) Introduce(all []*Node) {
	if n.Settings == nil {
		n.Settings = make(map[string]string)
	}
	http, cluster, others := make(map[string][]string), []string(nil), []string(nil)
	for _, other := range all {
		if other.Datacenter == n.Datacenter {
			cluster = append(cluster, other.Cluster)
		}
		http[other.Datacenter] = append(http[other.Datacenter], other.URL())
	}
	for _, dc := range slices.Sorted(maps.Keys(http)) {
		if dc != n.Datacenter {
			others = append(others, dc+"="+strings.Join(http[dc], " "))
		}
	}
	if len(others) > 0 {
		n.Settings["replication.datacenters"] = strings.Join(others, ",")
	}
	if n.Mode == AP {
		n.Settings["replication.nodes"] = strings.Join(http[n.Datacenter], ",")
		return
	}
	n.Settings["cluster.join"] = strings.Join(cluster, ",")
	n.Settings["cluster.bootstrap-expect"] = strconv.Itoa(len(cluster))
}

// Arguments are the command line of the node's process: every key of the configuration file is a flag, with
// dashes for dots.
func (n *Node) Arguments() []string {
	settings := map[string]string{
		"mode":       n.Mode,
		"datacenter": n.Datacenter,
		"node.name":  n.Name,
		"http.addr":  n.HTTP,
		"data.dir":   n.Dir,
	}
	if n.Mode == CP {
		settings["cluster.addr"] = n.Cluster
	}
	maps.Copy(settings, n.Settings)
	args := []string{"server"}
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "--"+strings.ReplaceAll(key, ".", "-")+"="+settings[key])
	}
	return append(args, n.Args...)
}

// Start starts a process of the node by a command, which its arguments are added to. The caller ends it.
func (n *Node) Start(command ...string) (err error) {
	if n.Running() {
		return fmt.Errorf("%s is not started: it runs", n.Name)
	}
	n.Process, err = Start(n.LogFile, nil, command[0], append(command[1:len(command):len(command)], n.Arguments()...)...)
	if err != nil {
		return fmt.Errorf("start %s: %w", n.Name, err)
	}
	return nil
}

// Running says whether the node has a process that has not ended; a paused one has not.
func (n *Node) Running() bool { return n.Process != nil && !n.Process.Ended() }

// AwaitReady waits until the node may serve and, if asked for, reads on it are linearizable, which it can answer
// only when it knows a leader and has caught up. It returns an error when ctx or the process has ended before.
func (n *Node) AwaitReady(ctx context.Context, linearizable bool) error {
	const every = 5 * time.Millisecond
	for process := n.Process; ; {
		err := n.ready(ctx, linearizable)
		if err == nil {
			return nil
		}
		select {
		case <-process.Done():
			return fmt.Errorf("start %s: %s", n.Name, process.Obituary())
		case <-ctx.Done():
			return fmt.Errorf("start %s: %w: %w; %s", n.Name, context.Cause(ctx), err, process.LastWords(5))
		case <-time.After(every):
		}
	}
}

func (n *Node) ready(ctx context.Context, linearizable bool) error {
	err := n.ok(ctx, "/readyz")
	if err == nil && linearizable && n.Mode == CP {
		err = n.ok(ctx, "/eureka/apps?consistency=linearizable")
	}
	return err
}

// ok asks a node, which has 10 s to answer 200.
func (n *Node) ok(ctx context.Context, path string) error {
	const longest = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.URL()+path, nil)
	if err != nil {
		return err
	}
	c := n.Client
	if c == nil {
		c = http.DefaultClient
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body) // so that the connection can be used again
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", path, resp.Status)
	}
	return nil
}

// End ends the node as a service manager does, by SIGTERM, and waits for its end, which must be a proper one.
func (n *Node) End(ctx context.Context) error {
	if n.Process == nil {
		return fmt.Errorf("%s was not started", n.Name)
	}
	if err := n.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-n.Done():
	case <-ctx.Done():
		return fmt.Errorf("%s has not stopped: %w", n.Name, context.Cause(ctx))
	}
	if err := n.Err(); err != nil {
		return fmt.Errorf("stop %s: %w", n.Name, err)
	}
	return nil
}

// StopAll ends the processes of nodes at the same time and waits for them.
func StopAll(nodes []*Node) {
	var stops sync.WaitGroup
	for _, n := range nodes {
		if n.Process != nil {
			stops.Go(n.Stop)
		}
	}
	stops.Wait()
}

// LayOut finds ports for the nodes of datacenters, which are numbered throughout, and directories below dir. They
// know nothing of each other yet.
func LayOut(dir, mode string, dcs, nodesEach int) ([]*Node, error) {
	ports, err := ClaimPorts(2 * dcs * nodesEach)
	if err != nil {
		return nil, err
	}
	var nodes []*Node
	for i := range dcs * nodesEach {
		n := &Node{
			Name: "node" + strconv.Itoa(i+1), Datacenter: DatacenterName(i/nodesEach + 1), Mode: mode,
			HTTP: Address(ports[2*i]), Cluster: Address(ports[2*i+1]), Settings: make(map[string]string),
		}
		n.PutBelow(filepath.Join(dir, n.Name))
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// AwaitReady waits until every node may serve and knows a leader if it is to have one. ctx bounds it, and
// ReadyWithin.
func AwaitReady(ctx context.Context, nodes []*Node) error {
	ctx, cancel := WithinReady(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	for _, n := range nodes {
		g.Go(func() error { return n.AwaitReady(ctx, true) })
	}
	return g.Wait()
}

// WithinReady bounds the wait for something that was started.
func WithinReady(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, ReadyWithin, fmt.Errorf("not ready after %v", ReadyWithin))
}

// Claimed ports are in [lowest, highest). Linux takes ports for outgoing connections from 32,768 on. From 10,000
// to there Consul's package of this name takes the ports for Consul's own tests, which run beside ours, and it
// looks at ports by listening on them.
const (
	lowest  = 2_000
	highest = 10_000
)

// attempts is how many ports are tried for one that is wanted.
const attempts = 1000

// claims are this process's, by port. A claim is a UDP socket of the same number: it is in nobody's way, the
// system gives it to one process only, and takes it back when that ends, however it ends.
var claims = struct {
	sync.Mutex
	held map[int]net.PacketConn
}{held: make(map[int]net.PacketConn)}

// ClaimPorts returns n ports of 127.0.0.1 that are nobody else's, in this process or another that asks here, until
// the process ends.
//
// A port that was merely seen free is no such port. Another process may see it free, too; an outgoing connection
// may take it between two starts of the server; and a look by listening may be in its own way, because a child
// process that is started at that moment has a copy of the listener until it runs its program. So ports are
// claimed, for as long as the process lives; they lie below the range from which the system takes ports for
// outgoing connections; and to look is to dial.
func ClaimPorts(n int) ([]int, error) {
	var all []int
	for range n {
		p, err := ClaimPort()
		if err != nil {
			return nil, fmt.Errorf("port %d of %d: %w", len(all)+1, n, err)
		}
		all = append(all, p)
	}
	return all, nil
}

// ClaimPort claims a port and those at the given distances from it, for a server that derives its ports from
// one. It returns the one.
func ClaimPort(distances ...int) (int, error) {
	claims.Lock()
	defer claims.Unlock()
	for range attempts {
		first := lowest + rand.IntN(highest-lowest)
		if claimAll(first, distances) {
			return first, nil
		}
	}
	return 0, fmt.Errorf("no free port of %s between %d and %d in %d attempts", loopback, lowest, highest, attempts)
}

const loopback = "127.0.0.1"

// claimAll claims all or nothing.
func claimAll(first int, distances []int) bool {
	claimed := make(map[int]net.PacketConn)
	for _, d := range append([]int{0}, distances...) {
		port := first + d
		if _, again := claimed[port]; again {
			continue
		}
		held, err := claim(port)
		if err != nil {
			for _, c := range claimed {
				c.Close()
			}
			return false
		}
		claimed[port] = held
	}
	for port, c := range claimed {
		claims.held[port] = c
	}
	return true
}

// claim claims a port on which nobody listens.
func claim(port int) (net.PacketConn, error) {
	if port < lowest || port >= highest {
		return nil, fmt.Errorf("port %d is not between %d and %d", port, lowest, highest)
	}
	addr := net.JoinHostPort(loopback, strconv.Itoa(port))
	held, err := net.ListenPacket("udp", addr)
	if err != nil {
		return nil, err
	}
	conn, err := net.Dial("tcp", addr)
	if err == nil {
		conn.Close()
		held.Close()
		return nil, fmt.Errorf("port %d is in use", port)
	}
	return held, nil
}
