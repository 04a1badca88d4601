package store

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// RaftConfig says how a node of a CP cluster runs. Zero values mean what is said beside them.
type RaftConfig struct {
	Node             string            // name of this node, unique in the cluster; required
	DataDir          string            // belongs to this node alone; required
	ClusterAddr      string            // node-to-node listen address; required
	ClusterAdvertise string            // what other nodes dial; "": the listen address
	HTTPAdvertise    string            // this node's HTTP address, shown to users
	Join             []string          // node-to-node addresses of the cluster; its own may be among them
	BootstrapExpect  int               // how many nodes found the cluster; 0: 1
	Dial             map[string]string // node name -> address to dial instead of the advertised one
	TLS              *TLSFiles         // nil: plain connections

	DiskFull  func() bool   // the disk of the data directory is nearly full: the other nodes ask this while this one leads; nil: it is not
	SyncDelay time.Duration // each durable write to the log takes so much longer; for tests and benchmarks

	InFlight   int  // log entries in flight at a time; 0: 2
	NoBatching bool // one log entry per write, for comparison only

	HeartbeatTimeout  time.Duration // 0: 1 s
	ElectionTimeout   time.Duration // 0: 1 s
	LeaseTimeout      time.Duration // 0: 500 ms; a leader that hears no majority for so long steps down
	CommitTimeout     time.Duration // 0: 5 ms; how soon idle followers learn what is committed
	SnapshotInterval  time.Duration // 0: 120 s
	SnapshotThreshold uint64        // entries between snapshots; 0: 8192
	TrailingLogs      uint64        // entries kept behind a snapshot; 0: 20480
	LogBytes          int           // the same in bytes, and what makes a snapshot worth it; 0: 256 MiB
	EvictionInterval  time.Duration // of lease clock, between rounds; 0: 1 s

	Settings      registry.Settings // the cluster's, while this node leads; zero: registry.DefaultSettings()
	EvictionTimer bool              // evict when upstream would: every 60 s, first 60 s after this node was established as leader

	Spares SparePolicy // of leases of other datacenters; nil: they end like all others
	// Answer answers what other nodes ask this one while it leads (see AskLeader); nil: an error.
	Answer func(ctx context.Context, question []byte) ([]byte, error)

	Log     *slog.Logger          // nil: discards
	Metrics prometheus.Registerer // nil: none
}

func (c *RaftConfig) setDefaults() {
	setDefault(&c.BootstrapExpect, 1)
	setDefault(&c.InFlight, 2)
	setDefault(&c.HeartbeatTimeout, time.Second)
	setDefault(&c.ElectionTimeout, time.Second)
	setDefault(&c.LeaseTimeout, 500*time.Millisecond)
	setDefault(&c.CommitTimeout, 5*time.Millisecond)
	setDefault(&c.SnapshotInterval, 120*time.Second)
	setDefault(&c.SnapshotThreshold, 8192)
	setDefault(&c.TrailingLogs, 20480)
	setDefault(&c.LogBytes, 256<<20)
	setDefault(&c.EvictionInterval, time.Second)
	setDefault(&c.Settings, registry.DefaultSettings())
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	if c.NoBatching {
		// As many as there are callers: what a server without group commit would have. The state
		// machine does not remember the answers of so many batches, so a batch whose first answer
		// was lost may end as unknown; for a comparison that does not matter.
		c.InFlight = 4096
	}
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}
