package store

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/setting"
	"github.com/seed-20419f34/rollcall/internal/world"
	"github.com/seed-20419f34/rollcall/store/expiry"
)

// Config says how a node runs, in a cluster (consensus.Open) or without consensus (local.Open). A zero value means
// the default, or what its comment says. Fields with a key are settings of the node (see package setting).
type Config struct {
	Node          string // this node's name, unique in the cluster; required
	Datacenter    string // owner of the data directory, for a node without consensus
	HTTPAdvertise string // this node's HTTP address, shown to users
	Version       string // version of the program, shown to users
	Zone          string // zone of the node, shown to users
	NoVote        bool   // in a cluster, the node serves but does not vote

	DataDir string `key:"data.dir" path:"yes" help:"directory for the node's state; belongs to one node of one cluster, in one mode (required)"`

	ClusterAddr      string   `key:"cluster.addr" default:"127.0.0.1:7761" help:"address of the node-to-node port (Raft and forwarded writes)"`
	ClusterAdvertise string   `key:"cluster.advertise" help:"address at which the other nodes reach this port; empty: cluster.addr"`
	Join             []string `key:"cluster.join" reload:"yes" help:"node-to-node addresses of the cluster's nodes; may include this one"`
	BootstrapExpect  int      `key:"cluster.bootstrap-expect" default:"1" min:"1" help:"how many nodes form a new cluster, more than half of those in cluster.join; used once, then ignored"`
	TLS              TLSFiles // plain connections if empty
	RestoreFrom      string   `key:"restore-from" path:"yes" help:"mode cp: snapshot (rollcall snapshot save) with which a new cluster starts; any or all of the founding nodes may have it; a node whose data directory belongs to a cluster refuses to start with it"`
	Upgrade          codec.LevelPolicy
	DeadAfter        time.Duration `key:"members.dead-after" default:"0s" min:"1m" zero:"never" help:"mode cp: how long a voter may be silent before it is removed, if a non-voting node is ready to replace it and a majority of the voters is healthy"`

	// InFlight is at most half of the open batches that the state machine remembers per node. Beyond that, it could
	// not tell a repeated batch from a new one.
	InFlight int `key:"commit.in-flight" default:"2" min:"1" max:"32" help:"most log entries in flight at a time"`
	// RenewalWait stays below the time that a caller waits for a leader.
	RenewalWait time.Duration `key:"commit.renewal-wait" default:"100ms" min:"0s" max:"500ms" help:"mode cp: how long after the last log entry renewals wait for others to share an entry, at up to 500 renewals a second; the wait shrinks as more arrive, to nothing from 8,000 on; 0: they never wait"`

	HeartbeatTimeout  time.Duration `key:"raft.heartbeat-timeout" default:"1s" min:"5ms" help:"how long a follower goes without hearing the leader before it stands for election"`
	ElectionTimeout   time.Duration `key:"raft.election-timeout" default:"1s" min:"5ms" help:"how long a candidate waits for votes; at least raft.heartbeat-timeout"`
	LeaseTimeout      time.Duration `key:"raft.lease-timeout" default:"500ms" min:"5ms" help:"how long a leader goes without a majority before it steps down; at most raft.heartbeat-timeout"`
	SnapshotThreshold uint64        `key:"raft.snapshot-threshold" default:"8192" min:"1" help:"log entries since the last snapshot after which a new one is made"`
	SnapshotInterval  time.Duration `key:"raft.snapshot-interval" default:"2m" min:"5ms" help:"how often raft.snapshot-threshold is checked"`
	TrailingLogs      uint64        `key:"raft.trailing-logs" default:"20480" min:"1" help:"log entries kept behind a snapshot, for followers that lag"`
	RaftLog           RaftLog       `key:"raft.log" default:"bolt" words:"bolt wal" help:"mode cp: what holds the log on the disk: bolt (one file of pages) or wal (files that are appended to: fewer bytes and fewer waits for each entry). A data directory keeps the one that it was made with: rollcall recover --convert-log changes it while the node is stopped"`
	LogBytes          int           // the same in bytes, and the growth that justifies a snapshot; 0 means 256 MiB

	Sync         Sync          `key:"data.sync" default:"interval" words:"interval always none" help:"mode ap: when changes are written to disk: interval (in the background, every data.sync-interval), always (before the response) or none (when the node stops)"`
	SyncInterval time.Duration `key:"data.sync-interval" default:"1s" min:"1ms" help:"mode ap: how often changes are written in the background"`

	EvictionInterval time.Duration `key:"eviction.interval" default:"1s" min:"10ms" help:"how often the leader looks for expired leases; for upstream's 60 s (evictionIntervalTimerInMs) set eureka-compat.eviction-timer"`
	EvictionTimer    bool          `key:"eureka-compat.eviction-timer" help:"evict every 60 s, the first time after 60 s (evictionIntervalTimerInMs)"`
	// the cluster's settings while this node leads; zero means registry.DefaultSettings()
	Settings registry.Settings `cluster:"yes"`

	Test TestConfig

	World *world.World // nil means the real machine

	// DiskFree returns the bytes left on the data directory's disk, shown to users. Nil if not known.
	DiskFree func() int64
	// DiskFull reports whether the data directory's disk is nearly full. The other nodes ask this while this node
	// leads. Nil means it never is.
	DiskFull func() bool
	Spares   expiry.SparePolicy // leases of other datacenters that do not end here; nil means all leases end alike
	// Reply answers questions that other nodes ask this one while it leads (see AskLeader). Nil refuses them.
	Reply func(ctx context.Context, question []byte) ([]byte, error)
	// Copy takes over what the other nodes have, before a node without consensus becomes ready. Its error is logged,
	// and the node serves what it has. May be nil.
	Copy func(context.Context) error
	// Others returns the levels that the datacenter's other nodes read, for a node without consensus. May be nil.
	Others func() []codec.NodeReads
	// Age is Health.Age of a node without consensus. Nil means 0.
	Age func() time.Duration

	Log     *slog.Logger          // nil discards
	Metrics prometheus.Registerer // may be nil
}

