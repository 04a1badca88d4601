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

// profile writes CPU profiles of the leader and of a follower under renewals, if they are wanted.
func (r writeRig) profile(ctx context.Context) error {
	if r.profiles == "" {
		return nil
	}
	if err := os.MkdirAll(r.profiles, 0o755); err != nil {
		return fmt.Errorf("--profiles: %w", err)
	}
	leader, err := r.batching.leader(ctx)
	if err != nil {
		return err
	}
	follower := (leader + 1) % len(r.batching.nodes)
	l := r.renewals(256, r.renewed)
	l.targets = []string{r.batching.nodes[leader].http}
	var g errgroup.Group
	g.Go(func() error { return r.fetchProfile(ctx, r.batching.profilers[leader], "leader") })
	g.Go(func() error { return r.fetchProfile(ctx, r.batching.profilers[follower], "follower") })
	g.Go(func() error {
		_, err := l.closed(ctx)
		return err
	})
	return g.Wait()
}

// fetchProfile takes a profile for about as long as the load lasts.
func (r writeRig) fetchProfile(ctx context.Context, profiler, name string) error {
	seconds := math.Ceil((r.warm + r.window).Seconds())
	body, err := get(ctx, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%.0f", profiler, seconds))
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
