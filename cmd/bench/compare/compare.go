// Package compare runs scenarios in all columns on clusters of real processes, observes them, and collects what was
// measured. It starts no process itself (Launch does), and judges nothing (package verdict). Its files:
//
//	compare.go     what a comparison needs from a cluster
//	run.go         the trials, their order, and what is said meanwhile
//	one.go         one trial
//	inject.go      when faults come
//	strike.go      what they do
//	observe.go     the state of an observation, and how a node is asked
//	observation.go its parts, their run, and what they add to a trial
//	lists.go       the lists of each node, ten times a second
//	nodes.go       what each node says of itself, and what its process and the machine do
//	sightings.go   registrations whose way to every node is timed
//	lookout.go     the search for them at one node in one way
//	ending.go      what nodes hold at the end
package compare

import (
	"context"
	"io"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

// Cluster is a set of server processes whose links go through proxies, so that faults can be injected. Nodes are
// numbered from 0, datacenter by datacenter. Safe for concurrent use.
type Cluster interface {
	Nodes() []Node
	// Kill ends a node by SIGKILL, Stop by SIGTERM. Both return when the process has ended.
	Kill(node int) error
	Stop(ctx context.Context, node int) error
	// Lose ends a node by SIGKILL and erases its disk. It is never started again.
	Lose(node int) error
	// Start starts a node that has ended. It returns when the node can serve.
	Start(ctx context.Context, node int) error
	// Pause stops a process by SIGSTOP, Resume lets it go on.
	Pause(node int) error
	Resume(node int) error
	// Cut drops everything that two nodes send to each other, in both directions, until Heal.
	Cut(a, b int)
	// Heal ends all cuts.
	Heal()
	// SlowDisk makes each durable write of a node take longer by delay; 0 ends it.
	SlowDisk(node int, delay time.Duration) error
	// Usage returns what a node's process has used; if it has ended, what its predecessors used.
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

// Spec describes a cluster to start.
type Spec struct {
	Column      scenario.Column
	Datacenters int               // of three nodes each
	Settings    map[string]string // other than the defaults, by key of the configuration file
}

// Launch starts a cluster and returns when every node can serve.
type Launch func(ctx context.Context, s Spec) (Cluster, error)

// Config says what is compared.
type Config struct {
	Plan      trial.Plan // everything except Took; sentences are added to LeftOut
	Version   string
	Machine   trial.Machine
	Scenarios []scenario.Scenario
	Launch    Launch
	Progress  io.Writer // a line for each trial, and while it runs
	// Health measures what the machine has done so far: Busy, Own and Sync.
	Health func() (trial.Health, error)
	// Invalid says why a trial is not valid; if nil, all are. An invalid trial is run again, up to Repeats times.
	Invalid func(*trial.Trial) []string
	Repeats int
	// Done holds the trials of an earlier run of the same plan, which do not run again.
	Done []trial.Trial
	// Keep receives each trial when it has ended. Its error ends the comparison. It may be nil.
	Keep func(*trial.Trial) error
}
