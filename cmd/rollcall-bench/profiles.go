package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
)

// profile writes CPU profiles of the leader and of a follower under a load on the leader, or without
// consensus of the node under load and one that it tells of it, if profiles are wanted. It is a load of its own, since to be profiled costs a node something.
func (r *ratiosRun) profile(ctx context.Context, name string, c *benchCluster, l httpLoad) error {
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
	r.say("profiling: %s", name)
	l.targets = []string{c.nodes[leader].HTTP}
	var g errgroup.Group
	here, elsewhere := "leader", "follower"
	if !c.leads {
		here, elsewhere = "loaded", "told"
	}
	g.Go(func() error { return r.fetchProfile(ctx, c.profilers[leader], name+"-"+here) })
	g.Go(func() error { return r.fetchProfile(ctx, c.profilers[(leader+1)%len(c.nodes)], name+"-"+elsewhere) })
	g.Go(func() error {
		_, err := l.closed(ctx)
		return err
	})
	return g.Wait()
}

// fetchProfile takes a profile for about as long as a load lasts.
func (r *ratiosRun) fetchProfile(ctx context.Context, profiler, name string) error {
	seconds := math.Ceil((r.warm + r.window).Seconds())
	body, err := getOK(ctx, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%.0f", profiler, seconds))
	if err != nil {
		return err
	}
	defer body.Close()
	f, err := os.Create(filepath.Join(r.profiles, name+".pprof"))
	if err != nil {
		return fmt.Errorf("--profiles: %w", err)
	}
	defer f.Close()
	_, err = io.Copy(f, body)
	return err
}
