// Package observe looks at a cluster during a trial as clients and operators do, and notes what it sees: lists,
// sightings, leaders, evictions, the replicator's figures.
package observe

import (
	"context"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/truth"
)

// Config says whom to observe.
type Config struct {
	Nodes     []string // HTTP addresses, in the order of trial.Trial.Nodes
	Names     []string // the nodes' names, as they call each other
	Mode      scenario.Mode
	Began     time.Time // of the trial
	Book      *truth.Book
	Sightings float64                             // registrations per second whose way is timed
	Every     time.Duration                       // between two lists of a node; 0: 100 ms
	Usage     func(node int) (trial.Usage, error) // CPU, memory, disk and bytes of a node's process, now; asked once a second
	Renewals  func() int64                        // heartbeats answered so far
	Seed      uint64
}

// Observer observes a cluster.
type Observer struct{}

// New lays the observation out. Nothing is asked yet.
func New(c Config) *Observer { panic("not written") }

// Run observes until ctx ends. Nodes that do not answer are asked again; none of that is an error.
func (o *Observer) Run(ctx context.Context) { panic("not written") }

// Healed reports whether every node's last list, asked for after the last Mark of the book, lacks nothing that was
// acknowledged before that mark.
func (o *Observer) Healed() bool { panic("not written") }

// Into adds what was observed to a trial. Call it after Run has returned.
func (o *Observer) Into(t *trial.Trial) { panic("not written") }

// End asks every node what it holds: the registry's list, by the book, and the versions of the watched keys.
func End(ctx context.Context, c Config, app string, keys []string, lease time.Duration) []trial.Ending {
	panic("not written")
}
