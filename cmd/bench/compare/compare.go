// Package compare runs scenarios in both modes on clusters of real processes, and collects what was measured.
package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// Cluster is running server processes whose links go through proxies, so that faults can be injected. Nodes are
// numbered from 0, datacenter by datacenter. Safe for concurrent use.
type Cluster interface {
	Nodes() []Node
	// Kill ends a node by SIGKILL, Stop by SIGTERM. Both return when the process has ended.
	Kill(node int) error
	Stop(ctx context.Context, node int) error
	// Start starts a node again that has ended. It returns when it may serve.
	Start(ctx context.Context, node int) error
	// Pause stops a process by SIGSTOP, Resume lets it go on.
	Pause(node int) error
	Resume(node int) error
	// Cut lets what two nodes send to each other vanish, in both directions, until Heal.
	Cut(a, b int)
	// Heal ends all cuts.
	Heal()
	// SlowDisk makes each durable write of a node take so much longer; 0 ends it.
	SlowDisk(node int, delay time.Duration) error
	// Usage is what a node's process has used; of a process that ended, what its predecessors used.
	Usage(node int) (trial.Usage, error)
	// Close ends all processes and proxies and removes their data.
	Close() error
}

// Node is a node of a Cluster.
type Node struct {
	Name       string
	Datacenter string
	HTTP       string // address for clients, not proxied
}

// Spec is a cluster to be started.
type Spec struct {
	Mode        scenario.Mode
	Datacenters int               // of three nodes each
	Settings    map[string]string // other than the defaults, by key of the configuration file
}

// Launch starts a cluster and returns when every node may serve.
type Launch func(ctx context.Context, s Spec) (Cluster, error)

// Config says what is compared.
type Config struct {
	Plan      trial.Plan // Seed, Quick, Repeat, Datacenters, Length, Modes, Timeout; the rest is filled in
	Version   string
	Machine   trial.Machine
	Scenarios []scenario.Scenario
	Launch    Launch
	Progress  io.Writer // a line for each trial, and while it runs
}

// Run runs every scenario in each mode, alternating: in each round all scenarios, of each first one mode, then the
// other; the next round begins with the other mode. Both have the same seed in a round. A trial that cannot be
// completed is noted (trial.Trial.Failed) and ends nothing. The error is that of ctx, that of a scenario that does
// not fit into its length, or that of the first cluster if it could not be started: then no other would.
func Run(ctx context.Context, c Config) (*trial.Comparison, error) {
	if err := c.fits(); err != nil {
		return nil, err
	}
	started := time.Now()
	result := &trial.Comparison{
		Version: c.Version, Date: started.Format(time.DateOnly), Machine: c.Machine, Plan: c.Plan, Scenarios: c.Scenarios,
	}
	turns := c.turns()
	for i, turn := range turns {
		r := run{config: c, turn: turn, progress: newProgress(c.Progress, i+1, len(turns), turn)}
		t, err := r.trial(ctx)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("compare: %w", context.Cause(ctx))
		}
		if err != nil && i == 0 && r.cluster == nil {
			return nil, err
		}
		result.Trials = append(result.Trials, t)
	}
	result.Plan.Took = trial.Of(time.Since(started))
	return result, nil
}

// length is that of a scenario's load.
func (c Config) length(s scenario.Scenario) time.Duration {
	return cmp.Or(s.Length.Duration(), c.Plan.Length.Duration())
}

func (c Config) fits() error {
	var errs []error
	for _, s := range c.Scenarios {
		errs = append(errs, s.Fits(c.length(s)))
	}
	return errors.Join(errs...)
}

// target is whom a fault strikes.
type target struct {
	nodes []int
	text  string // as in "leader node2"
}

// target finds out whom a selector means now. Without one nobody is meant.
func (i *injector) target(ctx context.Context, selector string) (target, error) {
	if selector == "" {
		return target{}, nil
	}
	leader := 0
	if i.leader != nil && byRole(selector) {
		var err error
		if leader, err = i.leader(ctx); err != nil {
			return target{}, err
		}
	}
	nodes, err := scenario.Select(selector, i.nodes, leader)
	return target{nodes: nodes, text: i.describe(selector, nodes)}, err
}

var roles = []string{"leader", "follower", "followers"}

// byRole reports whether a selector depends on who leads.
func byRole(selector string) bool {
	return slices.ContainsFunc(roles, func(role string) bool { return strings.Contains(selector, role) })
}

// describe names nodes. Their role is said where there are roles, and the selector is nothing else.
func (i *injector) describe(selector string, nodes []int) string {
	if len(nodes) == len(i.nodes) {
		return "all nodes"
	}
	var names []string
	for _, n := range nodes {
		names = append(names, i.nodes[n].Name)
	}
	text := enumerate(names)
	if i.leader != nil && slices.Contains(roles, selector) {
		text = selector + " " + text
	}
	return text
}

// enumerate is "a", "a and b", or "a, b and c".
func enumerate(names []string) string {
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}
