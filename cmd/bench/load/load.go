// Package load sends what clients send, by a schedule that does not wait for answers, and records what came
// of it. It speaks HTTP/1.1 by hand over keep-alive connections, because it shares its cores with the
// servers that it measures.
package load

import (
	"context"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/truth"
)

// Config says what a load is. The zero values of the optional fields are documented with them.
type Config struct {
	Nodes  []string      // HTTP addresses, host:port
	Load   scenario.Load // rates and instances
	Seed   uint64
	Prefix string // of the applications' names, so that loads do not meet; "": LOAD
	// Connections is how many clients share the open loop's calls of each operation, spread over the nodes;
	// 0: enough for the rates.
	Connections int
	// Closed makes each client send its next call when the last one was answered, as fast as it can, instead of
	// by the rates; the rates then say only which operations there are, and in which proportion.
	Closed  bool
	Timeout time.Duration // after which a try is given up; 0: 2 s
	Reach   *Reach        // whom the clients can reach; nil: everybody
	Book    *truth.Book   // is told what is certain; nil: nobody is
	History *History      // of the watched keys; nil: it is not kept
}

// Load is a load on a running cluster. Make one with New, Register its instances, and Run it. The methods that
// strike instances may be called while it runs.
type Load struct {
	Config
	watched watchCounts // by the watchers
	fleet   *fleet       // newFleet; Register: fleet.register; fleet.tend for as long as heartbeats are sent
	keys    *watchedKeys // newKeys; Register: keys.register; Stop: keys.close
}

// New lays a load out. Nothing is sent yet.
func New(c Config) (*Load, error) { panic("not written") }

// Register registers all instances (Load.Instances) and the watched keys, as fast as the cluster takes them,
// and returns when all were acknowledged.
func (l *Load) Register(ctx context.Context) error { panic("not written") }

// Run begins the schedule at began, and returns when length is over and every call that was due has been
// sent and has ended, or ctx ends. Heartbeats go on until ctx ends or Stop is called, so that leases do not
// end while others still observe.
func (l *Load) Run(ctx context.Context, began time.Time, length time.Duration) error {
	panic("not written")
}

// Stop ends the heartbeats, and returns when nothing is under way any more.
func (l *Load) Stop() { panic("not written") }

// SetRates replaces rates, by their names in scenario.Load ("fetches"), from now on; nil brings the load's own
// back.
func (l *Load) SetRates(rates map[string]float64) { panic("not written") }

// Renewals counts the heartbeats that were acknowledged until now.
func (l *Load) Renewals() int64 { panic("not written") }

// Snapshot is what has happened until now, for progress lines and tables, over all nodes.
func (l *Load) Snapshot() map[trial.Operation]Totals { panic("not written") }

// Totals sums up the calls of one operation.
type Totals struct {
	Outcomes map[trial.Outcome]int64
	Latency  *hdrhistogram.Histogram // µs, of the answered calls, from when they were due
}

// Series is the record of everything sent since began, once Run has returned.
func (l *Load) Series() []trial.Series { panic("not written") }

// Reach says which nodes the clients of a node can reach. The zero value: everybody reaches everybody. Safe for
// concurrent use.
type Reach struct{}

// Split cuts the nodes given off from the others, together with the clients whose home they are. A call under
// way that crosses the split gets no answer.
func (r *Reach) Split(nodes []int) { panic("not written") }

// Join ends all splits.
func (r *Reach) Join() { panic("not written") }

// From lists the nodes, of n, that the clients of home can reach, home first, then in turn.
func (r *Reach) From(home, n int) []int { panic("not written") }
