package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/probe"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

// Config is everything that can be set for a server, each a row: its tags are its key in the file, from which the flag
// and the environment variable follow, its default, its bounds and its help (see package setting). The reference table of
// docs/operations.md is made of them.
type Config struct {
	Mode             string `key:"mode" default:"cp" words:"cp ap" help:"how operations are ordered: cp (by Raft, in a cluster) or ap (by each node for itself, as Eureka does)"`
	Datacenter       string `key:"datacenter" default:"dc1" help:"name of the datacenter that this node belongs to; unique among those that replicate to each other"`
	Node             NodeConfig
	HTTP             HTTPConfig
	Cluster          ClusterConfig
	Data             DataConfig
	Commit           CommitConfig
	Raft             RaftConfig
	Eviction         EvictionConfig
	SelfPreservation SelfPreservationConfig `cluster:"yes"`
	EurekaCompat     EurekaCompatConfig
	Checks           ChecksConfig
	Replication      ReplicationConfig
	HTTPD            httpd.Config
	Quota            Quota
	PProf            PProfConfig
	Log              LogConfig
	GC               GCConfig
}

// NodeConfig names the node.
type NodeConfig struct {
	Name string `key:"node.name" help:"the node's name, unique in its cluster and bound to its data directory; empty: the host name"`
}

// HTTPConfig is where clients are served.
type HTTPConfig struct {
	Addr      string   `key:"http.addr" default:"127.0.0.1:8761" help:"address that serves the HTTP API"`
	Advertise string   `key:"http.advertise" help:"address at which clients reach the HTTP API, shown by status; empty: http.addr"`
	Hosts     []string `key:"http.hosts" help:"names under which a listener on loopback is served, beside localhost, addresses and that of http.advertise; another one is answered 421"`
	TLS       HTTPTLSConfig
	Plain     bool `key:"http.plain" help:"allow http.addr to be reached from other machines without TLS, which a mesh or a proxy may add: what is said there can be read and changed on its way"`
	// HeartbeatTakeover is explained in docs/adr/0007.
	HeartbeatTakeover bool `key:"http.heartbeat-takeover" default:"true" help:"read connections that carry heartbeats, without TLS, without net/http: the same answers for less CPU"`
}

// HTTPTLSConfig names the files of the HTTP listener's TLS.
type HTTPTLSConfig struct {
	Cert     string `key:"http.tls.cert" help:"PEM file with the server's certificate chain; read again when it changes"`
	Key      string `key:"http.tls.key" help:"PEM file with its key, of mode 0640 or narrower"`
	ClientCA string `key:"http.tls.client-ca" help:"PEM file with the authorities of client certificates; if given, clients must present one"`
}

// ClusterConfig is where the other nodes are and how they are met.
type ClusterConfig struct {
	Addr            string            `key:"cluster.addr" default:"127.0.0.1:7761" help:"address of the node-to-node port (Raft and forwarded writes)"`
	Advertise       string            `key:"cluster.advertise" help:"address at which the other nodes reach it; empty: cluster.addr"`
	Join            []string          `key:"cluster.join" help:"node-to-node addresses of the cluster's nodes, this one allowed among them"`
	BootstrapExpect int               `key:"cluster.bootstrap-expect" default:"1" min:"1" help:"how many nodes found a new cluster, more than half of those in cluster.join; used once, then ignored"`
	Dial            map[string]string `key:"cluster.dial" help:"where this node dials another one, by name, instead of its advertised address (proxies, tests)"`
	TLS             ClusterTLSConfig
	Plain           bool `key:"cluster.plain" help:"allow cluster.addr to be reached from other machines without TLS: anybody who reaches it can take part in the consensus"`
}

// ClusterTLSConfig names the files of the mutual TLS between nodes.
type ClusterTLSConfig struct {
	Cert string `key:"cluster.tls.cert" help:"PEM file with the node's certificate, for both directions"`
	Key  string `key:"cluster.tls.key" help:"PEM file with its key, of mode 0640 or narrower"`
	CA   string `key:"cluster.tls.ca" help:"PEM file with the authority of all nodes' certificates and of nothing else"`
}

