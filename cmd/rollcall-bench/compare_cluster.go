package main

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/compare"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/localcluster"
)

// comparedCluster is processes on loopback with a proxy between any two. It implements compare.Cluster.
type comparedCluster struct {
	dir   string // everything is below it
	nodes []*comparedNode
	links localcluster.Links

	closing sync.Once
	closed  error // what Close returns; valid once closing is done
}

// Nodes implements compare.Cluster, as all of the following do.
func (c *comparedCluster) Nodes() []compare.Node {
	nodes := make([]compare.Node, len(c.nodes))
	for i, n := range c.nodes {
		nodes[i] = compare.Node{Name: n.Name, Datacenter: n.Datacenter, HTTP: n.HTTP}
	}
	return nodes
}

func (c *comparedCluster) Kill(node int) error { return c.nodes[node].kill() }

func (c *comparedCluster) Stop(ctx context.Context, node int) error { return c.nodes[node].stop(ctx) }

// Start returns an error if ctx ends before the node may serve, which it may never while it is cut off. The
// process goes on then.
func (c *comparedCluster) Start(ctx context.Context, node int) error {
	return c.nodes[node].start(ctx, false)
}

func (c *comparedCluster) Pause(node int) error { return c.nodes[node].pause() }

func (c *comparedCluster) Resume(node int) error { return c.nodes[node].resume() }

func (c *comparedCluster) Cut(a, b int) {
	c.links[a][b].Cut()
	c.links[b][a].Cut()
}

func (c *comparedCluster) Heal() { c.links.Heal() }

func (c *comparedCluster) SlowDisk(node int, delay time.Duration) error {
	return c.nodes[node].slowDisk(delay)
}

func (c *comparedCluster) Usage(node int) (trial.Usage, error) {
	n := c.nodes[node]
	used := n.usage()
	stored, err := bytesBelow(n.Dir)
	return trial.Usage{
		Node: node, CPU: trial.Of(used.cpu), Memory: used.memory, Written: used.written,
		Stored: stored, Sent: c.links.Sent(node),
	}, err
}

// Close also returns an error for each node that has ended without having been told to.
func (c *comparedCluster) Close() error {
	c.closing.Do(func() { c.closed = c.end() })
	return c.closed
}

func (c *comparedCluster) end() error {
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
