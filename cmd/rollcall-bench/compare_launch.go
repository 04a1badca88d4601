package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/cmd/bench/compare"
	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/localcluster"
)

// launchComparison starts clusters of a server below dir, each in a directory of its own that goes with it.
func launchComparison(server, dir string) compare.Launch {
	return func(ctx context.Context, s compare.Spec) (compare.Cluster, error) {
		c := new(comparedCluster)
		if err := c.layOut(server, dir, s); err != nil {
			return nil, errors.Join(fmt.Errorf("lay out a cluster in mode %s: %w", s.Mode, err), c.Close())
		}
		if err := c.start(ctx, s.Mode); err != nil {
			return nil, errors.Join(fmt.Errorf("start a cluster in mode %s: %w", s.Mode, err), c.Close())
		}
		return c, nil
	}
}

// layOut makes everything but the processes.
func (c *comparedCluster) layOut(server, dir string, s compare.Spec) (err error) {
	if c.dir, err = os.MkdirTemp(dir, "cluster-*"); err != nil {
		return err
	}
	nodes, err := localcluster.LayOut(c.dir, string(s.Mode), max(s.Datacenters, 1), benchNodes)
	if err != nil {
		return err
	}
	if c.links, err = localcluster.StartLinks(nodes, func(_, _ *localcluster.Node) bool { return true }); err != nil {
		return err
	}
	c.links.Introduce(nodes)
	for _, n := range nodes {
		node := &comparedNode{Node: n, server: server, settings: s.Settings}
		n.Args = []string{"--config", node.file()}
		c.nodes = append(c.nodes, node)
	}
	return nil
}

// start starts all processes at once and waits until each may serve, and knows a leader if there is to be
// one.
func (c *comparedCluster) start(ctx context.Context, mode scenario.Mode) error {
	ctx, cancel := localcluster.WithinReady(ctx)
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
