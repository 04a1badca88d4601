package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/cmd/bench/compare"
	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
)

// comparedCluster is a cluster of Rollcall processes. It implements compare.Cluster.
type comparedCluster struct {
	linkedNodes
	servers []*comparedNode // the nodes
}

// Start returns an error if ctx ends before the node can serve, which it never can while it is cut off. The process
// keeps running then.
func (c *comparedCluster) Start(ctx context.Context, node int) error {
	return c.servers[node].start(ctx, false)
}

// SlowDisk implements compare.Cluster.
func (c *comparedCluster) SlowDisk(node int, delay time.Duration) error {
	return c.servers[node].slowDisk(delay)
}

// comparedNode is a node of Rollcall.
type comparedNode struct {
	*linkedNode
	server   string
	settings map[string]string // content of its file, by key

	// Guarded by linkedNode.mu.
	serves     bool          // the process has been ready, and so handles SIGHUP
	delay      time.Duration // of its disk; 0 means the configured one
	knownDelay time.Duration // the delay that the process has read
}

func (n *comparedNode) file() string { return filepath.Join(filepath.Dir(n.Dir), "rollcall.yaml") }

// start starts a process and waits until it can serve and, if asked for, knows a leader.
func (n *comparedNode) start(ctx context.Context, leader bool) error {
	begun, err := n.launchNext()
	if err != nil {
		return err
	}
	if err := begun.AwaitReady(ctx, leader); err != nil {
		return err
	}
	return n.ready(begun.Process)
}

// launchNext starts the node's next process, and returns a copy of the node with it: the node itself may have another
// process later.
func (n *comparedNode) launchNext() (begun localcluster.Node, err error) {
	err = n.launch(func() (*localcluster.Process, error) {
		if err := n.writeFile(); err != nil {
			return nil, err
		}
		begun = *n.Node
		if err := begun.Start(n.server); err != nil {
			return nil, err
		}
		n.serves, n.knownDelay = false, n.delay
		return begun.Process, nil
	})
	return begun, err
}

// ready records that a process can serve, and makes it read what has changed meanwhile.
func (n *comparedNode) ready(begun *localcluster.Process) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.Process != begun {
		return fmt.Errorf("%s was started again meanwhile", n.Name)
	}
	n.serves = true
	return n.reload()
}

// maxSyncDelay is the maximum that the server accepts for test.sync-delay.
const maxSyncDelay = 10 * time.Second

