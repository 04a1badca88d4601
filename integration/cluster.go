package integration

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/localcluster"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// ReadyLimit is how long a cluster, a restarted node or an election may take: at least ten times the time on an idle
// machine.
const ReadyLimit = 60 * time.Second

// Config describes a cluster; the zero Config is three plain nodes.
type Config struct {
	Nodes    int                                 // 0 means 3
	AP       bool                                // without consensus: each node replicates to the others
	DC       string                              // the datacenter's name; "" for the default
	Settings map[string]string                   // for all nodes, by key of the configuration file
	Of       func(node string) map[string]string // more settings for one node; may be nil
	// the nodes' auth.mode, with consensus; unless it is "", the harness makes its calls as an operator
	Auth string
	TLS  *Certificates // how tests trust the HTTP listeners; nil for plain HTTP
}

// Cluster is a set of real server processes on loopback.
type Cluster struct {
	Nodes   []*Node
	t       testing.TB
	secured bool
	secrets secrets // the secrets of its tokens
}

// StartCluster starts a cluster and waits until every node serves. It ends with the test; if that failed, the end of
// each node's log is printed.
func StartCluster(t testing.TB, cfg Config) *Cluster {
	t.Helper()
	c := NewCluster(t, cfg)
	c.Start()
	return c
}

// NewCluster lays a cluster out without starting it, for tests that change settings first.
func NewCluster(t testing.TB, cfg Config) *Cluster {
	t.Helper()
	if cfg.Nodes == 0 {
		cfg.Nodes = 3
	}
	c := &Cluster{t: t, secured: cfg.Auth != ""}
	dir := t.TempDir()
	t.Cleanup(c.report) // runs after the processes have ended: cleanups run last in, first out
	if c.secured {
		t.Cleanup(c.expectNoSecretTold)
		t.Cleanup(c.lookAtFiles)
	}
	for i := range cfg.Nodes {
		n := newNode(t, dir, fmt.Sprintf("n%d", i+1))
		if cfg.AP {
			n.Mode = localcluster.AP
		}
		n.Datacenter = cmp.Or(cfg.DC, n.Datacenter)
		if cfg.TLS != nil {
			n.Client = cfg.TLS.Client()
		}
		c.Nodes = append(c.Nodes, n)
	}
	var all []*localcluster.Node
	for _, n := range c.Nodes {
		all = append(all, &n.Node)
	}
	for _, n := range c.Nodes {
		n.Introduce(all)
		if c.secured {
			n.Settings["auth.mode"], n.secrets = cfg.Auth, &c.secrets
		}
		maps.Copy(n.Settings, cfg.Settings)
		if cfg.Of != nil {
			maps.Copy(n.Settings, cfg.Of(n.Name))
		}
	}
	return c
}

// Start starts all nodes and waits until they serve.
func (c *Cluster) Start() {
	c.t.Helper()
	for _, n := range c.Nodes {
		n.Start(c.t)
	}
	if c.secured {
		c.bootstrap()
		c.t.Cleanup(c.lookAtProcesses) // before they end
	}
	c.WaitReady()
}

func (c *Cluster) report() {
	if !c.t.Failed() {
		return
	}
	for _, n := range c.Nodes {
		if n.Process != nil {
			c.t.Logf("%s: %s", n.Name, n.LastWords(15))
		}
	}
}

// WaitReady waits until every running node serves and has caught up.
func (c *Cluster) WaitReady() {
	c.t.Helper()
	for _, n := range c.Nodes {
		if n.Running() {
			n.WaitReady(c.t)
		}
	}
}

// Leader waits until the nodes among (by default all that run) agree that one of them leads, and returns it.
func (c *Cluster) Leader(among ...*Node) *Node {
	c.t.Helper()
	if len(among) == 0 {
		among = c.Running()
	}
	var leader *Node
	Eventually(c.t, ReadyLimit, "a leader is agreed on", func() (err error) {
		leader, err = agreedLeader(among)
		return err
	})
	return leader
}

func agreedLeader(among []*Node) (*Node, error) {
	votes := map[string]int{}
	for _, n := range among {
		status, err := n.Status()
		if err != nil {
			return nil, err
		}
		votes[status.Leader]++
	}
	for _, n := range among {
		if votes[n.Name] == len(among) {
			return n, nil
		}
	}
	return nil, fmt.Errorf("named as the leader: %v", votes)
}

// Running returns the nodes whose process has not ended, including paused ones.
func (c *Cluster) Running() []*Node {
	var running []*Node
	for _, n := range c.Nodes {
		if n.Running() {
			running = append(running, n)
		}
	}
	return running
}

// Others returns the nodes except those given.
func (c *Cluster) Others(not ...*Node) []*Node {
	var others []*Node
	for _, n := range c.Nodes {
		if !slices.Contains(not, n) {
			others = append(others, n)
		}
	}
	return others
}

// Datacenters are clusters that replicate to each other, each through proxies in front of the nodes of the others.
type Datacenters struct {
	localcluster.Links
	Clusters []*Cluster
}

// StartDatacenters starts n clusters, dc1 and so on, all configured by cfg, and waits until every node serves.
func StartDatacenters(t testing.TB, n int, cfg Config) *Datacenters {
	t.Helper()
	cfgs := make([]Config, n)
	for i := range cfgs {
		cfgs[i] = cfg
	}
	return StartUnlikeDatacenters(t, cfgs...)
}

// StartUnlikeDatacenters is StartDatacenters for clusters that each have a Config of their own.
func StartUnlikeDatacenters(t testing.TB, cfgs ...Config) *Datacenters {
	t.Helper()
	d := new(Datacenters)
	var nodes []*localcluster.Node
	for i, cfg := range cfgs {
		cfg.DC = dcName(i)
		d.Clusters = append(d.Clusters, NewCluster(t, cfg))
		for _, n := range d.Clusters[i].Nodes {
			nodes = append(nodes, &n.Node)
		}
	}
	links, err := localcluster.StartLinks(nodes, func(from, to *localcluster.Node) bool { return from.Datacenter != to.Datacenter })
	t.Cleanup(links.Stop)
	need.OK(t, err)
	links.Introduce(nodes)
	d.Links = links
	for _, c := range d.Clusters {
		c.Start()
	}
	return d
}

func dcName(i int) string { return fmt.Sprintf("dc%d", i+1) }

// Nodes returns the nodes of all datacenters.
func (d *Datacenters) Nodes() (nodes []*Node) {
	for _, c := range d.Clusters {
		nodes = append(nodes, c.Nodes...)
	}
	return nodes
}