// TestConfig holds what only tests and benchmarks change.
type TestConfig struct {
	SyncDelay      time.Duration `key:"test.sync-delay" default:"0s" min:"0s" max:"10s" reload:"yes" help:"delay added to each durable write, to imitate a slow disk; above 4s a node in mode cp gives up on its disk"`
	ConnectionLife time.Duration `key:"test.connection-life" default:"1h" min:"1s" help:"longest life of a TLS connection: between nodes only after their certificates have changed, elsewhere always"`
	NoBatching     bool          `key:"test.no-batching" help:"one log entry per write, for comparison"`
	CommitTimeout  time.Duration `key:"test.commit-timeout" default:"5ms" min:"1ms" help:"how long without entries until the leader sends followers the commit index"`
	// Falsify returns what this node applies instead of an entry. May be nil.
	Falsify func(entry []byte) []byte
	// Performed is called at the end of each operation, which panics if Performed does. May be nil.
	Performed func(fsm.Item)
	// Write makes each durable write of the log or the registry, or fails in its place. The write is given by name.
	// May be nil.
	Write func(name string, write func() error) error
	Dial  map[string]string `key:"test.dial" help:"by node: the address to dial instead of the advertised one, to go through a proxy"`
}

// RaftLog names the store of the Raft log.
type RaftLog string

// Values of raft.log.
const (
	LogBolt RaftLog = "bolt" // raft-boltdb
	LogWAL  RaftLog = "wal"  // raft-wal
)

// Sync says when a change reaches the disk in AP mode.
type Sync string

// Values of data.sync.
const (
	SyncInterval Sync = "interval" // in the background, every Config.SyncInterval
	SyncAlways   Sync = "always"   // before the reply
	SyncNone     Sync = "none"     // when the node stops
)

// SetDefaults replaces zero values with their defaults.
func (c *Config) SetDefaults() {
	settings := cmp.Or(c.Settings, registry.DefaultSettings())
	setting.Fill(c)
	c.Settings = settings // as given: the state gives zeros their meaning
	c.LogBytes = cmp.Or(c.LogBytes, 256<<20)
	if c.Others == nil {
		c.Others = func() []codec.NodeReads { return nil }
	}
	if c.DiskFree == nil {
		c.DiskFree = func() int64 { return 0 }
	}
	if c.Age == nil {
		c.Age = func() time.Duration { return 0 }
	}
	if c.Copy == nil {
		c.Copy = func(context.Context) error { return nil }
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	if c.Test.NoBatching {
		// One per caller, as a server without group commit would have. The state machine does not remember the
		// results of so many batches, so a batch whose first result was lost may end as unknown. For a comparison
		// that does not matter.
		c.InFlight = 4096
	}
}