// slowDisk takes effect within milliseconds, or with the next start.
func (n *comparedNode) slowDisk(delay time.Duration) error {
	if delay < 0 || delay > maxSyncDelay {
		return fmt.Errorf("slow the disk of %s down by %v: 0 to %v are possible", n.Name, delay, maxSyncDelay)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = delay
	return n.reload()
}

// reload makes the process read its file again, if the file has changed. SIGHUP would end a process that does not
// handle it yet. The caller holds mu.
func (n *comparedNode) reload() error {
	if !n.Running() || !n.serves || n.knownDelay == n.delay {
		return nil
	}
	if err := n.writeFile(); err != nil {
		return err
	}
	n.knownDelay = n.delay
	return n.Signal(syscall.SIGHUP)
}

// writeFile writes the configuration file. Settings also given as arguments are overridden by those.
func (n *comparedNode) writeFile() error {
	keys := make(map[string]string)
	maps.Copy(keys, n.settings)
	if n.delay > 0 {
		keys["test.sync-delay"] = n.delay.String()
	}
	text, err := yaml.Marshal(keys)
	if err != nil {
		return fmt.Errorf("settings of %s: %w", n.Name, err)
	}
	if err := os.MkdirAll(filepath.Dir(n.Dir), 0o700); err != nil {
		return err
	}
	return os.WriteFile(n.file(), text, 0o600)
}

// startCompared starts a cluster of a server below dir. After an error nothing runs.
func startCompared(ctx context.Context, server, dir string, s compare.Spec) (*comparedCluster, error) {
	c := new(comparedCluster)
	if err := c.layOut(server, dir, s); err != nil {
		return nil, errors.Join(fmt.Errorf("lay out a cluster of column %s: %w", s.Column.Name, err), c.Close())
	}
	if err := c.start(ctx, s.Column.Mode); err != nil {
		return nil, errors.Join(fmt.Errorf("start a cluster of column %s: %w", s.Column.Name, err), c.Close())
	}
	return c, nil
}

// layOut makes everything except the processes.
func (c *comparedCluster) layOut(server, dir string, s compare.Spec) (err error) {
	if c.dir, err = os.MkdirTemp(dir, "cluster-*"); err != nil {
		return err
	}
	nodes, err := localcluster.LayOut(c.dir, string(s.Column.Mode), max(s.Datacenters, 1), benchNodes)
	if err != nil {
		return err
	}
	if c.links, err = localcluster.StartLinks(nodes, func(_, _ *localcluster.Node) bool { return true }); err != nil {
		return err
	}
	c.links.Introduce(nodes)
	for _, n := range nodes {
		node := &comparedNode{linkedNode: &linkedNode{Node: n}, server: server, settings: s.Settings}
		n.Args = []string{"--config", node.file()}
		c.nodes, c.servers = append(c.nodes, node.linkedNode), append(c.servers, node)
	}
	return nil
}

// start starts all processes at once and waits until each can serve, and knows a leader if the mode has one.
func (c *comparedCluster) start(ctx context.Context, mode scenario.Mode) error {
	ctx, cancel := localcluster.WithinReady(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	for _, n := range c.servers {
		g.Go(func() error { return n.start(ctx, mode == scenario.CP) })
	}
	return g.Wait()
}

// linkedNodes is a set of processes on loopback with a proxy between any two: what compare.Cluster needs of any
// cluster, whatever its processes run. The clusters that embed it start them.
type linkedNodes struct {
	dir   string // everything is below it
	nodes []*linkedNode
	links localcluster.Links

	closing sync.Once
	closed  error // what Close returns; valid once closing is done
}

// Nodes implements compare.Cluster, as do all methods below.
func (c *linkedNodes) Nodes() []compare.Node {
	nodes := make([]compare.Node, len(c.nodes))
	for i, n := range c.nodes {
		nodes[i] = compare.Node{Name: n.Name, Datacenter: n.Datacenter, HTTP: n.HTTP}
	}
	return nodes
}

func (c *linkedNodes) Kill(node int) error { return c.nodes[node].kill() }

func (c *linkedNodes) Lose(node int) error {
	n := c.nodes[node]
	return errors.Join(n.kill(), os.RemoveAll(n.Dir))
}

func (c *linkedNodes) Stop(ctx context.Context, node int) error { return c.nodes[node].stop(ctx) }

func (c *linkedNodes) Pause(node int) error { return c.nodes[node].pause() }

func (c *linkedNodes) Resume(node int) error { return c.nodes[node].resume() }

func (c *linkedNodes) Cut(a, b int) {
	c.links[a][b].Cut()
	c.links[b][a].Cut()
}

func (c *linkedNodes) Heal() { c.links.Heal() }

func (c *linkedNodes) Usage(node int) (trial.Usage, error) {
	n := c.nodes[node]
	used := n.usage()
	stored, err := bytesBelow(n.Dir)
	return trial.Usage{
		Node: node, CPU: trial.Of(used.cpu), Memory: used.memory, Written: used.written,
		Stored: stored, Sent: c.links.Sent(node),
	}, err
}

// Close also returns an error for each node that ended without a signal from here.
func (c *linkedNodes) Close() error {
	c.closing.Do(func() { c.closed = c.closeAll() })
	return c.closed
}

func (c *linkedNodes) closeAll() error {
	errs := make([]error, len(c.nodes))
	var ending sync.WaitGroup
	for i, n := range c.nodes {
		ending.Go(func() { errs[i] = n.close() })
	}
	ending.Wait()
	c.links.Stop()
	if c.dir != "" {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}

// linkedNode is a node of a comparison, with its successive processes.
type linkedNode struct {
	*localcluster.Node
	stopped int // exit code after SIGTERM

	mu       sync.Mutex   // guards the following fields and localcluster.Node.Process
	signaled bool         // the process was sent a signal that ends it
	past     processUsage // of earlier processes
	discard  bool         // no further process may be started
}

// launch starts the node's next process by calling start with mu held.
func (n *linkedNode) launch(start func() (*localcluster.Process, error)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.discard:
		return fmt.Errorf("%s is not started: its cluster was closed", n.Name)
	case n.Running():
		return fmt.Errorf("%s is not started: it runs", n.Name)
	}
	past := n.past
	if n.Process != nil {
		past = past.plus(endedUsage(n.State()))
	}
	process, err := start()
	if err != nil {
		return err
	}
	n.Process, n.past, n.signaled = process, past, false
	return nil
}

// kill ends the process by SIGKILL and waits for its end.
func (n *linkedNode) kill() error {
	process, err := n.signalEnd(syscall.SIGKILL)
	if err == nil {
		<-process.Done()
	}
	return err
}

// stop ends the process by SIGTERM and waits for its end, which must be orderly.
func (n *linkedNode) stop(ctx context.Context) error {
	process, err := n.signalEnd(syscall.SIGTERM)
	if err != nil {
		return err
	}
	select {
	case <-process.Done():
		if process.State().ExitCode() == n.stopped {
			return nil
		}
		return fmt.Errorf("%s %s", n.Name, process.Obituary())
	case <-ctx.Done():
		return fmt.Errorf("%s has not stopped: %w", n.Name, context.Cause(ctx))
	}
}

func (n *linkedNode) signalEnd(sig syscall.Signal) (process *localcluster.Process, err error) {
	err = n.onProcess(func(p *localcluster.Process) error {
		process = p
		err := p.Signal(sig)
		n.signaled = n.signaled || err == nil
		return err
	})
	return process, err
}

func (n *linkedNode) pause() error  { return n.onProcess((*localcluster.Process).Pause) }
func (n *linkedNode) resume() error { return n.onProcess((*localcluster.Process).Resume) }

// onProcess calls do with the running process, or fails without one.
func (n *linkedNode) onProcess(do func(*localcluster.Process) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.Process == nil {
		return fmt.Errorf("%s was not started", n.Name)
	}
	if err := do(n.Process); err != nil {
		return fmt.Errorf("%s: %w", n.Name, err)
	}
	return nil
}

// usage returns what the node's processes have used.
func (n *linkedNode) usage() processUsage {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.Process == nil {
		return n.past
	}
	now := runningUsage(n.Pid())
	if n.Ended() { // perhaps while its usage was being read
		now = endedUsage(n.State())
	}
	return n.past.plus(now)
}

// close ends the process. It fails if the process ended on its own before.
func (n *linkedNode) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.discard = true
	switch {
	case n.Process == nil:
		return nil
	case !n.Ended():
		n.Kill()
	case !n.signaled:
		return fmt.Errorf("%s %s", n.Name, n.Obituary())
	}
	return nil
}

// processUsage is what a process has used.
type processUsage struct {
	cpu     time.Duration
	memory  int64 // resident bytes
	written int64 // bytes sent to the disk
}

// plus adds the usage of another process of the same node after this one has ended.
func (u processUsage) plus(later processUsage) processUsage {
	return processUsage{cpu: u.cpu + later.cpu, memory: later.memory, written: u.written + later.written}
}

// bytesBelow adds up the sizes of all files below dir. It ignores files, or dir itself, that disappear meanwhile.
func bytesBelow(dir string) (int64, error) {
	var n int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return unlessGone(err)
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return unlessGone(err)
	})
	return n, err
}

func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
