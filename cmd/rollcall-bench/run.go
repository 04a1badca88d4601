package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/cmd/localcluster"
)

// ratiosRun is one run of bench ratios.
type ratiosRun struct {
	ratiosPlan
	*figures
	server   server
	defaults serverDefaults
	dir      string
	progress io.Writer
	began    time.Time
	profiles string   // directory; empty: none
	settings []string // of every node, other than the defaults

	bare string // address of the bare handler
}

// benchPart names what is measured together, on clusters of its own.
type benchPart string

// The parts, in the order in which they are measured: few processes live at a time, and the last
// registration lies behind when the delta is fetched.
const (
	loadPart         benchPart = "load"
	scalePart        benchPart = "scale"
	leasesPart       benchPart = "leases"
	coordinationPart benchPart = "coordination"
	replicationPart  benchPart = "replication"
)

var benchParts = []benchPart{loadPart, scalePart, leasesPart, coordinationPart, replicationPart}

// all measures the parts of the plan.
func (r *ratiosRun) all(ctx context.Context) error {
	measures := map[benchPart]func(context.Context) error{
		loadPart: r.load, scalePart: r.scale, leasesPart: r.leases, coordinationPart: r.coordination, replicationPart: r.replication,
	}
	for _, part := range r.parts {
		if err := measures[part](ctx); err != nil {
			return err
		}
	}
	return nil
}

// load measures all that is compared with a bare handler.
func (r *ratiosRun) load(ctx context.Context) error {
	bare, err := r.startBare(ctx)
	if err != nil {
		return err
	}
	defer bare.Stop()
	return r.writesAndFetches(ctx)
}

// startBare starts the bare handler. The caller stops it.
func (r *ratiosRun) startBare(ctx context.Context) (*localcluster.Process, error) {
	ports, err := localcluster.ClaimPorts(1)
	if err != nil {
		return nil, err
	}
	r.bare = localcluster.Address(ports[0])
	bare, err := startBaseline(filepath.Join(r.dir, "bare", "log"), "bare", "--http-addr", r.bare, "--gc-percent", strconv.Itoa(r.defaults.GC.Percent))
	if err != nil {
		return nil, err
	}
	if err := awaitOK(ctx, "http://"+r.bare+barePath(0)); err != nil {
		bare.Stop()
		return nil, err
	}
	return bare, nil
}

// startBaseline starts this program as one of the baselines, in a process of its own as the nodes are.
func startBaseline(log string, args ...string) (*localcluster.Process, error) {
	own, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return localcluster.Start(log, nil, own, args...)
}

// clusterSpec is a cluster to be started.
type clusterSpec struct {
	name     string
	mode     string       // empty: with consensus
	fleets   []benchFleet // to be registered
	settings []string     // other than those of the run
}

// clusters starts clusters at the same time. The caller stops them; after an error none is left.
func (r *ratiosRun) clusters(ctx context.Context, specs ...clusterSpec) (clusters []*benchCluster, err error) {
	clusters = make([]*benchCluster, len(specs))
	var g errgroup.Group
	for i, spec := range specs {
		r.say("starting the cluster %q", spec.name)
		g.Go(func() (err error) {
			clusters[i], err = r.cluster(ctx, spec)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		stopClusters(clusters)
		return nil, err
	}
	return clusters, nil
}

func stopClusters(clusters []*benchCluster) {
	for _, c := range clusters {
		if c != nil {
			c.stop()
		}
	}
}

func (r *ratiosRun) cluster(ctx context.Context, spec clusterSpec) (*benchCluster, error) {
	c, err := startBenchCluster(ctx, r.server.path, filepath.Join(r.dir, spec.name), cmp.Or(spec.mode, localcluster.CP), slices.Concat(r.settings, spec.settings)...)
	if err != nil {
		return nil, fmt.Errorf("cluster %q: %w", spec.name, err)
	}
	for _, f := range spec.fleets {
		if err := c.register(ctx, f); err != nil {
			c.stop()
			return nil, fmt.Errorf("cluster %q: %w", spec.name, err)
		}
	}
	return c, nil
}

// say reports progress.
func (r *ratiosRun) say(format string, args ...any) {
	fmt.Fprintf(r.progress, "%4.0f s  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

// record adds a figure to this round.
func (r *ratiosRun) record(name figureName, unit string, value float64) {
	r.add(name, unit, value)
	r.say("%s: %s %s", name, shortNumber(value), unit)
}

// renewals is a load of renewals in this plan's measure.
func (r *ratiosRun) renewals(conns int, requests workload) httpLoad {
	return httpLoad{conns: conns, requests: requests, want: http.StatusOK, warm: r.warm, window: r.window}
}

// rate measures a load at its targets.
func (r *ratiosRun) rate(ctx context.Context, name figureName, l httpLoad) (*loadResult, error) {
	result, err := l.closed(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	r.wronged(name, result.wrong)
	return result, nil
}

// recordRate measures and records a load at its targets.
func (r *ratiosRun) recordRate(ctx context.Context, name figureName, l httpLoad) error {
	result, err := r.rate(ctx, name, l)
	if err == nil {
		r.record(name, "/s", result.rate)
	}
	return err
}

// recordLeaderRate measures and records a load at a cluster's leader.
func (r *ratiosRun) recordLeaderRate(ctx context.Context, name figureName, c *benchCluster, l httpLoad) error {
	return r.steady(ctx, name, c, func(leader string) (func(), error) {
		l.targets = []string{leader}
		result, err := r.rate(ctx, name, l)
		return func() { r.record(name, "/s", result.rate) }, err
	})
}

// steady measures while nobody else becomes the leader: an election in between would be what was
// measured. What measure returns keeps the result.
func (r *ratiosRun) steady(ctx context.Context, name figureName, c *benchCluster, measure func(leader string) (keep func(), err error)) error {
	const tries = 3
	for range tries {
		before, err := c.leader(ctx)
		if err != nil {
			return err
		}
		settleDisk()
		keep, err := measure(c.nodes[before].HTTP)
		if err != nil {
			return err
		}
		after, err := c.leader(ctx)
		if err != nil {
			return err
		}
		if after == before {
			keep()
			return nil
		}
		r.note("Leadership moved during %q, which was measured again.", name)
		r.say("leadership moved during %q: once more", name)
	}
	return fmt.Errorf("%s: leadership moved in each of %d tries", name, tries)
}
