package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// loadRun is one run of bench run.
type loadRun struct {
	*loadOptions
	nodes []string // that share the load, host:port
	mode  string   // of the cluster
	load  *load.Load
	errs  io.Writer

	began  time.Time     // of the load, warm-up included
	length time.Duration // of what counts, as it was in the end
	late   lateness
	ended  string // why the load ended early; empty: it did not
}

// open finds the cluster and lays the load out.
func (o *loadOptions) open(ctx context.Context, errs io.Writer) (*loadRun, error) {
	servers, err := o.servers()
	if err != nil {
		return nil, err
	}
	r := &loadRun{loadOptions: o, nodes: servers, errs: errs}
	status, err := askStatus(ctx, servers)
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	r.mode = status.Mode
	if o.allNodes {
		if r.nodes, err = nodesOf(status); err != nil {
			return nil, err
		}
	}
	r.load, err = load.New(o.config(r.nodes))
	return r, err
}

func askStatus(ctx context.Context, servers []string) (client.Status, error) {
	cl, err := benchClient(servers...)
	if err != nil {
		return client.Status{}, err
	}
	defer cl.Close(ctx)
	return cl.Status(ctx)
}

// nodesOf are the addresses of a cluster's nodes that can be reached by each other.
func nodesOf(status client.Status) ([]string, error) {
	var nodes []string
	for _, n := range status.Nodes {
		addr := n.HTTP
		if u, err := url.Parse(n.HTTP); err == nil && u.Host != "" { // without consensus nodes know each other by URL
			addr = u.Host
		}
		if addr != "" && n.Role != "unreachable" && n.Role != "stopped" {
			nodes = append(nodes, addr)
		}
	}
	if len(nodes) == 0 {
		return nil, fmt.Errorf("--all-nodes: %s tells no node's address", status.Node)
	}
	return nodes, nil
}

// measure registers the instances, runs the load, cancels them, and says what came of it.
func (r *loadRun) measure(ctx context.Context) (*loadSummary, error) {
	fmt.Fprintf(r.errs, "registering %d instances at %s\n", r.instances, strings.Join(r.nodes, ", "))
	if err := r.load.Register(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("register %d instances: %w", r.instances, err), r.leave(ctx))
	}
	r.began = time.Now()
	err := r.send(ctx)
	r.length = min(r.duration, max(0, time.Since(r.began)-r.warmUp))
	if ctx.Err() != nil {
		r.ended, err = "It was interrupted", nil
	}
	watched := r.load.Watched()
	r.load.Stop()
	err = errors.Join(err, r.leave(ctx))
	return r.summary(watched), err
}

// send runs the load, beside what watches it.
func (r *loadRun) send(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	beside.Go(func() { r.late.watch(ctx) })
	if r.progress {
		beside.Go(func() { newProgressLine(r).run(ctx) })
	}
	return r.load.Run(ctx, r.began, r.warmUp+r.duration)
}

// leaveWithin bounds the cancels at the end.
const leaveWithin = time.Minute

// leave cancels what was registered, even after Ctrl-C.
func (r *loadRun) leave(ctx context.Context) error {
	if r.keep {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer cancel()
	if err := r.load.Leave(ctx); err != nil {
		return fmt.Errorf("cancel the instances, which go when their leases end: %w", err)
	}
	return nil
}

// counted are the series without the warm-up.
func (r *loadRun) counted(all []trial.Series) []trial.Series {
	from, to := binOf(r.warmUp), binOf(r.warmUp+r.length)
	counted := make([]trial.Series, 0, len(all))
	for _, s := range all {
		var bins []trial.Bin
		for _, b := range s.Bins {
			if b.Number >= from && b.Number < to {
				b.Number -= from
				bins = append(bins, b)
			}
		}
		s.Bins = bins
		counted = append(counted, s)
	}
	return counted
}

// binOf is the number of the bin that begins at d, or after it.
func binOf(d time.Duration) int { return int((d + trial.BinLength - 1) / trial.BinLength) }
