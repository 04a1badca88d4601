package main

import (
	"time"
)

// Config is everything that can be set for a server. The yaml tags are the keys of the file, joined
// by dots; keys.go derives the flags, the environment variables and the reference table of
// docs/operations.md from them and from the help tags. A zero value is never a default: see
// defaultConfig.
type Config struct {
	Mode             string                 `yaml:"mode" help:"how operations are ordered: cp (by Raft, in a cluster) or ap (by each node for itself, as Eureka does)"`
	Datacenter       string                 `yaml:"datacenter" help:"name of the datacenter that this node belongs to; unique among those that replicate to each other"`
	Node             NodeConfig             `yaml:"node"`
	HTTP             HTTPConfig             `yaml:"http"`
	Cluster          ClusterConfig          `yaml:"cluster"`
	Data             DataConfig             `yaml:"data"`
	Reads            ReadsConfig            `yaml:"reads"`
	Commit           CommitConfig           `yaml:"commit"`
	Raft             RaftConfig             `yaml:"raft"`
	Eviction         EvictionConfig         `yaml:"eviction"`
	SelfPreservation SelfPreservationConfig `yaml:"self-preservation"`
	EurekaCompat     EurekaCompatConfig     `yaml:"eureka-compat"`
	Checks           ChecksConfig           `yaml:"checks"`
	RateLimiter      RateLimiterConfig      `yaml:"rate-limiter"`
	Replication      ReplicationConfig      `yaml:"replication"`
	Limits           LimitsConfig           `yaml:"limits"`
	PProf            PProfConfig            `yaml:"pprof"`
	Log              LogConfig              `yaml:"log"`
	GC               GCConfig               `yaml:"gc"`
}

// NodeConfig names the node.
type NodeConfig struct {
	Name string `yaml:"name" help:"the node's name, unique in its cluster and bound to its data directory; empty: the host name"`
}

// HTTPConfig is where clients are served.
type HTTPConfig struct {
	Addr      string        `yaml:"addr" help:"address that serves the HTTP API"`
	Advertise string        `yaml:"advertise" help:"address at which clients reach the HTTP API, shown by status; empty: http.addr"`
	Hosts     []string      `yaml:"hosts" help:"names under which a listener on loopback is served, beside localhost, addresses and that of http.advertise; another one is answered 421"`
	TLS       HTTPTLSConfig `yaml:"tls"`
	Plain     bool          `yaml:"plain" help:"allow http.addr to be reached from other machines without TLS, which a mesh or a proxy may add: what is said there can be read and changed on its way"`
	// HeartbeatTakeover is explained in docs/adr/0007.
	HeartbeatTakeover bool `yaml:"heartbeat-takeover" help:"read connections that carry heartbeats, without TLS, without net/http: the same answers for less CPU"`
}

// HTTPTLSConfig names the files of the HTTP listener's TLS.
type HTTPTLSConfig struct {
	Cert     string `yaml:"cert" help:"PEM file with the server's certificate chain; read again when it changes"`
	Key      string `yaml:"key" help:"PEM file with its key, of mode 0640 or narrower"`
	ClientCA string `yaml:"client-ca" help:"PEM file with the authorities of client certificates; if given, clients must present one"`
}

// ClusterConfig is where the other nodes are and how they are met.
type ClusterConfig struct {
	Addr            string            `yaml:"addr" help:"address of the node-to-node port (Raft and forwarded writes)"`
	Advertise       string            `yaml:"advertise" help:"address at which the other nodes reach it; empty: cluster.addr"`
	Join            []string          `yaml:"join" help:"node-to-node addresses of the cluster's nodes, this one allowed among them"`
	BootstrapExpect int               `yaml:"bootstrap-expect" help:"how many nodes found a new cluster, more than half of those in cluster.join; used once, then ignored"`
	Dial            map[string]string `yaml:"dial" help:"where this node dials another one, by name, instead of its advertised address (proxies, tests)"`
	TLS             ClusterTLSConfig  `yaml:"tls"`
	Plain           bool              `yaml:"plain" help:"allow cluster.addr to be reached from other machines without TLS: anybody who reaches it can take part in the consensus"`
}

// ClusterTLSConfig names the files of the mutual TLS between nodes.
type ClusterTLSConfig struct {
	Cert string `yaml:"cert" help:"PEM file with the node's certificate, for both directions"`
	Key  string `yaml:"key" help:"PEM file with its key, of mode 0640 or narrower"`
	CA   string `yaml:"ca" help:"PEM file with the authority of all nodes' certificates and of nothing else"`
}

