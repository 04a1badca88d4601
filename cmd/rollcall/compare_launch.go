package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/cmd/bench/compare"
	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/freeport"
)

// launchComparison starts clusters below dir, each in a directory of its own that goes with it.
func launchComparison(dir string) compare.Launch {
	return func(ctx context.Context, s compare.Spec) (compare.Cluster, error) {
		c := new(comparedCluster)
		if err := c.layOut(dir, s); err != nil {
			return nil, errors.Join(fmt.Errorf("lay out a cluster in mode %s: %w", s.Mode, err), c.Close())
		}
		if err := c.start(ctx, s.Mode); err != nil {
			return nil, errors.Join(fmt.Errorf("start a cluster in mode %s: %w", s.Mode, err), c.Close())
		}
		return c, nil
	}
}

// layOut makes everything but the processes.
func (c *comparedCluster) layOut(dir string, s compare.Spec) (err error) {
	o := devOptions{nodes: benchNodes, mode: string(s.Mode), dcs: max(s.Datacenters, 1)}
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if c.dir, err = os.MkdirTemp(dir, "cluster-*"); err != nil {
		return err
	}
	layout, err := layOutNodes(c.dir, o)
	if err != nil {
		return err
	}
	if c.links, err = startLinks(layout, linked(s.Mode)); err != nil {
		return err
	}
	for i, n := range layout {
		node := &comparedNode{devNode: n, binary: binary, settings: s.Settings}
		node.args = append(o.serverArgs(n, c.links.seenFrom(i, layout)), "--config", node.file())
		if dial := c.links.dialled(i, layout); dial != "" {
			node.args = append(node.args, "--cluster-dial", dial)
		}
		c.nodes = append(c.nodes, node)
	}
	return nil
}

// layOutNodes finds ports for the nodes of all datacenters, which are numbered throughout.
func layOutNodes(dir string, o devOptions) ([]devNode, error) {
	ports, err := freeport.Claim(2 * o.dcs * o.nodes)
	if err != nil {
		return nil, err
	}
	var nodes []devNode
	for i := range o.dcs * o.nodes {
		n := devNode{dc: i/o.nodes + 1, number: i + 1, http: localhost(ports[2*i]), cluster: localhost(ports[2*i+1])}
		n.dir = filepath.Join(dir, n.name())
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// linked says to which address of a node another one connects.
func linked(mode scenario.Mode) func(from, to devNode) string {
	return func(from, to devNode) string {
		if mode == scenario.CP && from.dc == to.dc {
			return to.cluster
		}
		return to.http
	}
}

// start starts all processes at once and waits until each may serve, and knows a leader if there is to be
// one.
func (c *comparedCluster) start(ctx context.Context, mode scenario.Mode) error {
	ctx, cancel := withinReady(ctx, "the cluster")
	defer cancel()
	var once []string
	if mode == scenario.AP {
		once = append(once, "--replication-copy-wait=1ms") // nobody has anything yet
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, n := range c.nodes {
		g.Go(func() error { return n.start(ctx, mode == scenario.CP, once...) })
	}
	return g.Wait()
}