// DataConfig is where state is kept.
type DataConfig struct {
	Dir          string        `key:"data.dir" help:"directory of the node's state; belongs to one node of one cluster, in one mode (required)"`
	Sync         string        `key:"data.sync" default:"interval" words:"interval always none" help:"mode ap: when changes are on disk: interval (written behind, every data.sync-interval), always (before the answer) or none (when the node stops)"`
	SyncInterval time.Duration `key:"data.sync-interval" default:"1s" min:"1ms" help:"mode ap: how often changes are written behind"`
	MinFree      int           `key:"data.min-free" default:"67108864" min:"0" help:"bytes that the disk of data.dir must have left; with less, the node (in mode cp all nodes, if it leads) answers 507 to what its clients want to add, and goes on with everything else; 0: no bound"`
	SyncDelay    time.Duration `key:"data.sync-delay" default:"0s" min:"0s" max:"10s" reload:"yes" help:"time that each durable write takes longer, at most 10s: imitates a slow disk, for tests and benchmarks; above 4s a node of mode cp gives its disk up"`
}

// CommitConfig is the group commit.
type CommitConfig struct {
	// InFlight is at most half of the unanswered batches that the state machine remembers for a node; it could
	// not tell a repeated batch from a new one beyond that.
	InFlight int  `key:"commit.in-flight" default:"2" min:"1" max:"32" help:"log entries that may be on their way at a time"`
	Batching bool `key:"commit.batching" default:"true" help:"false: one log entry per write, for comparison"`
}

// RaftConfig is the consensus underneath.
type RaftConfig struct {
	HeartbeatTimeout  time.Duration `key:"raft.heartbeat-timeout" default:"1s" min:"5ms" help:"time without the leader after which a follower stands for election"`
	ElectionTimeout   time.Duration `key:"raft.election-timeout" default:"1s" min:"5ms" help:"time that a candidate waits for votes; at least raft.heartbeat-timeout"`
	LeaseTimeout      time.Duration `key:"raft.lease-timeout" default:"500ms" min:"5ms" help:"time without a majority after which a leader steps down; at most raft.heartbeat-timeout"`
	CommitTimeout     time.Duration `key:"raft.commit-timeout" default:"5ms" min:"1ms" help:"time without entries after which the leader tells followers the commit index"`
	SnapshotThreshold uint64        `key:"raft.snapshot-threshold" default:"8192" min:"1" help:"log entries since the last snapshot that make a new one worth it"`
	SnapshotInterval  time.Duration `key:"raft.snapshot-interval" default:"2m" min:"5ms" help:"how often raft.snapshot-threshold is looked at"`
	TrailingLogs      uint64        `key:"raft.trailing-logs" default:"20480" min:"1" help:"log entries kept behind a snapshot, for followers that lag"`
}

// ChecksConfig is what is done about the checks that services are registered with through Consul's API.
type ChecksConfig struct {
	Probes bool `key:"checks.probes" default:"true" help:"mode cp: the leader runs HTTP and TCP checks; false: they stay as clients set them"`
	Rules  probe.Rules
}

// PProfConfig is the profiler's listener.
type PProfConfig struct {
	Addr string `key:"pprof.addr" help:"loopback address that serves /debug/pprof/; empty: none"`
}

// LogConfig is what is logged, to standard error.
type LogConfig struct {
	Level  string `key:"log.level" default:"info" words:"debug info warn error" help:"debug, info, warn or error"`
	Format string `key:"log.format" default:"text" words:"text json" help:"text or json"`
}

// GCConfig tunes the garbage collector.
type GCConfig struct {
	Percent int `key:"gc.percent" default:"200" min:"0" help:"heap growth in percent between collections; 0: leave it to GOGC"`
}

// defaultConfig is what holds where nothing was set.
func defaultConfig() *Config {
	c := setting.Default[Config]()
	return &c
}

// settings are the rows of the configuration, sorted by key.
func (c *Config) settings() []setting.Setting {
	all := setting.Of(c)
	slices.SortFunc(all, func(a, b setting.Setting) int { return cmp.Compare(a.Key, b.Key) })
	return all
}