// DataConfig is where state is kept.
type DataConfig struct {
	Dir          string        `yaml:"dir" help:"directory of the node's state; belongs to one node of one cluster, in one mode (required)"`
	Sync         string        `yaml:"sync" help:"mode ap: when changes are on disk: interval (written behind, every data.sync-interval), always (before the answer) or none (when the node stops)"`
	SyncInterval time.Duration `yaml:"sync-interval" help:"mode ap: how often changes are written behind"`
	MinFree      int           `yaml:"min-free" help:"bytes that the disk of data.dir must have left; with less, the node (in mode cp all nodes, if it leads) answers 507 to what its clients want to add, and goes on with everything else; 0: no bound"`
	SyncDelay    time.Duration `yaml:"sync-delay" help:"time that each durable write takes longer, at most 10s: imitates a slow disk, for tests and benchmarks; above 4s a node of mode cp gives its disk up"`
}

// ReadsConfig is what readers get who cannot ask for a consistency.
type ReadsConfig struct {
	Eureka string `yaml:"eureka" help:"what Eureka clients read: linearizable, stale-without-quorum or stale"`
}

// CommitConfig is the group commit.
type CommitConfig struct {
	InFlight int  `yaml:"in-flight" help:"log entries that may be on their way at a time"`
	Batching bool `yaml:"batching" help:"false: one log entry per write, for comparison"`
}

// RaftConfig is the consensus underneath.
type RaftConfig struct {
	HeartbeatTimeout  time.Duration `yaml:"heartbeat-timeout" help:"time without the leader after which a follower stands for election"`
	ElectionTimeout   time.Duration `yaml:"election-timeout" help:"time that a candidate waits for votes; at least raft.heartbeat-timeout"`
	LeaseTimeout      time.Duration `yaml:"lease-timeout" help:"time without a majority after which a leader steps down; at most raft.heartbeat-timeout"`
	CommitTimeout     time.Duration `yaml:"commit-timeout" help:"time without entries after which the leader tells followers the commit index"`
	SnapshotThreshold uint64        `yaml:"snapshot-threshold" help:"log entries since the last snapshot that make a new one worth it"`
	SnapshotInterval  time.Duration `yaml:"snapshot-interval" help:"how often raft.snapshot-threshold is looked at"`
	TrailingLogs      uint64        `yaml:"trailing-logs" help:"log entries kept behind a snapshot, for followers that lag"`
}

// PProfConfig is the profiler's listener.
type PProfConfig struct {
	Addr string `yaml:"addr" help:"loopback address that serves /debug/pprof/; empty: none"`
}

// LogConfig is what is logged, to standard error.
type LogConfig struct {
	Level  string `yaml:"level" help:"debug, info, warn or error"`
	Format string `yaml:"format" help:"text or json"`
}

// GCConfig tunes the garbage collector.
type GCConfig struct {
	Percent int `yaml:"percent" help:"heap growth in percent between collections; 0: leave it to GOGC"`
}

// defaultConfig is what holds where nothing was set.
func defaultConfig() *Config {
	return &Config{
		Mode:       modeCP,
		Datacenter: "dc1",
		Data:       DataConfig{Sync: "interval", SyncInterval: time.Second, MinFree: 64 << 20},
		HTTP:       HTTPConfig{Addr: "127.0.0.1:8761", HeartbeatTakeover: true},
		Cluster:    ClusterConfig{Addr: "127.0.0.1:7761", BootstrapExpect: 1},
		Reads:      ReadsConfig{Eureka: "linearizable"},
		Commit:     CommitConfig{InFlight: 2, Batching: true},
		Raft: RaftConfig{
			HeartbeatTimeout:  time.Second,
			ElectionTimeout:   time.Second,
			LeaseTimeout:      500 * time.Millisecond,
			CommitTimeout:     5 * time.Millisecond,
			SnapshotThreshold: 8192,
			SnapshotInterval:  2 * time.Minute,
			TrailingLogs:      20480,
		},
		Eviction:         EvictionConfig{Interval: time.Second},
		SelfPreservation: defaultSelfPreservation(),
		EurekaCompat:     defaultEurekaCompat(),
		Checks:           ChecksConfig{DeregisterCriticalAfter: 72 * time.Hour, Probes: true, AllowLoopback: true, Methods: []string{"GET", "HEAD"}},
		RateLimiter:      defaultRateLimiter(),
		Replication:      defaultReplication(),
		Limits:           defaultLimits(),
		Log:              LogConfig{Level: "info", Format: "text"},
		GC:               GCConfig{Percent: 200},
	}
}
