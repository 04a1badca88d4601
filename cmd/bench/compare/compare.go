// Package compare runs scenarios in both modes on clusters of real processes, and collects what was measured. It starts
// no process itself (Launch does), and judges nothing (package verdict).
// Its files: compare.go has what a comparison needs from a cluster, run.go the trials and their order, strike.go the
// faults.
package compare

import (
	"context"
	"io"
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
