// Package localcluster runs clusters of server processes on 127.0.0.1, whose links can be cut: for `rollcall dev`,
// the benchmarks, the comparison of the modes and the integration tests. It knows the servers only from outside,
// through their settings and HTTP, and does not know what is measured or tested.
//
// node.go is a server and its settings, process.go its process, ports.go free ports, proxy.go the links.
package localcluster

import (
	"context"
	"fmt"
	"io"
	"maps"
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

// Modes of a node.
const (
	CP = "cp"
	AP = "ap"
)

// ReadyWithin bounds the start of a cluster, including the time to read its data directories.
const ReadyWithin = time.Minute

// Node is one server: its fixed addresses, directory and settings, and its current process.
type Node struct {
	*Process   // the newest; nil before the first start
	Name       string
	Datacenter string
	Mode       string            // CP or AP
	HTTP       string            // host:port of the HTTP listener
	Cluster    string            // host:port of the node-to-node listener, which mode ap does not have
	Dir        string            // of the data
	LogFile    string            // output of the processes
	Settings   map[string]string // other than those above, by key of the configuration file
	Args       []string          // after the settings
	Token      string            // that AwaitReady presents; may be ""
	Client     *http.Client      // for an HTTPS listener; nil for a plain one
}

// Address returns the address of a port of 127.0.0.1.
func Address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }

// DatacenterName returns the name of a local datacenter, counted from 1.
func DatacenterName(dc int) string { return "dc" + strconv.Itoa(dc) }

// URL returns the base of the node's HTTP interface, without a trailing slash.
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

// Introduce adds the nodes of all datacenters, at the addresses given, to the node's settings. The node itself is
// among them.
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

// Arguments returns the command line of the node's process. Every key of the configuration file is a flag, with
// dashes for dots.
func (n *Node) Arguments() []string {
	settings := n.AllSettings()
	args := []string{"server"}
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "--"+strings.ReplaceAll(key, ".", "-")+"="+settings[key])
	}
	return append(args, n.Args...)
}

// AllSettings returns the node's settings, by key of the configuration file.
func (n *Node) AllSettings() map[string]string {
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
	return settings
}

// Start starts a process of the node with a command, to which it adds the node's arguments. The caller stops the
// process.
func (n *Node) Start(command ...string) (err error) {
	if n.Running() {
		return fmt.Errorf("%s is already running", n.Name)
	}
	n.Process, err = Start(n.LogFile, nil, command[0], append(command[1:len(command):len(command)], n.Arguments()...)...)
	if err != nil {
		return fmt.Errorf("start %s: %w", n.Name, err)
	}
	return nil
}

// Running reports whether the node has a process that has not ended. A paused process has not ended.
func (n *Node) Running() bool { return n.Process != nil && !n.Process.Ended() }

// AwaitReady waits until the node is ready and, if linearizable is set, responds to a linearizable read, for which it
// must know a leader and have caught up. It returns an error when ctx or the process ends first.
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

// ok requests a path, and returns an error unless the node responds with 200 within 10 s.
func (n *Node) ok(ctx context.Context, path string) error {
	const longest = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.URL()+path, nil)
	if err != nil {
		return err
	}
	if n.Token != "" {
		req.Header.Set("Authorization", "Bearer "+n.Token)
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

// Terminate terminates the node as a service manager does, with SIGTERM, and waits until its process has ended, with
// exit code 0.
func (n *Node) Terminate(ctx context.Context) error {
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

// StopAll stops the processes of nodes at the same time, and returns when all have ended.
func StopAll(nodes []*Node) {
	var stops sync.WaitGroup
	for _, n := range nodes {
		if n.Process != nil {
			stops.Go(n.Stop)
		}
	}
	stops.Wait()
}

// LayOut claims ports for the nodes of datacenters, which are numbered consecutively, and names directories below
// dir. The nodes are not introduced to each other.
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

// AwaitReady waits until every node is ready and, in mode cp, knows a leader, for ReadyWithin at most.
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
