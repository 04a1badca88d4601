// Package load sends what clients send, by a schedule that does not wait for answers, and records what came
// of it. It speaks HTTP/1.1 by hand over keep-alive connections, because it shares its cores with the
// servers that it measures.
package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/truth"
)

// Config says what a load is. The zero values of the optional fields are documented with them.
type Config struct {
	Nodes  []string      // HTTP addresses, host:port
	Load   scenario.Load // rates and instances
	Seed   uint64
	Prefix string // of the applications' names, so that loads do not meet; "": LOAD
	// Connections is how many clients share the open loop's calls of each operation, spread over the nodes; 0:
	// enough for the rates (of each node as many as calls come due within Timeout, between 8 and 256; of
	// heartbeats one for each instance, up to 256). Of a closed loop it is how many clients there are in all;
	// 0: 8 of each node.
	Connections int
	// Closed makes each client send its next call when the last one was answered, as fast as it can, instead of
	// by the rates; the rates then say only which operations there are, and in which proportion.
	Closed  bool
	Timeout time.Duration // after which a try is given up; 0: 2 s
	Reach   *Reach        // whom the clients can reach; nil: everybody
	Book    *truth.Book   // is told what is certain; nil: nobody is
	History *History      // of the watched keys; nil: it is not kept
}

const defaultTimeout = 2 * time.Second

// Load is a load on a running cluster. Make one with New, Register its instances, and Run it. The methods that
// strike instances may be called while it runs.
type Load struct {
	Config
	recorder *recorder
	numbers  atomic.Int64 // of callers that were made
	rates    atomic.Pointer[map[string]float64]

	mu         sync.Mutex
	started    bool               // Run or Stop was called
	stop       context.CancelFunc // nil: there is nothing to stop
	background sync.WaitGroup     // what Stop waits for

	watched watchCounts // by the watchers
	fleet   *fleet
	keys    *watchedKeys
}

// New lays a load out. Nothing is sent yet.
func New(c Config) (*Load, error) {
	switch {
	case len(c.Nodes) == 0:
		return nil, errors.New("a load needs the address of at least one node")
	case c.Connections < 0:
		return nil, fmt.Errorf("%d connections: there must be one at least, or 0 for enough", c.Connections)
	}
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	c.Prefix = cmp.Or(c.Prefix, "LOAD")
	if c.Reach == nil {
		c.Reach = new(Reach)
	}
	l := &Load{Config: c, recorder: newRecorder(len(c.Nodes))}
	l.fleet, l.keys = newFleet(l), newKeys(l)
	return l, nil
}

// Register registers all instances (Load.Instances) and the watched keys, as fast as the cluster takes them,
// and returns when all were acknowledged.
func (l *Load) Register(ctx context.Context) error {
	return errors.Join(l.fleet.register(ctx), l.keys.register(ctx))
}
